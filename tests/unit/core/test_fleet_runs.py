"""What a worker does with a run, when it must stop, and when it may take a run over."""

from __future__ import annotations

from math import inf
from typing import Any
from uuid import UUID

import pytest

from bridle._core.fleet_runs import (
    CUT_OFF,
    FREE,
    RELEASE,
    RELOCK,
    Action,
    Decide,
    Ended,
    Ledger,
    Recover,
    RunStatus,
    SeenFor,
    Segment,
    Start,
    Tenure,
    decision_from_json,
    decision_to_json,
    lock_number,
    next_action,
    run_id_of_key,
    seconds_until_affordable,
    segment_id,
    state_of,
    still_waits,
)
from bridle._core.journal import (
    JournalEntry,
    OutcomeEntry,
    PromptEntry,
    ReceivedEntry,
    StoredOutcome,
    UnknownEntry,
)
from bridle.approvals import PendingApproval
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

PENDING = PendingApproval(session_id="s", tool_name="Bash", tool_input={}, tool_use_id="t1")
FIRST = Segment(run_id="r", session_id="s", prompt="x")
DECIDED = Segment(
    run_id="r",
    session_id="s",
    prompt="x",
    number=1,
    kind="decide",
    pending=PENDING,
    decision={"kind": "allow"},
)


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
    ("segment", "journal", "action"),
    [
        (FIRST, [], Start()),
        (FIRST, [UnknownEntry({})], Start()),
        (FIRST, [prompt("p")], Recover()),
        (FIRST, [prompt("p"), STOPPED], Recover()),
        (FIRST, [prompt("p"), COMPLETED], Ended(COMPLETED.outcome)),
        (FIRST, [prompt("p"), COMPLETED, RECEIVED], Ended(COMPLETED.outcome)),
        (FIRST, [prompt("p"), STOPPED, prompt("q", continues="p")], Recover()),
        (FIRST, [prompt("p"), WAITS], Ended(WAITS.outcome)),
        (FIRST, [prompt("p"), COMPLETED, STOPPED], Ended(COMPLETED.outcome)),
        (FIRST, [prompt("p"), prompt("q"), ended("q", OutcomeReason.COMPLETED)], Recover()),
        (DECIDED, [prompt("p"), WAITS], Decide()),
        (DECIDED, [prompt("p"), WAITS, prompt("d", resumes="t1")], Recover()),
        (
            DECIDED,
            [prompt("p"), WAITS, prompt("d", resumes="t1"), ended("d", OutcomeReason.COMPLETED)],
            Ended(StoredOutcome(reason=OutcomeReason.COMPLETED)),
        ),
        (
            DECIDED,
            [
                prompt("p"),
                WAITS,
                prompt("d", resumes="t1"),
                ended("d", WAITS.outcome.reason, PENDING),
            ],
            Decide(),
        ),
        (
            DECIDED,
            [
                prompt("d", resumes="t1"),
                ended("d", WAITS.outcome.reason, PENDING),
                prompt("f", resumes="t1"),
            ],
            Recover(),
        ),
    ],
)
def test_the_journal_decides_what_a_worker_does(
    segment: Segment, journal: list[JournalEntry | UnknownEntry], action: Action
) -> None:
    assert next_action(segment, journal) == action


def test_a_decision_without_effect_is_recognised_by_its_call() -> None:
    other = PendingApproval(session_id="s", tool_name="Bash", tool_input={}, tool_use_id="t2")
    assert still_waits(DECIDED, WAITS.outcome)
    assert not still_waits(DECIDED, StoredOutcome(reason=WAITS.outcome.reason, pending=other))
    assert not still_waits(DECIDED, COMPLETED.outcome)
    assert not still_waits(FIRST, WAITS.outcome)


def test_the_status_of_a_run_follows_from_its_outcome() -> None:
    assert state_of(WAITS.outcome) is RunStatus.WAITING
    assert state_of(COMPLETED.outcome) is RunStatus.COMPLETED
    assert state_of(StoredOutcome(reason=WAITS.outcome.reason)) is RunStatus.FAILED


def test_a_key_has_one_run_in_each_fleet() -> None:
    one = run_id_of_key("a", "pr-12")
    assert str(UUID(one)) == one
    assert UUID(one).version == 5
    assert one == run_id_of_key("a", "pr-12")
    assert len({one, run_id_of_key("a", "pr-13"), run_id_of_key("b", "pr-12")}) == 3


