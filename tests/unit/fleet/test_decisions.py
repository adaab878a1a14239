"""What a worker does with a run, when it must stop, and when it may take a run over."""

from __future__ import annotations

from math import inf
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec import structs

from bridle.approvals import PendingApproval
from bridle.fleet._decisions import (
    CUT_OFF,
    FREE,
    GIVE_UP,
    LONGEST_BACKOFF,
    RELEASE,
    RELOCK,
    Crashes,
    Ledger,
    RunStatus,
    SeenFor,
    Segment,
    Tenure,
    different_settings,
    head_of,
    ids_of_key,
    is_undecided,
    lock_number,
    seconds_until_affordable,
    segment_id,
    state_of,
)
from bridle.outcomes import OutcomeReason
from bridle.sessions._journal import (
    StoredOutcome,
)

PENDING = PendingApproval(session_id="s", tool_name="Bash", tool_input={}, tool_use_id="t1")
LONG = "word " * 4000


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("x" * 10_000, None),
        (LONG, LONG[:1000]),
        ([{"type": "text", "text": "short"}], None),
        ([{"type": "text", "text": LONG}], [{"type": "text", "text": LONG[:1000]}]),
        (
            [{"type": "image", "data": LONG}, {"type": "text", "text": "Look"}, {"type": "x"}],
            [{"type": "text", "text": "Look"}],
        ),
        (
            [{"type": "text", "text": LONG[:999]}, *[{"type": "text", "text": LONG}] * 2],
            [{"type": "text", "text": LONG[:999]}, {"type": "text", "text": LONG[:1]}],
        ),
        ([{"type": "text", "text": 1}, {"data": LONG}], []),
    ],
)
def test_the_head_of_a_segment_has_the_beginning_of_a_long_prompt(
    prompt: Any, expected: Any
) -> None:
    whole = structs.replace(DECIDED, prompt=prompt, metadata={"case": 7})
    head = head_of(whole)
    if expected is None:
        assert head is None
        return
    assert head is not None
    assert len(head) < 2000
    found = msgspec.json.decode(head, type=Segment)
    assert found == structs.replace(whole, prompt=expected, pending=None, decision=None)


def test_a_segment_with_long_metadata_has_no_head() -> None:
    assert head_of(structs.replace(FIRST, prompt=LONG, metadata={"long": LONG})) is None


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


@pytest.mark.parametrize(
    ("segment", "reason", "pending", "expected"),
    [
        (DECIDED, OutcomeReason.EXECUTION_ERROR, PENDING, True),
        (DECIDED, OutcomeReason.START_FAILED, PENDING, True),
        (DECIDED, OutcomeReason.START_FAILED, None, False),
        # A hook in the settings deferred the call again.
        (DECIDED, OutcomeReason.TOOL_DEFERRED, PENDING, False),
        (DECIDED, OutcomeReason.COMPLETED, None, False),
        (FIRST, OutcomeReason.START_FAILED, None, False),
    ],
)
def test_a_decision_without_effect_is_left_to_another_worker(
    segment: Segment, reason: OutcomeReason, pending: PendingApproval | None, expected: bool
) -> None:
    assert is_undecided(segment, StoredOutcome(reason=reason, pending=pending)) is expected


def test_the_status_of_a_run_follows_from_its_outcome() -> None:
    waits = StoredOutcome(reason=OutcomeReason.TOOL_DEFERRED, pending=PENDING)
    assert state_of(waits) is RunStatus.WAITING
    assert state_of(StoredOutcome(reason=OutcomeReason.COMPLETED)) is RunStatus.COMPLETED
    assert state_of(StoredOutcome(reason=OutcomeReason.TOOL_DEFERRED)) is RunStatus.FAILED


