from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, pairwise
from typing import Any

import msgspec
import pytest
from tests.support.stored import ONE, assistant, call, entry, result, user

from bridle.approvals import PendingApproval
from bridle.outcomes import Outcome, OutcomeReason
from bridle.sessions._call_keys import CallKeys
from bridle.sessions._journal import (
    JournalEntry,
    OutcomeEntry,
    PromptEntry,
    ReceivedEntry,
    ToolCallEntry,
    ToolResultEntry,
    UnknownEntry,
    store_outcome,
)
from bridle.sessions._recovery import (
    Continue,
    Finished,
    SendAgain,
    Step,
    decided_calls,
    plan_recovery,
)
from bridle.sessions._recovery_texts import MAX_CALLS, MAX_INPUT_TEXT
from bridle.sessions._transcripts.transcript import (
    SubagentTranscript,
    Transcript,
    entries_of_objects,
)

Json = dict[str, Any]
_numbers = count()


def stamp() -> dict[str, Any]:
    number = next(_numbers)
    return {"uuid": f"j{number}", "at": float(number)}


def sent(uuid: str, content: Any = None, **members: Any) -> PromptEntry:
    told = f"prompt {uuid}" if content is None else content
    return PromptEntry(**stamp(), prompt_uuid=uuid, content=told, cwd="/w", **members)


def called(id: str, prompt: str | None = "p1", name: str = "Bash", **members: Any) -> ToolCallEntry:
    given = {"command": id}
    return ToolCallEntry(
        **{
            **stamp(),
            "tool_use_id": id,
            "tool_name": name,
            "tool_input": given,
            "prompt_uuid": prompt,
            "idempotency_key": f"key {id}",
            **members,
        }
    )


def returned(id: str, text: str = "fine", **members: Any) -> ToolResultEntry:
    return ToolResultEntry(**stamp(), tool_use_id=id, text=text, **members)


def ended(
    uuid: str, reason: OutcomeReason = OutcomeReason.COMPLETED, **fields: Any
) -> OutcomeEntry:
    outcome = Outcome[Any](reason=reason, uuid=uuid, **fields)
    return OutcomeEntry(**stamp(), prompt_uuid=uuid, outcome=store_outcome(outcome))


def received(uuid: str) -> ReceivedEntry:
    return ReceivedEntry(**stamp(), prompt_uuid=uuid)


def transcript(*entries: Json, subagents: Sequence[SubagentTranscript] = ()) -> Transcript:
    uuids = [None, *(one["uuid"] for one in entries)]
    linked = [
        {"parentUuid": uuid, **_without(one)} for one, uuid in zip(entries, uuids, strict=False)
    ]
    found = entries_of_objects(linked)
    return Transcript(session_id=ONE, project="-w", entries=found, subagents=tuple(subagents))


def _without(one: Json) -> Json:
    return {key: value for key, value in one.items() if key != "parentUuid" or value is not None}


def said(uuid: str, *content: Json, stop: str = "end_turn") -> Json:
    made = assistant(uuid, None, *content)
    made["message"]["stop_reason"] = stop
    return made


def steps(journal: Sequence[Any], history: Transcript | None = None) -> list[Step]:
    return list(plan_recovery(journal, history).steps)


def text_of(step: Step) -> str:
    assert not isinstance(step, Finished)
    if isinstance(step.content, str):
        return step.content
    blocks: Sequence[Any] = step.content
    return "\n\n".join(block["text"] for block in blocks)


P1 = user("p1", None, "do it")
CALL = said("a1", call("t1"), stop="tool_use")
RESULT = user("r1", None, result("t1"))
ANSWER = said("a2", {"type": "text", "text": "done"})


# ------------------------------------------------------------------------- finished


def test_nothing_is_to_do_without_open_prompts() -> None:
    assert steps([]) == []
    assert steps([sent("p1"), ended("p1"), received("p1")], transcript(P1, ANSWER)) == []
    assert steps([sent("p1"), received("p1")]) == []


def test_an_outcome_of_the_journal_is_returned_whole() -> None:
    (step,) = steps([sent("p1"), ended("p1", text="hello", cost_usd=0.5)])
    assert isinstance(step, Finished)
    assert (step.prompt, step.outcome.text, step.outcome.cost_usd) == ("p1", "hello", 0.5)


@pytest.mark.parametrize(
    "reason", [OutcomeReason.INTERRUPTED, OutcomeReason.MAX_TURNS, OutcomeReason.LIMIT_TOTAL]
)
def test_a_failed_turn_has_finished_too(reason: OutcomeReason) -> None:
    (step,) = steps([sent("p1"), ended("p1", reason)], transcript(P1))
    assert isinstance(step, Finished)
    assert step.outcome.reason is reason


@pytest.mark.parametrize(
    "reason", [OutcomeReason.CLI_EXITED, OutcomeReason.STOPPED, OutcomeReason.START_FAILED]
)
def test_a_turn_that_ended_with_its_process_has_not_finished(reason: OutcomeReason) -> None:
    (step,) = steps([sent("p1"), ended("p1", reason)], transcript(P1))
    assert isinstance(step, Continue)


def test_the_transcript_shows_that_a_turn_had_finished() -> None:
    (step,) = steps([sent("p1")], transcript(P1, CALL, RESULT, ANSWER))
    assert isinstance(step, Finished)
    outcome = step.outcome
    assert (outcome.reason, outcome.text, outcome.uuid) == (OutcomeReason.COMPLETED, "done", "p1")
    assert (outcome.session_id, outcome.cost_usd, outcome.merged_with) == (ONE, None, ())