def test_the_first_segment_has_the_id_of_its_run() -> None:
    assert FIRST.id == segment_id("r", 0) == "r"
    assert DECIDED.id == segment_id("r", 1) == "r/1"


def test_a_run_is_final_when_it_has_ended() -> None:
    final = {one for one in RunStatus if one.is_final}
    assert final == {RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED}


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


def test_another_value_is_no_decision() -> None:
    with pytest.raises(TypeError):
        decision_to_json("yes")


def test_the_lock_of_a_worker_is_a_signed_number_of_64_bits() -> None:
    numbers = {lock_number(f"worker-{one}") for one in range(100)}
    assert len(numbers) == 100
    assert min(numbers) >= -(2**63)
    assert max(numbers) < 2**63
    assert min(numbers) < 0 < max(numbers)


def test_a_worker_without_answers_must_stop() -> None:
    tenure = Tenure(100.0)
    assert not tenure.is_over(100.0 + CUT_OFF - 0.1)
    assert tenure.is_over(100.0 + CUT_OFF)
    tenure.confirm(105.0)
    tenure.confirm(103.0)  # an answer to an earlier request
    assert not tenure.is_over(105.0 + CUT_OFF - 0.1)
    assert tenure.is_over(105.0 + CUT_OFF)


def test_a_worker_with_a_file_lock_never_has_to_stop() -> None:
    assert not Tenure(0.0, None).is_over(1e9)


def test_a_worker_has_time_to_stop_before_others_take_its_runs() -> None:
    kill = 0.5  # seconds to notice the deadline and to kill
    assert CUT_OFF + kill < FREE < RELEASE, "also if the server ends the session by itself"
    assert RELOCK < CUT_OFF


def test_runs_are_taken_over_when_a_lock_stays_free() -> None:
    locks = SeenFor(3.0)
    assert locks.due(["a", "b"], 10.0) == []
    assert locks.due(["a"], 12.9) == []
    assert locks.due(["a", "b"], 13.0) == ["a"]
    assert locks.due(["b"], 15.9) == []
    assert locks.due(["b"], 16.0) == ["b"]


def test_a_worker_looks_again_when_a_lock_has_been_free_for_long_enough() -> None:
    locks = SeenFor(3.0)
    assert locks.pause(10.0, 0.5) == 0.5
    locks.due(["a"], 10.0)
    assert locks.pause(10.0, 0.5) == 0.5
    assert locks.pause(12.8, 0.5) == pytest.approx(0.2)
    assert locks.pause(13.0, 0.5) == 0.5, "it could not be taken: not at once again"


def test_costs_are_read_once_except_for_those_of_the_last_minutes() -> None:
    ledger = Ledger(1000.0)
    assert ledger.after(5000.0) == 4000.0
    ledger.add({"a": (4100.0, 1.0), "b": (4999.0, 2.0)}, 5000.0)
    assert ledger.after(5010.0) == 5000.0 - Ledger.OVERLAP
    ledger.add({"b": (4999.0, 2.5), "c": (5005.0, 3.0)}, 5010.0)
    assert sorted(ledger.costs) == [(4100.0, 1.0), (4999.0, 2.5), (5005.0, 3.0)]
    ledger.add({}, 5101.0)
    assert sorted(ledger.costs) == [(4999.0, 2.5), (5005.0, 3.0)]
    assert ledger.after(9000.0) == 8000.0


@pytest.mark.parametrize(
    ("costs", "seconds"),
    [
        ([], 0.0),
        ([(990.0, 4.9)], 0.0),
        ([(990.0, 5.0)], 90.0),
        ([(890.0, 50.0)], 0.0),
        ([(920.0, 2.0), (950.0, 3.0)], 20.0),
        ([(950.0, 4.0), (920.0, 2.0)], 20.0),
        ([(920.0, 2.0), (950.0, 9.0)], 50.0),
        ([(920.0, inf), (950.0, 1.0)], 20.0),
        ([(890.0, inf), (950.0, 1.0)], 0.0),
    ],
)
def test_a_tenant_waits_until_the_window_has_room(
    costs: list[tuple[float, float]], seconds: float
) -> None:
    assert seconds_until_affordable(costs, 5.0, 100.0, 1000.0) == seconds