def test_a_key_has_one_run_for_each_tenant_of_each_fleet() -> None:
    shared, own = ids_of_key("a", "pr-12", "acme")
    for one in (shared, own):
        assert str(UUID(one)) == one
        assert UUID(one).version == 5
    assert (shared, own) == ids_of_key("a", "pr-12", "acme")
    others = [
        ids_of_key("a", "pr-12", None),
        ids_of_key("a", "pr-12", "globex"),
        ids_of_key("a", "pr-13", "acme"),
        ids_of_key("b", "pr-12", "acme"),
    ]
    assert len({own, *(one for _, one in others)}) == 5
    assert [one == shared for one, _ in others] == [True, True, False, False]


def test_the_id_of_a_key_without_a_tenant_is_that_of_older_versions() -> None:
    assert ids_of_key("default", "pr-12", None)[0] == "0a7f961b-f049-57ca-b3a9-8f7c4b082f4c"


def first(**changes: Any) -> Segment:
    given: dict[str, Any] = {"prompt": "x", "start": {}, **changes}
    return Segment(run_id="r", session_id="s", **given)


@pytest.mark.parametrize(
    ("stored", "wanted", "expected"),
    [
        ({}, {}, []),
        ({"metadata": {"a": 1}}, {"metadata": {"a": 1.0}}, []),
        ({}, {"prompt": "y"}, ["prompt"]),
        ({}, {"priority": 1, "metadata": {"a": 1}}, ["priority", "metadata"]),
        ({}, {"start": {"delay": 1.0}}, ["delay"]),
        ({"start": {"at": 1.0}}, {"start": {"delay": 1.0}}, ["at", "delay"]),
        ({"start": None}, {"start": {"delay": 1.0}}, []),
        ({"tenant": "a"}, {"session_id": "t", "submitted_at": 5}, []),
    ],
)
def test_the_arguments_of_a_key_are_compared(
    stored: dict[str, Any], wanted: dict[str, Any], expected: list[str]
) -> None:
    wanted = dict(wanted)
    session_id = wanted.pop("session_id", "s")
    new = structs.replace(first(**wanted), session_id=session_id)
    assert different_settings(first(**stored), new) == expected


def test_the_first_segment_has_the_id_of_its_run() -> None:
    assert FIRST.id == segment_id("r", 0) == "r"
    assert DECIDED.id == segment_id("r", 1) == "r/1"


def test_a_run_is_final_when_it_has_ended() -> None:
    final = {one for one in RunStatus if one.is_final}
    assert final == {RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED}


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


# ---------------------------------------------------------------- workers that died


def test_a_run_is_started_alone_after_the_second_death_of_a_worker() -> None:
    once = Crashes().and_of("w1", 4)
    assert (once.is_suspect, once.backoff) == (False, 0.0)
    twice = once.and_of("w2", 3)
    assert (twice.is_suspect, twice.backoff) == (True, 1.0)
    assert "2 workers died while they had this run" in twice.text
    assert once.and_of("w1", 4) == once, "a death counts once"


def test_a_run_is_given_up_only_by_deaths_of_workers_without_other_runs() -> None:
    shared = Crashes({f"w{number}": 2 for number in range(100)})
    assert (shared.is_suspect, shared.is_hopeless) == (True, False)
    assert shared.backoff == LONGEST_BACKOFF
    found = shared
    for number in range(GIVE_UP):
        assert not found.is_hopeless
        found = found.and_of(f"alone{number}", 1)
    assert (found.is_suspect, found.is_hopeless, found.backoff) == (False, True, 0.0)
    assert f"{GIVE_UP} workers died while this run was the only one" in found.text
    assert f"alone{GIVE_UP - 1}" in found.text


def test_the_pause_before_a_run_is_started_again_grows() -> None:
    crashes, pauses = Crashes(), list[float]()
    for number in range(9):
        crashes = crashes.and_of(f"w{number}", 2)
        pauses.append(crashes.backoff)
    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_a_worker_that_has_not_died_is_acquitted() -> None:
    crashes = Crashes({"w1": 1, "w2": 3})
    assert crashes.without("w2") == Crashes({"w1": 1})
    assert crashes.without("w3") == crashes
