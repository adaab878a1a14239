"""An approved call that a kill has cut off does not run again when it is approved once more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.histories.begun_calls import LEASE, STORES, History, Plan, check, judge, play
from tests.support.limits import SetLimits

from bridle.testing import FakeCli
from bridle.testing.fake_cli import FLAVOURS

CALLS = 4
"""Calls that the programs of a round approve at the same time."""


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    set_limits(lease=LEASE)
    return tmp_path


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("store", STORES)
def test_no_decision_lets_a_call_run_twice(places: Path, store: str, flavour: str) -> None:
    # A call runs twice in these rounds if a decision does not look at what has begun.
    approve_and_kill(places, 5 if store == "none" else 1, store, flavour)


def approve_and_kill(places: Path, seed: int, store: str, flavour: str) -> tuple[int, int]:
    """Play a round, and check its histories. Return how many kills and histories there were."""
    with FakeCli.auto(flavour=flavour, transcripts=True, lifetime=900) as cli:
        options = {"cli_path": cli.path, "cwd": str(places)}
        plan = Plan(directory=str(places), store=store, options=options)
        histories, kills = play(plan, CALLS, 1 + seed % 3, seed)
    check(histories)
    return kills, len(histories)


# ---------------------------------------------------------------- the judge


def sound() -> History:
    """Return a history without a fault: the second decision is told that the call may have run."""
    facts: list[dict[str, Any]] = [
        {"approving": True},
        {"paid": True, "key": "k"},
        {"approving": True},
        {"told": "CallMayHaveRun"},
        {"approving": True},
        {"told": "UsageError"},
    ]
    return History("t", "none", [{"id": "t", **one} for one in facts], "completed", "UsageError")


def test_a_sound_history_has_no_fault() -> None:
    assert judge(sound()) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"facts": [*sound().facts, {"paid": True, "key": "l"}]}, "ran 2 times"),
        ({"ended": "cli_exited"}, "ended as cli_exited"),
        ({"after": "completed"}, "after the end of the turn"),
        ({"facts": [{"approving": True}, {"told": "completed"}]}, "the tool did not run"),
        ({"facts": [{"approving": True}, {"told": "UsageError"}]}, "first decision was refused"),
        (
            {"store": "journal", "facts": sound().facts[:3], "ended": "UsageError"},
            "no decision was told that it may have run",
        ),
        ({"facts": [{"approving": True}, {"told": "CallMayHaveRun"}]}, "the call may have run"),
    ],
)
def test_the_judge_notices(change: dict[str, Any], fault: str) -> None:
    assert any(fault in one for one in judge(structs.replace(sound(), **change)))
