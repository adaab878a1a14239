"""The engine keeps its promises against a model CLI, real recordings and a hostile world.

The long run is ``python -m tests.simulation.run --seeds 1000000``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulation import faults
from tests.simulation.coverage import Coverage
from tests.simulation.golden import Replay, implied_outcomes, recordings
from tests.simulation.mutants import MUTANTS
from tests.simulation.run import simulate_one, simulate_range

from bridle._core.state import MOVES

SHARD = 750
WITHIN = 2000


@pytest.mark.parametrize("first", range(0, 3000, SHARD))
def test_every_promise_is_kept_whatever_happens(first: int) -> None:
    coverage, failures = simulate_range(range(first, first + SHARD))
    assert failures == []
    assert coverage.seeds == SHARD
    assert coverage.steps / SHARD >= 150


def test_a_seed_replays_exactly() -> None:
    def told(seed: int) -> list[str]:
        lines: list[str] = []
        assert simulate_one(seed, Coverage(), trace=lines.append) is None
        return lines

    assert told(7) == told(7) != told(8)


def test_everything_that_can_happen_does() -> None:
    coverage, _ = simulate_range(range(3000, 4000))
    missing = [name for name in faults.FAULTS if not coverage.faults[name] and name not in RARE]
    assert missing == []
    assert [name for name in faults.OPERATIONS if not coverage.operations[name]] == []
    assert [move for move in MOVES if not coverage.moves[move]] == []
    assert len(coverage.actions) == 15


RARE = {"long_line"}
"""Faults that a thousand seeds need not show."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_engine_is_caught(name: str) -> None:
    """A broken promise is a catch; an exception that the mutant itself provokes is none."""
    broken = MUTANTS[name]
    for seed in range(WITHIN):
        problem = simulate_one(seed, Coverage(), broken)
        if problem is not None and problem.startswith("Violation"):
            print(f"{name}: seed {seed}: {problem}")
            assert broken.effects > 0
            return
    pytest.fail(f"{name} passed {WITHIN} seeds, with {broken.effects} effects")


def _id(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


@pytest.mark.parametrize("path", recordings(), ids=_id)
def test_recorded_prompts_get_the_outcomes_their_recording_implies(path: Path) -> None:
    implied = implied_outcomes(path)
    assert implied
    for seed in range(5):
        replayed = Replay(path, seed).outcome
        assert replayed.outcomes == implied
        assert replayed.delivered == replayed.spoken
        assert replayed.under_way == set()
