"""Histories of decisions keep their promises, and the judge notices each one that is broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.histories.approvals import (
    TAKEN,
    Decided,
    Ended,
    Entry,
    History,
    Prompted,
    Ran,
    Round,
    Seen,
    changed,
    check,
    judge,
    play,
)

FIRST, SECOND, THIRD = ({"case": "c", "left": left} for left in (2, 1, 0))
NOTED = {**SECOND, "note": "ann"}


def sound() -> History:
    """Return a history without a fault: two people, three calls, one of them changed."""
    entries: list[Entry] = [
        *(Seen("c", who, "t1", FIRST) for who in ("ann", "bob")),
        Prompted("c", "ApprovalPending"),
        Decided("c", "ann", "t1", "allow", FIRST, TAKEN),
        Ran("c", "t1", FIRST),
        Decided("c", "bob", "t1", "deny", None, "UsageError"),
        *(Seen("c", who, "t2", SECOND) for who in ("ann", "bob")),
        Decided("c", "bob", "t2", "allow", SECOND, "SessionInUseError"),
        Decided("c", "ann", "t2", "edit", NOTED, TAKEN),
        Ran("c", "t2", NOTED),
        Seen("c", "bob", "t3", THIRD),
        Decided("c", "bob", "t3", "deny", None, TAKEN),
        Ended("c", "completed"),
    ]
    return History("c", entries)


def test_a_sound_history_has_no_fault() -> None:
    assert judge(sound()) == []


def test_a_decision_whose_answer_was_lost_counts_if_no_other_one_was_taken() -> None:
    assert judge(changed(sound(), Decided, 3, told="StoreError")) == []
    lost = changed(sound(), Decided, 0, told="StoreError")
    assert judge(changed(lost, Decided, 1, told="StoreError")) == []


@pytest.mark.parametrize(
    ("kind", "number", "change", "fault"),
    [
        # Two people decide about one call.
        (Decided, 1, {"told": TAKEN}, "2 decisions about t1 took effect"),
        (Decided, 0, {"told": "UsageError"}, "no decision about t1 took effect"),
        # One person has seen another call.
        (Decided, 3, {"call": "t1"}, "t2 ran and nobody had allowed it"),
        (Decided, 3, {"call": "t9"}, "which was not shown"),
        (Decided, 3, {"kind": "deny", "allowed": None}, "t2 ran and nobody had allowed it"),
        (Decided, 4, {"kind": "allow", "allowed": THIRD}, "t3 was allowed and did not run"),
        (Decided, 2, {"told": "TimeoutError"}, "bob was told 'TimeoutError'"),
        (Ran, 1, {"given": SECOND}, "t2 ran with another input"),
        (Ran, 1, {"call": "t1"}, "t1 ran 2 times"),
        (Ran, 1, {"call": "t3"}, "t3 ran and nobody had allowed it"),
        (Prompted, 0, {"told": "execution_error"}, "a prompt was told"),
        (Ended, 0, {"reason": "failed"}, "has not ended well"),
        (Ended, 0, {"waits": "t3"}, "t3 still waits"),
        (Ran, 1, {"call": "t1"}, "t2 was allowed and did not run"),
    ],
)
def test_the_judge_notices(
    kind: type[Any], number: int, change: dict[str, Any], fault: str
) -> None:
    found = judge(changed(sound(), kind, number, **change))
    assert any(fault in one for one in found), found


ROUNDS = [
    # Here, two decisions at once took effect in half of the conversations.
    Round(seed=3, door="resume", store="plain", cases=5),
    Round(seed=5, door="fleet", cases=3),
    Round(seed=1, door="resume", store="files", cases=3),
    Round(seed=2, door="resume", store="sqlite", cases=3),
    Round(seed=4, door="pool", store="sqlite", cases=3),
    Round(seed=6, door="fleet", cases=6, kills=2),
]


def test_a_call_whose_worker_was_killed_may_lack_its_effect() -> None:
    killed = changed(sound(), Ended, 0, is_cut_off=True)
    lost = [one for one in killed.entries if one != Ran("c", "t2", NOTED)]
    assert judge(History("c", lost)) == []
    assert any("t1 ran 2 times" in one for one in judge(changed(killed, Ran, 1, call="t1")))


@pytest.mark.parametrize("round", ROUNDS, ids=lambda one: f"{one.door}-{one.store}-{one.kills}")
@pytest.mark.longer(after=1)
def test_one_of_several_decisions_takes_effect(round: Round, tmp_path: Path) -> None:
    if round.door == "fleet":
        pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")
    told = check(play(round, tmp_path / "round"))
    assert told[TAKEN] >= round.cases
    assert told["UsageError"] + told["SessionInUseError"] > 0, "there were races"
