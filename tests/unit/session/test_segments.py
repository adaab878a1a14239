"""What is left to do of a segment, by its journal, and decisions as JSON."""

from __future__ import annotations

from typing import Any

import pytest

from bridle._session.agent_plan import AgentPlan
from bridle._session.segments import (
    SegmentRun,
    Step,
    decision_from_json,
    decision_to_json,
    next_step,
    still_waits,
)
from bridle.approvals import PendingApproval
from bridle.errors import (
    BridleError,
    CliNotFoundError,
    OptionsError,
    SessionNotFoundError,
    StoreError,
    UsageError,
)
from bridle.outcomes import OutcomeReason
from bridle.permissions import (
    AddRules,
    Allow,
    AllowAll,
    AllowOnce,
    Answers,
    Deny,
    Edit,
    PermissionRule,
)
from bridle.sessions import MemoryStore
from bridle.sessions._journal import (
    JournalEntry,
    OutcomeEntry,
    PromptEntry,
    ReceivedEntry,
    StoredOutcome,
    UnknownEntry,
)

PENDING = PendingApproval(session_id="s", tool_name="Bash", tool_input={}, tool_use_id="t1")


def prompt(uuid: str, **fields: Any) -> PromptEntry:
    return PromptEntry(uuid=f"e{uuid}", at=0.0, prompt_uuid=uuid, content="x", cwd="/", **fields)


def ended(uuid: str, reason: OutcomeReason, pending: PendingApproval | None = None) -> OutcomeEntry:
    outcome = StoredOutcome(reason=reason, pending=pending)
    return OutcomeEntry(uuid=f"o{uuid}{reason}", at=0.0, prompt_uuid=uuid, outcome=outcome)


COMPLETED = ended("p", OutcomeReason.COMPLETED)
STOPPED = ended("p", OutcomeReason.STOPPED)
WAITS = ended("p", OutcomeReason.TOOL_DEFERRED, PENDING)
RECEIVED = ReceivedEntry(uuid="r", at=0.0, prompt_uuid="p")


@pytest.mark.parametrize(
    ("pending", "journal", "step"),
    [
        (None, [], "start"),
        (None, [UnknownEntry({})], "start"),
        (None, [prompt("p")], "recover"),
        (None, [prompt("p"), STOPPED], "recover"),
        (None, [prompt("p"), COMPLETED], COMPLETED.outcome),
        (None, [prompt("p"), COMPLETED, RECEIVED], COMPLETED.outcome),
        (None, [prompt("p"), STOPPED, prompt("q", continues="p")], "recover"),
        (None, [prompt("p"), WAITS], WAITS.outcome),
        (None, [prompt("p"), COMPLETED, STOPPED], COMPLETED.outcome),
        (None, [prompt("p"), prompt("q"), ended("q", OutcomeReason.COMPLETED)], "recover"),
        (PENDING, [prompt("p"), WAITS], "decide"),
        (PENDING, [prompt("p"), WAITS, prompt("d", resumes="t1")], "recover"),
        (
            PENDING,
            [prompt("p"), WAITS, prompt("d", resumes="t1"), ended("d", OutcomeReason.COMPLETED)],
            StoredOutcome(reason=OutcomeReason.COMPLETED),
        ),
        (
            PENDING,
            [
                prompt("p"),
                WAITS,
                prompt("d", resumes="t1"),
                ended("d", WAITS.outcome.reason, PENDING),
            ],
            "decide",
        ),
        (
            PENDING,
            [
                prompt("d", resumes="t1"),
                ended("d", WAITS.outcome.reason, PENDING),
                prompt("f", resumes="t1"),
            ],
            "recover",
        ),
    ],
)
def test_the_journal_decides_the_next_step_of_a_segment(
    pending: PendingApproval | None, journal: list[JournalEntry | UnknownEntry], step: Step
) -> None:
    assert next_step(pending, journal) == step


def test_a_decision_without_effect_is_recognised_by_its_call() -> None:
    other = PendingApproval(session_id="s", tool_name="Bash", tool_input={}, tool_use_id="t2")
    assert still_waits(PENDING, WAITS.outcome)
    assert not still_waits(PENDING, StoredOutcome(reason=WAITS.outcome.reason, pending=other))
    assert not still_waits(PENDING, COMPLETED.outcome)
    assert not still_waits(None, WAITS.outcome)


@pytest.mark.parametrize(
    "decision",
    [
        Allow(),
        Allow(updated_permissions=(AddRules((PermissionRule("Bash"),)),)),
        AllowAll(),
        Deny("no"),
        Deny("no", interrupt=True),
        Edit({"command": "ls"}),
        Answers({"Which?": ["a", "b"]}),
    ],
)
def test_decisions_survive_as_json(decision: Any) -> None:
    restored: Any = decision_from_json(decision_to_json(decision))
    assert type(restored) is type(decision)
    assert decision_to_json(restored) == decision_to_json(decision)


def test_allow_once_is_stored_as_allow() -> None:
    assert decision_from_json(decision_to_json(AllowOnce())) == Allow(updated_permissions=[])


def test_another_value_is_refused_as_a_decision() -> None:
    with pytest.raises(TypeError):
        decision_to_json("yes")


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (CliNotFoundError(["/nowhere"]), True),
        (OptionsError("prepare", "raised ValueError"), True),
        (StoreError("Fleet", "load", "disk full"), True),
        (SessionNotFoundError("s"), False),
        (UsageError("The call does not wait."), False),
        (OptionsError("pending", "has another tool_input than the transcript"), False),
        (OptionsError("decision", "is invalid"), False),
    ],
    ids=lambda value: getattr(value, "field", type(value).__name__),
)
def test_an_error_at_the_start_of_a_segment_leaves_the_call_waiting(
    error: BridleError, waits: bool
) -> None:
    pending = PendingApproval(session_id="s", tool_name="t", tool_input={}, tool_use_id="t1")

    async def plan() -> AgentPlan:
        raise AssertionError("nothing is started")

    decision = decision_to_json(Allow())
    run = SegmentRun(
        store=MemoryStore(),
        session_id="s",
        prompt="x",
        pending=pending,
        decision=decision,
        make_plan=plan,
        retry=None,
        show=lambda _: None,
    )
    assert run.failed(error).pending == (pending if waits else None)