def test_prompts_that_the_cli_joined_share_their_outcome() -> None:
    joined = user("p2", None, "both", mergedSendUuids=["p1"])
    first, second = steps([sent("p1"), sent("p2")], transcript(joined, ANSWER))
    assert isinstance(first, Finished)
    assert isinstance(second, Finished)
    assert (first.outcome.uuid, first.outcome.merged_with) == ("p1", ("p2",))
    assert (second.outcome.uuid, second.outcome.merged_with) == ("p2", ("p1",))


def test_a_prompt_that_continues_another_one_belongs_to_it() -> None:
    journal = [sent("p1"), sent("c1", "go on", continues="p1"), sent("c2", "x", continues="c1")]
    again = user("c1", None, "go on")
    (step,) = steps(journal, transcript(P1, CALL, again, ANSWER))
    assert isinstance(step, Finished)
    assert (step.prompt, step.outcome.text, step.outcome.merged_with) == ("p1", "done", ())
    (step,) = steps(journal, transcript(P1, CALL, again))
    assert isinstance(step, Continue)
    assert step.prompts == ("p1",)


def test_a_turn_with_a_call_of_a_subagent_that_was_cut_off_has_not_finished() -> None:
    """The answer of a background subagent is still missing."""
    journal = [sent("p1"), called("t9", agent_id="x")]
    (step,) = steps(journal, transcript(P1, ANSWER))
    assert isinstance(step, Continue)
    assert '{"command":"t9"}' in text_of(step)


# ------------------------------------------------------------------------- continued


def test_a_turn_that_was_cut_off_is_continued_and_its_open_calls_are_named() -> None:
    journal = [sent("p1"), called("t1"), returned("t1"), called("t2", name="Write")]
    second = said("a3", call("t2"), stop="tool_use")
    (step,) = steps(journal, transcript(P1, CALL, RESULT, second))
    assert isinstance(step, Continue)
    assert step.prompts == ("p1",)
    assert '- Write {"command":"t2"}' in text_of(step)
    assert '"t1"' not in text_of(step)


def test_a_result_that_the_transcript_lacks_is_quoted() -> None:
    journal = [sent("p1"), called("t1"), returned("t1", "wrote 3 lines"), called("t2"),
               returned("t2", "no", is_error=True, is_cut=True)]  # fmt: skip
    (step,) = steps(journal, transcript(P1))
    assert '- Bash {"command":"t1"}\n  "wrote 3 lines"' in text_of(step)
    assert '- Bash {"command":"t2"}\n  failed: "no" (cut)' in text_of(step)
    assert "not recorded" not in text_of(step)


def test_a_result_that_only_the_transcript_has_counts() -> None:
    (step,) = steps([sent("p1"), called("t1")], transcript(P1, CALL, RESULT))
    assert isinstance(step, Continue)
    assert '"t1"' not in text_of(step)


def test_a_result_that_the_cli_wrote_for_a_call_that_was_cut_off_does_not_count() -> None:
    """CLI 2.1.326 writes it when it resumes the conversation. The journal has the real result."""
    history = transcript(P1, CALL, {**RESULT, "toolDenialKind": "interrupted"})
    (step,) = steps([sent("p1"), called("t1")], history)
    assert isinstance(step, Continue)
    assert "not recorded" in text_of(step)
    assert '- Bash {"command":"t1"}' in text_of(step)
    assert step.recorded == frozenset()
    (step,) = steps([sent("p1"), called("t1"), returned("t1", "wrote 3 lines")], history)
    assert isinstance(step, Continue)
    assert '- Bash {"command":"t1"}\n  "wrote 3 lines"' in text_of(step)
    assert step.recorded == {"t1"}


K = "key of the call"


@pytest.mark.parametrize("has_journal", [True, False])
def test_a_call_whose_repeat_was_done_before_another_crash_is_not_named_as_uncertain(
    has_journal: bool,
) -> None:
    """The result of the repeat is in the journal, or only in the transcript."""
    journal = [sent("p1"), called("t1", idempotency_key=K)]
    (first,) = steps(journal, transcript(P1, CALL))
    assert isinstance(first, Continue)
    journal += [sent("c1", continues="p1", named=first.named)]
    journal += [called("t2", "c1", tool_input={"command": "t1"}, idempotency_key=K)]
    again = [user("c1", None), said("a2", call("t2"), stop="tool_use")]
    (second,) = steps(journal, transcript(P1, CALL, *again))
    assert isinstance(second, Continue)
    assert (second.named, second.recorded) == (("t2",), frozenset())
    assert text_of(second).count('{"command":"t1"}') == 1
    if has_journal:
        (third,) = steps([*journal, returned("t2", "paid")], transcript(P1, CALL, *again))
    else:
        shown = user("r2", None, result("t2"))
        (third,) = steps(journal, transcript(P1, CALL, *again, shown))
    assert isinstance(third, Continue)
    assert third.recorded == {"t1", "t2"}
    assert "not recorded" not in text_of(third)
    assert ('{"command":"t1"}\n  "paid"' in text_of(third)) is has_journal


def test_a_turn_that_ended_after_a_repeated_call_has_finished() -> None:
    journal = [sent("p1"), called("t1", idempotency_key=K), sent("c1", continues="p1")]
    journal += [called("t2", "c1", idempotency_key=K)]
    again = [user("c1", None), said("a2", call("t2"), stop="tool_use")]
    shown = user("r2", None, result("t2"))
    answer = said("a3", {"type": "text", "text": "done"})
    (step,) = steps(journal, transcript(P1, CALL, *again, shown, answer))
    assert isinstance(step, Finished)
    assert step.outcome.text == "done"


