"""Histories of retries keep their promises, and the judge notices each one that is broken."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.histories.retries import STORES, Effect, History, check, judge, play

from bridle import Outcome, OutcomeReason
from bridle.testing import FakeCli
from bridle.testing.fake_cli import FLAVOURS

RUNS = 4
"""Runs at the same time."""


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("store", STORES)
def test_a_call_has_one_key_however_often_its_cli_is_killed(
    places: Path, store: str, flavour: str
) -> None:
    """Without a journal, a crash before the store has a message ended the run in this one."""
    for seed in (3, 12):
        place = places / str(seed)
        place.mkdir()
        assert kill_and_retry(place, seed, store, flavour) >= RUNS


def kill_and_retry(places: Path, seed: int, store: str, flavour: str) -> int:
    """Play some histories, and check them. Return how many CLIs were killed."""
    with FakeCli.auto(flavour=flavour, transcripts=True, lifetime=900) as cli:
        options: dict[str, Any] = {"cli_path": cli.path, "cwd": str(places)}
        histories = asyncio.run(play(places, seed, store, options, runs=RUNS))
    check(histories)
    return sum(len(one.killed) for one in histories)


# ---------------------------------------------------------------- the judge


def sound() -> History:
    """Return a history without a fault: a call is cut off, and repeated in another CLI."""
    effects = [Effect("a", "K", 1), Effect("a", "K", 2), Effect("a", "L", 2), Effect("b", "M", 2)]
    outcome = Outcome[Any](reason=OutcomeReason.COMPLETED)
    return History(asked=["a", "b", "a"], killed=[1], effects=effects, outcome=outcome)


def test_a_sound_history_has_no_fault() -> None:
    assert judge(sound()) == []


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"outcome": Outcome[Any](reason=OutcomeReason.CLI_EXITED)}, "has not completed"),
        ({"outcome": None}, "has not completed"),
        ({"asked": ["a", "b"]}, "a was asked for 1 times"),
        ({"asked": ["a", "a", "b", "b"]}, "b was asked for 2 times"),
        ({"asked": ["a", "a"]}, "b ran, and nobody had asked"),
        ({"effects": [*sound().effects, Effect("b", "M", 2)]}, "M ran 2 times in the CLI 2"),
        ({"killed": []}, "two CLIs lived on"),
    ],
)
def test_the_judge_notices(changes: dict[str, Any], fault: str) -> None:
    found = judge(structs.replace(sound(), **changes))
    assert any(fault in one for one in found), found
