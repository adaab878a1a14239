from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest
from tests.support.stored import ONE, assistant, call, entry, result, user

from bridle._core.journal import (
    JournalEntry,
    OutcomeEntry,
    PromptEntry,
    ReceivedEntry,
    ToolCallEntry,
    ToolResultEntry,
    UnknownEntry,
    store_outcome,
)
from bridle._core.recovery import (
    MAX_INPUT_TEXT,
    Continue,
    Finished,
    SendAgain,
    Step,
    plan_recovery,
)
from bridle._core.transcripts import (
    SubagentTranscript,
    Transcript,
    entries_of_objects,
)
from bridle.approvals import PendingApproval
from bridle.outcomes import Outcome, OutcomeReason

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
    assert isinstance(step.content, str)
    return step.content


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


def test_merged_prompts_that_were_cut_off_are_continued_once() -> None:
    added = entry(
        "attachment", "x", None, attachment={"type": "queued_command", "source_uuid": "p2"}
    )
    journal = [sent("p1"), called("t1"), sent("p2")]
    (step,) = steps(journal, transcript(P1, CALL, RESULT, added))
    assert isinstance(step, Continue)
    assert step.prompts == ("p1", "p2")


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


def test_calls_of_a_prompt_with_a_received_outcome_are_not_named() -> None:
    before: list[Any] = [sent("p1"), called("t1"), called("t0", None), ended("p1"), received("p1")]
    (step,) = steps([*before, sent("p2"), called("t3", None)])
    assert '"t1"' not in text_of(step)
    assert '"t0"' not in text_of(step)
    assert '"t3"' in text_of(step)


def test_a_call_that_a_finished_step_has_named_is_not_named_again() -> None:
    journal: list[Any] = [sent("p1"), called("t1"), called("t2"), sent("p2")]
    (first, _) = steps(journal, transcript(P1))
    journal += [sent("c1", text_of(first), continues="p1"), called("t3")]
    (_, second) = steps([*journal, ended("p1")], transcript(P1, user("c1", None), ANSWER))
    assert '"t1"' not in text_of(second)
    assert '"t3"' in text_of(second)
    (again, _) = steps(journal, transcript(P1, user("c1", None)))
    assert all(f'"t{number}"' in text_of(again) for number in (1, 2, 3))


def test_a_long_input_is_cut_and_mentions_of_files_are_not_expanded() -> None:
    long = called("t1", tool_input={"text": "x" * 5000})
    (step,) = steps([sent("p1"), long, called("t2", tool_input={"text": "@/etc/passwd"})])
    assert len(text_of(step)) < 2 * MAX_INPUT_TEXT + 1000
    assert "@" not in text_of(step)
    assert "\\u0040/etc/passwd" in text_of(step)


def test_entries_that_come_late_are_put_in_order() -> None:
    journal = [sent("p1"), called("t1"), ended("p1", OutcomeReason.CLI_EXITED), ended("p1")]
    (step,) = steps(journal[::-1])
    assert isinstance(step, Finished)


def test_unknown_entries_are_ignored() -> None:
    assert steps([UnknownEntry({"type": "new"}), sent("p1", "x")]) == [SendAgain("p1", "x")]


def test_the_plan_has_the_working_directory_of_the_last_prompt() -> None:
    assert plan_recovery([sent("p1")], None).cwd == "/w"
    assert plan_recovery([], None).cwd is None


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