def test_a_call_that_is_done_is_not_repeated_although_the_model_does_not_see_its_result() -> None:
    """Only the transcript has the result, on a branch that the conversation has left."""
    left = [P1, CALL, RESULT, said("a9", call("t9"), stop="tool_use")]
    history = transcript(*left)
    beside = {**user("c1", None, "go on"), "parentUuid": "p1"}
    entries = (*history.entries, *entries_of_objects([beside]))
    history = msgspec.structs.replace(history, entries=entries)
    (step,) = steps([sent("p1"), sent("c1", continues="p1"), called("t1")], history)
    assert isinstance(step, Continue)
    assert 'Do not repeat them:\n- Bash {"command":"t1"}\n\n' in text_of(step)
    assert step.recorded == {"t1"}


@pytest.mark.parametrize("denial", [None, "permission-rule"])
def test_an_error_of_an_mcp_tool_that_only_the_transcript_has_does_not_end_its_call(
    denial: str | None,
) -> None:
    """The tool is in the program, which has died. Older CLIs write "Stream closed" then."""
    failed = {**RESULT["message"]["content"][0], "is_error": True, "content": "Stream closed"}
    shown = {**user("r1", None, [failed]), **({} if denial is None else {"toolDenialKind": denial})}
    history = transcript(P1, CALL, shown, said("a3", {"type": "text", "text": "It failed."}))
    journal = [sent("p1"), called("t1", tool_name="mcp__tools__pay")]
    (step,) = steps(journal, history)
    if denial is not None:
        assert isinstance(step, Finished)
        return
    assert isinstance(step, Continue)
    assert "not recorded" in text_of(step)
    assert (step.named, step.recorded) == (("t1",), frozenset())
    # A failure of the tool itself is in the journal. Other tools run in the CLI.
    for known in ([*journal, returned("t1", "no", is_error=True)], [sent("p1"), called("t1")]):
        (step,) = steps(known, history)
        assert isinstance(step, Finished)


def test_a_call_whose_result_has_a_kind_of_a_newer_cli_may_have_run() -> None:
    history = transcript(P1, CALL, {**RESULT, "toolDenialKind": "of a newer CLI"})
    (step,) = steps([sent("p1"), called("t1")], history)
    assert isinstance(step, Continue)
    assert (step.named, step.recorded) == (("t1",), frozenset())


PAY: Json = {"tool_name": "mcp__tools__pay", "tool_input": {"n": 7}, "idempotency_key": K}
DENIED = {
    **user("r2", None, [{**result("t2")[0], "is_error": True, "content": "No answer of a hook"}]),
    "toolDenialKind": "permission-rule",
}


def test_a_repeat_that_was_denied_leaves_its_call_uncertain() -> None:
    """The recovery was killed before its hook could answer: the first attempt may have run."""
    cut_off = {**RESULT, "toolDenialKind": "interrupted"}
    history = transcript(
        P1,
        CALL,
        cut_off,
        user("c1", None, "go on"),
        said("a2", call("t2"), stop="tool_use"),
        DENIED,
    )
    journal = [sent("p1"), called("t1", **PAY), sent("c1", continues="p1", named=("t1",))]
    journal += [called("t2", "c1", **PAY)]
    (step,) = steps(journal, history)
    assert isinstance(step, Continue)
    assert "not recorded" in text_of(step)
    assert (step.named, step.recorded) == (("t2",), frozenset())
    # The result of the first attempt may reach the journal late.
    (step,) = steps([*journal, returned("t1", "paid 7")], history)
    assert isinstance(step, Continue)
    assert '- mcp__tools__pay {"n":7}\n  "paid 7"' in text_of(step)
    assert step.recorded == {"t1", "t2"}


def test_a_turn_that_the_model_ended_after_a_denial_has_ended() -> None:
    cut_off = {**RESULT, "toolDenialKind": "interrupted"}
    repeat = said("a2", call("t2"), stop="tool_use")
    history = transcript(P1, CALL, cut_off, user("c1", None, "go on"), repeat, DENIED, said("a3"))
    journal = [sent("p1"), called("t1", **PAY), sent("c1", continues="p1", named=("t1",))]
    (step,) = steps([*journal, called("t2", "c1", **PAY)], history)
    assert isinstance(step, Finished)


def test_a_repeat_after_a_denial_that_may_have_run_is_named() -> None:
    """The transcript is behind: it has the denial, and not the turn after it."""
    repeat = said("a2", call("t2"), stop="tool_use")
    history = transcript(P1, CALL, user("c1", None, "go on"), repeat, DENIED, said("a3"))
    journal = [sent("p1"), called("t1", **PAY), sent("c1", continues="p1", named=("t1",))]
    journal += [called("t2", "c1", **PAY), sent("c2", continues="p1", named=("t2",))]
    (step,) = steps([*journal, called("t3", "c2", **PAY)], history)
    assert isinstance(step, Continue)
    assert step.named == ("t3",)


def test_a_call_of_which_no_attempt_ran_is_not_named() -> None:
    history = transcript(P1, said("a1", call("t2"), stop="tool_use"), DENIED)
    (step,) = steps([sent("p1"), called("t2", **PAY)], history)
    assert isinstance(step, Continue)
    assert (step.named, step.recorded) == ((), frozenset({"t2"}))


