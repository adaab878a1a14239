"""The entries are those that CLI 2.1.197 and 2.1.325 write, without what does not matter."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.stored import ONE, assistant, call, entry, result, user

from bridle.outcomes import Outcome, OutcomeReason
from bridle.sessions._transcripts.stored_turns import (
    StoredTurn,
    ending_of,
    prompts_in,
    turns_of,
    waiting_call,
)
from bridle.sessions._transcripts.transcript import (
    TranscriptEntry,
    conversation,
    entries_of_objects,
)

Json = dict[str, Any]


def chained(*entries: Json) -> list[TranscriptEntry]:
    """The conversation of entries, each after the one before it."""
    uuids = [None, *(one["uuid"] for one in entries)]
    linked = [{**one, "parentUuid": uuid} for one, uuid in zip(entries, uuids, strict=False)]
    return conversation(entries_of_objects(linked))


def turns(*entries: Json) -> list[StoredTurn]:
    return turns_of(chained(*entries))


def said(uuid: str, *content: Json, stop: str | None = "end_turn", **members: Any) -> Json:
    made = assistant(uuid, None, *content, **members)
    made["message"]["stop_reason"] = stop
    return made


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def attachment(uuid: str, kind: str, **members: Any) -> Json:
    return entry("attachment", uuid, None, attachment={"type": kind, **members}, cwd="/w")


def system(uuid: str, subtype: str, **members: Any) -> Json:
    return entry("system", uuid, None, subtype=subtype, **members)


PROMPT = user("p1", None, "do it")
CALL = said("a1", call("t1"), stop="tool_use")
RESULT = user("r1", None, result("t1"))
ANSWER = said("a2", text("done"))
INTERRUPTED = user("i1", None, [text("[Request interrupted by user for tool use]")])
SOURCED = user("p1", None, "do it", promptId="one", promptSource="sdk")
REWORDED = user("i1", None, [text("[Arrêté par l'utilisateur]")], promptId="one")
META = user("m1", None, "Stop hook feedback:\ngo on", isMeta=True)
DEFERRED = attachment(
    "d1", "hook_deferred_tool", toolUseID="t1", toolName="Bash", toolInput={"command": "t1"}
)
PRINTED = system("s1", "local_command", content="<local-command-stdout>$1</local-command-stdout>")
CLOSED = said("n1", text("No response requested."), stop="stop_sequence", isApiErrorMessage=False)
CLOSED["message"]["model"] = "<synthetic>"
OUTPUT = said(
    "a1",
    {"type": "tool_use", "id": "t1", "name": "StructuredOutput", "input": {"n": 3}},
    stop="tool_use",
)


def ending(*entries: Json, prompt: Json = PROMPT) -> Outcome[Any] | None:
    (turn,) = turns(prompt, *entries)
    return ending_of(turn, ONE)


# ------------------------------------------------------------------------- turns


def test_a_turn_has_its_prompt_and_everything_until_the_next_prompt() -> None:
    later = user("p2", None, "more")
    first, second = turns(PROMPT, CALL, RESULT, ANSWER, later, said("a3"))
    assert (first.prompts, first.calls) == (["p1"], {"t1"})
    assert [one.uuid for one in first.entries] == ["p1", "a1", "r1", "a2"]
    assert [one.uuid for one in second.entries] == ["p2", "a3"]


def test_prompts_that_the_cli_joined_are_one_turn() -> None:
    joined = user("p2", None, "say 1\nsay 2", mergedSendUuids=["p0", "p1"])
    (turn,) = turns(joined, ANSWER)
    assert turn.prompts == ["p0", "p1", "p2"]


def test_a_prompt_that_arrives_while_a_tool_runs_belongs_to_the_turn() -> None:
    added = attachment("x", "queued_command", prompt="and this", source_uuid="p2")
    (turn,) = turns(PROMPT, CALL, RESULT, added, ANSWER)
    assert turn.prompts == ["p1", "p2"]


def test_prompts_without_an_answer_between_them_are_one_turn() -> None:
    (turn,) = turns(PROMPT, user("p2", None, "more"), ANSWER)
    assert turn.prompts == ["p1", "p2"]


@pytest.mark.parametrize(
    "own",
    [
        META,
        INTERRUPTED,
        user("n1", None, "<task-notification>", origin={"kind": "task-notification"}),
        user("c1", None, "the story so far", isCompactSummary=True),
        user("l1", None, "<local-command-stdout>Compacted</local-command-stdout>"),
    ],
)
def test_text_of_the_cli_begins_no_turn(own: Json) -> None:
    (turn,) = turns(PROMPT, ANSWER, own)
    assert len(turn.entries) == 3


def test_a_slash_command_is_a_turn() -> None:
    command = user("p2", None, "<command-name>/cost</command-name>")
    found = turns(PROMPT, ANSWER, command, PRINTED, user("p3", None, "more"))
    assert [one.prompts for one in found] == [["p1"], ["p2"], ["p3"]]


def test_an_entry_without_a_prompt_has_no_prompt() -> None:
    entries = entries_of_objects([CALL, RESULT, META, attachment("x", "model"), DEFERRED])
    assert [prompts_in(one) for one in entries] == [(), (), ("m1",), (), ()]


# ------------------------------------------------------------------------- endings


@pytest.mark.parametrize(
    ("entries", "reason", "words"),
    [
        ([ANSWER], OutcomeReason.COMPLETED, "done"),
        ([CALL, RESULT, ANSWER], OutcomeReason.COMPLETED, "done"),
        ([said("a2", text("one"), stop="stop_sequence")], OutcomeReason.COMPLETED, "one"),
        ([said("a1", text("one")), META, ANSWER], OutcomeReason.COMPLETED, "done"),
        ([ANSWER, system("s1", "stop_hook_summary")], OutcomeReason.COMPLETED, "done"),
        ([CALL, RESULT, INTERRUPTED], OutcomeReason.INTERRUPTED, ""),
        ([said("a1", text("I wa"), stop=None), INTERRUPTED], OutcomeReason.INTERRUPTED, "I wa"),
        (
            [CALL, RESULT, attachment("x", "max_turns_reached", maxTurns=2)],
            OutcomeReason.MAX_TURNS,
            "",
        ),
        (
            [CALL, RESULT, attachment("x", "hook_stopped_continuation", message="enough")],
            OutcomeReason.STOPPED_BY_HOOK,
            "",
        ),
        (
            [ANSWER, system("s1", "stop_hook_summary", preventedContinuation=True)],
            OutcomeReason.STOPPED_BY_HOOK,
            "done",
        ),
        (
            [PRINTED],
            OutcomeReason.COMPLETED,
            "$1",
        ),
    ],
)  # fmt: skip
def test_the_end_of_a_finished_turn(entries: list[Json], reason: OutcomeReason, words: str) -> None:
    outcome = ending(*entries)
    assert outcome is not None
    assert (outcome.reason, outcome.text, outcome.cost_usd) == (reason, words, None)
    assert outcome.session_id == ONE


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [said("a1", text("I look"), stop="tool_use")],
        [CALL],
        [CALL, RESULT],
        [ANSWER, META],
        [said("a1", text("cut"), stop="max_tokens")],
        [said("a1", text("no"), stop="refusal")],
        [said("a1", text("half"), stop=None)],
        [said("a1", {"type": "thinking", "thinking": "hm"})],
        [ANSWER, user("n", None, "<task-notification>", origin={"kind": "task-notification"})],
        [CALL, RESULT, ANSWER, attachment("x", "queued_command", source_uuid="p2")],
        [CALL, DEFERRED, RESULT],
        [CALL, user("r1", None, result("t1"), toolEndsTurn=True)],
        [OUTPUT, user("r1", None, result("t1"))],
        [system("s1", "local_command", content="/nonexist")],
        [attachment("x", "hook_deferred_tool")],
        [CLOSED],
        [CALL, RESULT, CLOSED],
    ],
)
def test_a_turn_that_was_cut_off_has_no_end(entries: list[Json]) -> None:
    assert ending(*entries) is None


@pytest.mark.parametrize(
    ("error", "status", "stop", "reason"),
    [
        ("server_error", 529, "stop_sequence", OutcomeReason.API_ERROR),
        ("rate_limit", 429, "stop_sequence", OutcomeReason.RATE_LIMITED),
        ("authentication_failed", None, "stop_sequence", OutcomeReason.AUTH_FAILED),
        ("unknown", 401, "stop_sequence", OutcomeReason.AUTH_FAILED),
        ("invalid_request", None, "refusal", OutcomeReason.REFUSED),
        ("max_output_tokens", None, "stop_sequence", OutcomeReason.API_ERROR),
    ],
)
def test_an_api_error_ends_a_turn(
    error: str, status: int | None, stop: str, reason: OutcomeReason
) -> None:
    before = said("a1", text("before"), stop="tool_use")
    failed = said(
        "e1", text("API Error"), stop=stop, isApiErrorMessage=True, error=error,
        apiErrorStatus=status,
    )  # fmt: skip
    outcome = ending(before, failed)
    assert outcome is not None
    assert (outcome.reason, outcome.detail, outcome.text) == (reason, "API Error", "before")
    assert outcome.api_error == error


def test_what_the_cli_writes_after_a_turn_does_not_change_its_end() -> None:
    """The CLI writes it after an interrupted turn too, before the next prompt."""
    outcome = ending(ANSWER, CLOSED)
    assert outcome is not None
    assert (outcome.reason, outcome.text) == (OutcomeReason.COMPLETED, "done")
    interrupted = ending(CALL, user("x", None, "[Request interrupted by user]"), CLOSED)
    assert interrupted is not None
    assert interrupted.reason is OutcomeReason.INTERRUPTED


def test_an_interrupt_in_other_words_is_known_by_the_id_of_its_prompt() -> None:
    outcome = ending(said("a1", text("I wa"), stop=None), REWORDED, prompt=SOURCED)
    assert outcome is not None
    assert (outcome.reason, outcome.text) == (OutcomeReason.INTERRUPTED, "I wa")


def test_a_prompt_that_quotes_an_interrupt_is_a_prompt() -> None:
    quoted = "[Request interrupted by user]: what is that?"
    second = user("p2", None, quoted, promptId="two", promptSource="sdk")
    first, last = turns(SOURCED, ANSWER, second)
    assert (first.prompts, last.prompts) == (["p1"], ["p2"])


def test_a_slash_command_with_the_id_of_its_caveat_is_a_turn() -> None:
    caveat = user("m1", None, "<local-command-caveat>", isMeta=True, promptId="two")
    command = user("p2", None, "<command-name>/context</command-name>", promptId="two")
    assert [turn.prompts for turn in turns(SOURCED, ANSWER, caveat, command)] == [
        ["p1", "m1"],
        ["p2"],
    ]


def test_a_structured_output_ends_a_turn() -> None:
    outcome = ending(OUTPUT, user("r1", "a1", result("t1"), toolEndsTurn=True))
    assert outcome is not None
    assert (outcome.reason, outcome.structured_output) == (OutcomeReason.COMPLETED, {"n": 3})


def test_a_deferred_call_ends_a_turn_and_can_be_resumed() -> None:
    outcome = ending(CALL, DEFERRED)
    assert outcome is not None
    assert outcome.reason is OutcomeReason.TOOL_DEFERRED
    pending = outcome.pending
    assert pending is not None
    assert (pending.session_id, pending.tool_name, pending.tool_use_id) == (ONE, "Bash", "t1")
    assert (pending.tool_input, pending.cwd) == ({"command": "t1"}, "/w")


# ------------------------------------------------------------------------- calls that wait

OTHER_RESULT = user("r2", None, result("t2"))
# An API request, as newer CLIs save it: the model was told that the result is missing.
REQUEST: Json = {"type": "api-request-blob", "content": [result("t1")]}
LATER = attachment("d2", "hook_deferred_tool", toolUseID="t2", toolName="Write", toolInput={})


@pytest.mark.parametrize(
    ("entries", "waits"),
    [
        ([CALL, DEFERRED], "t1"),
        ([CALL, DEFERRED, attachment("x", "prompt_snapshot")], "t1"),
        # Another call of the message ran, so the entry lies beside the branch.
        ([CALL, DEFERRED, OTHER_RESULT], "t1"),
        ([CALL, DEFERRED, META], "t1"),
        ([CALL, DEFERRED, INTERRUPTED], "t1"),
        ([CALL, DEFERRED, REWORDED], "t1"),
        ([CALL, DEFERRED, RESULT], None),
        ([CALL, DEFERRED, REQUEST], None),
        ([CALL, DEFERRED, user("p2", None, "more")], None),
        ([CALL, DEFERRED, attachment("q", "queued_command", source_uuid="p2")], None),
        # A crash inside a tool call leaves no such entry.
        ([CALL], None),
        ([CALL, attachment("x", "hook_deferred_tool")], None),
        ([CALL, DEFERRED, LATER], "t2"),
        # The CLI drops the first of two calls.
        ([CALL, DEFERRED, LATER, OTHER_RESULT], None),
        ([CALL, DEFERRED, RESULT, ANSWER, user("p2", None, "more"), LATER], "t2"),
    ],
)
def test_the_last_deferred_call_waits_until_an_entry_names_it_or_a_prompt_follows(
    entries: list[Json], waits: str | None
) -> None:
    found = waiting_call(entries_of_objects([SOURCED, *entries]), ONE)
    assert (found and found.tool_use_id) == waits
    assert found is None or found.session_id == ONE