def test_a_model_that_sees_only_the_error_of_a_lost_attempt_reads_that_the_call_is_done() -> None:
    """The repeat was done, and the transcript of that recovery was lost with its process."""
    failed = {**RESULT["message"]["content"][0], "is_error": True, "content": "Stream closed"}
    history = transcript(P1, CALL, user("r1", None, [failed]))
    journal = [sent("p1"), called("t1", **PAY), sent("c1", continues="p1", named=("t1",))]
    journal += [called("t2", "c1", **PAY), returned("t2", "paid 7")]
    (step,) = steps(journal, history)
    assert isinstance(step, Continue)
    assert "not recorded" not in text_of(step)
    assert '- mcp__tools__pay {"n":7}\n  "paid 7"' in text_of(step)
    assert step.recorded == {"t1", "t2"}


def test_a_call_that_was_stopped_when_the_session_closed_is_uncertain() -> None:
    """The program was killed before the turn had an outcome."""
    stopped = returned("t1", "the session is closing", is_error=True, is_interrupted=True)
    journal = [sent("p1"), called("t1"), stopped]
    (step,) = steps(journal, transcript(P1, CALL))
    assert isinstance(step, Continue)
    assert "not recorded" in text_of(step)
    assert (step.named, step.recorded) == (("t1",), frozenset())
    (step,) = steps([*journal, returned("t1", "wrote 3 lines")], transcript(P1, CALL))
    assert '- Bash {"command":"t1"}\n  "wrote 3 lines"' in text_of(step)


def test_a_call_that_was_stopped_in_a_turn_that_has_ended_is_not_named() -> None:
    """The model has read that the user stopped it. An equal call of a later prompt is a new one."""
    stopped = returned("t1", "rejected", is_error=True, is_interrupted=True)
    journal = [sent("p1"), called("t1"), stopped, ended("p1", OutcomeReason.INTERRUPTED)]
    history = transcript(P1, CALL, {**RESULT, "toolDenialKind": "user-rejected"})
    first, second = steps([*journal, sent("p2")], history)
    assert isinstance(first, Finished)
    assert isinstance(second, SendAgain)
    assert (text_of(second), second.named) == ("prompt p2", ())
    assert second.recorded == {"t1"}


@pytest.mark.parametrize("has_result", [True, False])
def test_an_interrupt_ends_a_turn_whose_call_was_stopped(has_result: bool) -> None:
    """The journal has no outcome. Without a result of the call, the transcript may be behind."""
    shown = {**RESULT, "toolDenialKind": "user-rejected"}
    interrupted = user("x", None, "[Request interrupted by user for tool use]")
    results = [shown] if has_result else []
    (step,) = steps([sent("p1"), called("t1")], transcript(P1, CALL, *results, interrupted))
    reason = step.outcome.reason if isinstance(step, Finished) else None
    assert reason is (OutcomeReason.INTERRUPTED if has_result else None)


def test_a_step_has_the_calls_with_a_result_wherever_it_is() -> None:
    journal = [sent("p1"), called("t1"), called("t2"), returned("t2"), called("t3")]
    (step,) = steps(journal, transcript(P1, CALL, RESULT))
    assert isinstance(step, Continue)
    assert step.recorded == {"t1", "t2"}


def test_calls_of_a_subagent_are_named_unless_the_model_has_its_answer() -> None:
    journal = [sent("p1"), called("task", name="Task"), called("t9", agent_id="x"), returned("t9")]
    inside = entries_of_objects([user("r9", None, result("t9"))])
    inner = SubagentTranscript(agent_id="x", tool_use_id="task", entries=inside)
    task = said("a1", call("task"), stop="tool_use")
    (step,) = steps(journal, transcript(P1, task, subagents=[inner]))
    assert "- Task" in text_of(step)
    assert '{"command":"t9"}\n  "fine"' in text_of(step)
    answered = transcript(P1, task, user("r1", None, result("task")), subagents=[inner])
    (step,) = steps([*journal, returned("task")], answered)
    assert '"t9"' not in text_of(step)


def test_a_turn_that_others_followed_is_continued_with_its_prompt() -> None:
    """The program went on without a recovery."""
    blocks = [{"type": "text", "text": "translate @book"}, {"type": "image", "source": {}}]
    journal = [sent("p1", blocks), called("t1"), ended("p1", OutcomeReason.CLI_EXITED)]
    later = (user("p2", None, "another task"), ANSWER)
    (step,) = steps([*journal, sent("p2"), received("p2")], transcript(P1, CALL, *later))
    assert isinstance(step, Continue)
    assert "earlier prompt" in text_of(step)
    assert text_of(step).endswith('\n- "translate \\u0040book"')
    (step,) = steps(journal, transcript(P1, CALL))
    assert "earlier prompt" not in text_of(step)


def test_merged_prompts_that_were_cut_off_are_continued_once() -> None:
    added = entry(
        "attachment", "x", None, attachment={"type": "queued_command", "source_uuid": "p2"}
    )
    journal = [sent("p1"), called("t1"), sent("p2")]
    (step,) = steps(journal, transcript(P1, CALL, RESULT, added))
    assert isinstance(step, Continue)
    assert step.prompts == ("p1", "p2")


def test_merged_prompts_that_were_continued_together_keep_their_outcome() -> None:
    """The recovery was killed after it had written the outcome of the first one."""
    joined = user("p2", None, "both", mergedSendUuids=["p1"])
    journal: list[Any] = [sent("p1"), sent("p2"), called("t1")]
    (step,) = steps(journal, transcript(joined, CALL))
    assert isinstance(step, Continue)
    journal.append(sent("c1", continues="p1", together_with=step.prompts[1:], named=step.named))
    history = transcript(joined, CALL, user("c1", None, "go on"), ANSWER)
    journal.append(sent("c2", "correct it", continues="p1"))
    journal.append(ended("p1", text="both done", cost_usd=0.5))
    for more in ([], [received("p1")]):
        *_, last = found = steps([*journal, *more], history)
        assert [one.prompts for one in found] == [("p1",), ("p2",)][len(more) :]
        assert isinstance(last, Finished)
        assert (last.outcome.uuid, last.outcome.merged_with) == ("p2", ("p1",))
        assert (last.outcome.text, last.outcome.cost_usd) == ("both done", 0.5)
    (again,) = steps(journal[:-1], transcript(joined, CALL, user("c1", None, "go on")))
    assert isinstance(again, Continue)
    assert again.prompts == ("p1", "p2")


def test_a_prompt_on_another_branch_is_repeated_in_the_new_prompt() -> None:
    """Its uuid cannot be used again, and the model does not see it."""
    other = {**user("p2", None, "elsewhere"), "parentUuid": "gone"}
    last = {"type": "last-prompt", "leafUuid": "a2", "uuid": "l1"}
    history = transcript(P1, ANSWER, other, last)
    (step,) = steps([sent("p2", "what was asked")], history)
    assert isinstance(step, Continue)
    assert text_of(step).endswith("what was asked")


# ------------------------------------------------------------------------- sent again


def test_a_prompt_that_is_nowhere_is_sent_again_as_it_was() -> None:
    assert steps([sent("p1", "/compact")]) == [SendAgain("p1", "/compact")]
    assert steps([sent("p2", "more")], transcript(P1, ANSWER)) == [SendAgain("p2", "more")]


def test_a_prompt_that_is_sent_again_names_the_calls_before_it() -> None:
    (step,) = steps([sent("p1", "do it"), called("t1")])
    assert isinstance(step, SendAgain)
    assert "may have happened" in text_of(step)
    assert '- Bash {"command":"t1"}' in text_of(step)
    assert text_of(step).endswith("\n\ndo it")


def test_the_notice_and_a_slash_command_are_two_blocks() -> None:
    """The CLI expands a command only at the start of a block."""
    other = {**user("p2", None, "elsewhere"), "parentUuid": "gone"}
    last = {"type": "last-prompt", "leafUuid": "a2", "uuid": "l1"}
    for history, uuid in ((None, "p1"), (transcript(P1, ANSWER, other, last), "p2")):
        (step,) = steps([sent(uuid, "/deploy prod"), called("t1", uuid)], history)
        assert not isinstance(step, Finished)
        blocks: Any = step.content
        assert "may have happened" in blocks[0]["text"]
        assert blocks[1:] == [{"type": "text", "text": "/deploy prod"}]


def test_blocks_are_sent_again_after_the_notice() -> None:
    blocks = [{"type": "text", "text": "look"}, {"type": "image", "source": {}}]
    (step,) = steps([sent("p1", blocks), called("t1")])
    assert isinstance(step, SendAgain)
    assert not isinstance(step.content, str)
    notice: Any = step.content[0]
    assert "may have happened" in notice["text"]
    assert list(step.content[1:]) == blocks


def test_only_the_first_prompt_names_the_calls() -> None:
    first, second = steps([sent("p1"), sent("p2"), called("t1"), called("t2", "p2")])
    assert '"t1"' in text_of(first)
    assert '"t2"' in text_of(first)
    assert text_of(second) == "prompt p2"


# ------------------------------------------------------------------------- the notice


def test_a_result_of_a_prompt_with_a_received_outcome_is_not_quoted() -> None:
    before: list[Any] = [sent("p1"), called("t1"), called("t0", None), returned("t0")]
    before += [returned("t1"), ended("p1"), received("p1"), sent("p2"), called("t3", None)]
    (step,) = steps([*before, returned("t3")])
    assert isinstance(step, SendAgain)
    assert step.named == ("t3",)


def test_a_call_without_a_result_is_named_although_its_prompt_was_received() -> None:
    history = transcript(P1, ANSWER, user("p2", None, "second"))
    end = [ended("p1"), received("p1")]
    # Of a background subagent that went on.
    (step,) = steps([sent("p1"), *end, sent("p2"), called("t1", agent_id="x")], history)
    assert '- Bash {"command":"t1"}' in text_of(step)
    # Of a turn that the CLI began.
    (step,) = steps([sent("p1"), ended("p1"), called("t1", None), end[1], sent("p2")], history)
    assert '- Bash {"command":"t1"}' in text_of(step)
    # Of a prompt that the program gave up while it was sent.
    (step,) = steps([sent("p1"), received("p1"), called("t1"), sent("p2")], history)
    assert '- Bash {"command":"t1"}' in text_of(step)


def test_a_call_that_a_finished_step_has_named_is_not_named_again() -> None:
    journal: list[Any] = [sent("p1"), called("t1"), called("t2"), sent("p2")]
    (first, _) = steps(journal, transcript(P1))
    assert isinstance(first, Continue)
    assert first.named == ("t1", "t2")
    journal += [sent("c1", "go on", continues="p1", named=first.named), called("t3")]
    (_, second) = steps([*journal, ended("p1")], transcript(P1, user("c1", None), ANSWER))
    assert '"t1"' not in text_of(second)
    assert '"t3"' in text_of(second)
    (again, _) = steps(journal, transcript(P1, user("c1", None)))
    assert all(f'"t{number}"' in text_of(again) for number in (1, 2, 3))


def test_a_prompt_that_the_conversation_lacks_has_named_nothing() -> None:
    """The model never got it: its CLI did not start, or a hook blocked it."""
    journal: list[Any] = [sent("p1"), called("t1"), sent("c1", continues="p1", named=("t1",))]
    journal += [ended("p1", OutcomeReason.API_ERROR), received("p1"), sent("p2")]
    (step,) = steps(journal, transcript(P1))
    assert isinstance(step, SendAgain)
    assert step.named == ("t1",)
    (step,) = steps(journal, transcript(P1, user("c1", None, "go on")))
    assert isinstance(step, SendAgain)
    assert step.named == ()


def test_an_equal_call_of_a_later_crash_is_named() -> None:
    deploy = {"command": "make deploy"}
    journal: list[Any] = [sent("p1"), called("t1", tool_input=deploy)]
    (first,) = steps(journal, transcript(P1))
    assert isinstance(first, Continue)
    journal += [sent("c1", text_of(first), continues="p1", named=first.named), ended("p1")]
    journal += [received("p1"), sent("p2"), called("t2", "p2", tool_input=deploy)]
    (second,) = steps(journal, transcript(P1, ANSWER, user("p2", None, "again")))
    assert '- Bash {"command":"make deploy"}' in text_of(second)


def test_a_prompt_of_the_program_names_no_call() -> None:
    quoted = 'Please run:\n- Bash {"command":"t1"}'
    (step,) = steps([sent("p0", quoted), ended("p0"), received("p0"), sent("p1"), called("t1")])
    assert isinstance(step, SendAgain)
    assert step.named == ("t1",)


def test_a_long_input_is_cut_and_mentions_of_files_are_not_expanded() -> None:
    long = called("t1", tool_input={"text": "x" * 5000})
    (step,) = steps([sent("p1"), long, called("t2", tool_input={"text": "@/etc/passwd"})])
    assert len(text_of(step)) < 2 * MAX_INPUT_TEXT + 1000
    assert "@" not in text_of(step)
    assert "\\u0040/etc/passwd" in text_of(step)


@pytest.mark.parametrize("is_done", [True, False])
def test_the_notice_has_a_limit_and_counts_the_calls_that_it_does_not_name(is_done: bool) -> None:
    long = {"text": "x" * 5000}
    calls = [called(f"t{n}", agent_id="x", tool_input=long) for n in range(MAX_CALLS + 50)]
    calls += [called(f"w{n}", agent_id="x", name="Write") for n in range(7)]
    results = [returned(one.tool_use_id, "y" * 4000) for one in calls] if is_done else []
    (step,) = steps([sent("p1"), *calls, *results], transcript(P1))
    assert isinstance(step, Continue)
    assert len(text_of(step)) < 70_000
    assert "- and 57 more, not listed here: 57 Bash" in text_of(step)
    assert text_of(step).count('- Bash {"text":"xxx') == MAX_CALLS - 7
    assert step.named == tuple(one.tool_use_id for one in calls[57:])
    assert '- Write {"command":"w6"}' in text_of(step)


def test_calls_that_a_notice_has_counted_are_named_in_the_next_one() -> None:
    calls = [called(f"t{n}") for n in range(MAX_CALLS + 1)]
    (step,) = steps([sent("p1"), *calls], transcript(P1))
    assert isinstance(step, Continue)
    journal = [sent("p1"), *calls, sent("c1", continues="p1", named=step.named), ended("p1")]
    _, second = steps([*journal, sent("p2")], transcript(P1, user("c1", None), ANSWER))
    assert isinstance(second, SendAgain)
    assert second.named == ("t0",)


@pytest.mark.parametrize("is_main", [True, False])
def test_the_newest_results_are_quoted(is_main: bool) -> None:
    calls = [called(f"t{n}", agent_id=None if is_main else "x") for n in range(10)]
    results = [returned(f"t{n}", "y" * 4000) for n in range(10)]
    (step,) = steps([sent("p1"), *calls, *results], transcript(P1))
    lines = text_of(step).splitlines()
    quoted = [above for above, line in pairwise(lines) if "yyy" in line]
    assert quoted == [f'- Bash {{"command":"t{n}"}}' for n in range(6, 10)]


def test_calls_of_the_main_agent_are_listed_before_those_of_subagents_are_left_out() -> None:
    calls = [called("m"), *(called(f"t{n}", agent_id="x") for n in range(MAX_CALLS))]
    results = [returned(one.tool_use_id) for one in calls]
    (step,) = steps([sent("p1"), *calls, *results], transcript(P1))
    assert isinstance(step, Continue)
    assert "m" in step.named
    assert "t0" not in step.named
    assert "- and 1 more, not listed here: 1 Bash" in text_of(step)


def test_results_of_the_main_agent_are_quoted_before_those_of_subagents() -> None:
    calls = [called(f"t{n}", agent_id="x") for n in range(10)]
    results = [returned(f"t{n}", "y" * 4000) for n in range(10)]
    (step,) = steps([sent("p1"), *calls, *results, called("m"), returned("m")], transcript(P1))
    text = text_of(step)
    assert '- Bash {"command":"m"}\n  "fine"' in text
    assert all(f'- Bash {{"command":"t{n}"}}' in text for n in range(10))
    assert 0 < text.count("y" * 4000) < 10


def test_entries_that_come_late_are_put_in_order() -> None:
    journal = [sent("p1"), called("t1"), ended("p1", OutcomeReason.CLI_EXITED), ended("p1")]
    (step,) = steps(journal[::-1])
    assert isinstance(step, Finished)


@pytest.mark.parametrize("skew", [-3600.0, 3600.0])
def test_the_clock_of_another_machine_does_not_matter(skew: float) -> None:
    journal = [sent("p1"), called("t1"), ended("p1", OutcomeReason.CLI_EXITED)]
    other = [sent("c1", continues="p1"), ended("p1"), sent("p2")]
    journal += [msgspec.structs.replace(one, at=one.at + skew) for one in other]
    first, second = steps(journal, transcript(P1, CALL))
    assert isinstance(first, Finished)
    assert (first.prompt, second.prompts) == ("p1", ("p2",))


def test_unknown_entries_are_ignored() -> None:
    assert steps([UnknownEntry({"type": "new"}), sent("p1", "x")]) == [SendAgain("p1", "x")]


# ------------------------------------------------------------------------- approvals

PENDING = PendingApproval(
    session_id=ONE, tool_name="Bash", tool_input={"command": "t1"}, tool_use_id="t1"
)
DEFERRED = entry(
    "attachment", "d1", None,
    attachment={"type": "hook_deferred_tool", "toolUseID": "t1", "toolName": "Bash",
                "toolInput": {"command": "t1"}},
)  # fmt: skip


def test_a_call_that_waits_for_approval_is_not_continued() -> None:
    for journal in (
        [sent("p1"), ended("p1", OutcomeReason.TOOL_DEFERRED, pending=PENDING)],
        [sent("p1")],
    ):
        (step,) = steps(journal, transcript(P1, CALL, DEFERRED))
        assert isinstance(step, Finished)
        assert step.outcome.reason is OutcomeReason.TOOL_DEFERRED
        assert step.outcome.pending is not None
        assert step.outcome.pending.tool_use_id == "t1"


def deferred_then_resumed() -> list[JournalEntry]:
    pending = ended("p1", OutcomeReason.TOOL_DEFERRED, pending=PENDING)
    resumed = PromptEntry(**stamp(), prompt_uuid="d2", content=None, cwd="/w", resumes="t1")
    return [sent("p1"), pending, received("p1"), resumed]


def test_a_decision_without_effect_leaves_the_call_waiting() -> None:
    (step,) = steps(deferred_then_resumed(), transcript(P1, CALL, DEFERRED))
    assert isinstance(step, Finished)
    assert (step.prompt, step.outcome.pending) == ("d2", PENDING)
    assert step.outcome.reason is OutcomeReason.TOOL_DEFERRED


def test_an_approved_call_that_was_cut_off_is_continued() -> None:
    journal = [*deferred_then_resumed(), called("t1", "d2")]
    (step,) = steps(journal, transcript(P1, CALL, DEFERRED))
    assert isinstance(step, Continue)
    assert step.prompts == ("d2",)
    assert '- Bash {"command":"t1"}' in text_of(step)


def test_a_resumed_turn_that_had_finished_is_not_continued() -> None:
    journal = [*deferred_then_resumed(), called("t1", "d2"), returned("t1")]
    (step,) = steps(journal, transcript(P1, CALL, DEFERRED, RESULT, ANSWER))
    assert isinstance(step, Finished)
    assert (step.prompt, step.outcome.text) == ("d2", "done")


def waiting(journal: Sequence[Any], history: Transcript | None = None) -> str | None:
    pending = plan_recovery(journal, history).waiting
    return None if pending is None else pending.tool_use_id


P2 = user("p2", None, "another task")
LAST = ended("p1", OutcomeReason.TOOL_DEFERRED, pending=PENDING)


def test_a_call_waits_although_its_outcome_is_not_in_the_journal() -> None:
    """The program died before it could write it."""
    history = transcript(P1, CALL, DEFERRED)
    assert waiting([sent("p0"), sent("p1")], history) == "t1"
    assert waiting([], history) == "t1"


def test_a_waiting_call_of_the_journal_has_all_fields() -> None:
    plan = plan_recovery([sent("p1"), LAST], transcript(P1, CALL, DEFERRED))
    assert plan.waiting == PENDING


@pytest.mark.parametrize("reason", [OutcomeReason.TOOL_DEFERRED, OutcomeReason.EXECUTION_ERROR])
def test_a_call_of_the_journal_waits_at_the_end_of_the_conversation(reason: OutcomeReason) -> None:
    """The last entries of the transcript may be missing."""
    journal = [sent("p0"), sent("p1"), ended("p1", reason, pending=PENDING), received("p1")]
    for history in (transcript(P1, CALL), transcript(P1)):
        assert waiting(journal, history) == "t1"
    # Nobody can resume a call without its conversation.
    assert waiting(journal, None) is None
    # An outcome of an earlier turn that reached the store late.
    assert waiting([*journal, ended("p0")], transcript(P1, CALL, DEFERRED)) == "t1"


def test_a_decision_without_effect_leaves_the_call_at_the_end() -> None:
    assert waiting(deferred_then_resumed(), transcript(P1, CALL, DEFERRED)) == "t1"
    assert waiting(deferred_then_resumed(), transcript(P1, CALL)) == "t1"


def test_a_decided_call_does_not_wait() -> None:
    history = transcript(P1, CALL, DEFERRED)
    journal = [sent("p1"), LAST]
    assert waiting([*journal, called("t1")], history) is None
    assert waiting([*journal, returned("t1")], history) is None
    assert waiting(journal, transcript(P1, CALL, DEFERRED, RESULT)) is None


def test_an_outcome_that_was_not_received_has_no_call_that_another_program_decided() -> None:
    history = transcript(P1, CALL, DEFERRED)
    deferral = [sent("p1"), ended("p1", OutcomeReason.TOOL_DEFERRED, pending=PENDING)]
    waits, decided = steps(deferral, history), steps([*deferral, called("t1")], history)
    for (step,), pending in ((waits, PENDING), (decided, None)):
        assert isinstance(step, Finished)
        assert step.outcome.reason is OutcomeReason.TOOL_DEFERRED
        assert step.outcome.pending == pending


def test_a_call_with_a_prompt_after_it_does_not_wait() -> None:
    """The CLI has dropped it. Its prompt may have ended with its process."""
    journal = [sent("p1"), LAST, received("p1"), sent("p2")]
    for before in ((P1, CALL, DEFERRED), (P1, CALL), (P1,), ()):
        assert waiting(journal, transcript(*before, P2, said("a3", stop="tool_use"))) is None
    assert waiting([*journal, ended("p2")]) is None
    added = {"type": "queued_command", "source_uuid": "p2"}
    queued = entry("attachment", "x", None, attachment=added)
    assert waiting(journal, transcript(P1, CALL, DEFERRED, queued)) is None
    # The prompt did not reach the CLI.
    assert waiting(journal, transcript(P1, CALL, DEFERRED)) == "t1"


def test_the_last_of_several_deferred_calls_waits() -> None:
    other = msgspec.structs.replace(PENDING, tool_use_id="t2")
    journal = [sent("p1"), LAST, received("p1"), sent("p2")]
    journal.append(ended("p2", OutcomeReason.TOOL_DEFERRED, pending=other))
    second = said("a3", call("t2"), stop="tool_use")
    assert waiting(journal, transcript(P1, CALL, P2, second)) == "t2"
    assert waiting(journal[::-1], transcript(P1, CALL, P2, second)) == "t2"


def test_a_call_waits_although_the_transcript_lacks_its_turn() -> None:
    """The program died before it copied the turn. The turn before it has an end."""
    before = (user("p0", None, "first"), said("a0", {"type": "text", "text": "hi"}))
    earlier = [sent("p0"), ended("p0"), received("p0")]
    journal = [*earlier, sent("p1"), sent("p2"), LAST]
    assert waiting(journal, transcript(*before)) == "t1"
    assert waiting([*journal, sent("p3")], transcript(*before)) == "t1"
    # The conversation went on.
    assert waiting(journal, transcript(*before, P1, CALL, DEFERRED, RESULT, ANSWER)) is None
    assert waiting([*journal, sent("p3")], transcript(*before, user("p3", None), ANSWER)) is None


def test_a_call_on_another_branch_does_not_wait() -> None:
    """The program that wrote the branch may have had no journal."""
    first = (user("p0", None, "first"), said("a0"))
    branch = (user("p5", "a0", "other"), said("a5"))
    journal = [sent("p0"), ended("p0"), received("p0"), sent("p1"), LAST, received("p1")]
    assert waiting(journal, transcript(*first, P1, CALL, DEFERRED, *branch)) is None


def test_a_second_call_of_a_resumed_turn_waits_although_the_transcript_lacks_it() -> None:
    other = msgspec.structs.replace(PENDING, tool_use_id="t2")
    second = ended("d2", OutcomeReason.TOOL_DEFERRED, pending=other)
    journal = [*deferred_then_resumed(), called("t1", "d2"), returned("t1"), second]
    assert waiting(journal, transcript(P1, CALL, DEFERRED)) == "t2"


def test_a_call_whose_decision_has_an_outcome_does_not_wait() -> None:
    """The transcript may lack the result of a call that was denied."""
    history = transcript(P1, CALL, DEFERRED)
    journal = deferred_then_resumed()
    denied = [*journal, ended("d2"), received("d2"), sent("p2")]
    assert waiting(denied, history) is None
    assert decided_calls(denied) == {"t1"}
    assert [type(step) for step in steps(denied, history)] == [SendAgain]
    # The turn ended with its process, or the call was deferred again.
    for outcome in (
        ended("d2", OutcomeReason.CLI_EXITED),
        ended("d2", OutcomeReason.TOOL_DEFERRED, pending=PENDING),
    ):
        assert waiting([*journal, outcome], history) == "t1"
        assert decided_calls([*journal, outcome]) == set()


# ---------------------------------------------------------------- long journals


def executed(work: Callable[[], object]) -> int:
    """How many lines of Python are executed, counting each round of a loop in a line."""
    lines = 0

    def trace(*_: object) -> Any:
        nonlocal lines
        lines += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


def long_journal(prompts: int, *, is_received: bool) -> list[Any]:
    journal: list[Any] = []
    for number in range(prompts):
        prompt, id = f"p{number}", f"c{number}"
        journal += [sent(prompt), called(id, prompt), returned(id), ended(prompt)]
        journal += [received(prompt)] if is_received else []
    return journal


@pytest.mark.parametrize("is_received", [True, False])
@pytest.mark.parametrize("read", [CallKeys, lambda journal, _: plan_recovery(journal, None)])
def test_reading_a_journal_takes_steps_in_proportion_to_its_length(
    read: Callable[..., object], is_received: bool
) -> None:
    short, long = (long_journal(prompts, is_received=is_received) for prompts in (100, 400))
    counted = [executed(partial(read, journal, ())) for journal in (short, long)]
    assert counted[1] < 5 * counted[0]
