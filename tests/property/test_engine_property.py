"""The engine for spoiled recordings of real CLIs in random states. The long run is `make soak`."""

from __future__ import annotations

import re
from inspect import BoundArguments

import pytest
from tests.fuzz import engine_fuzz
from tests.fuzz.engine_fuzz import BATCH, fuzz, fuzz_batch, fuzz_lines
from tests.simulation.mutants import Actions, AnswersTwice, EndsTurnsTwice, ForgetsTheTotal, Mutant
from tests.support.sizes import largest_container

LINES = 5_000


@pytest.mark.parametrize("start", range(0, 4_000, 1_000))
def test_the_engine_keeps_its_promises_whatever_the_cli_writes(start: int) -> None:
    lines, findings = fuzz_lines(LINES, start=start)
    assert findings == []
    assert lines >= LINES


def test_a_session_replays_exactly() -> None:
    def told(seed: int) -> list[str]:
        steps: list[str] = []
        fuzz(seed, steps.append, size=60)
        return steps

    assert told(7) == told(7) != told(8)


class Raises(Mutant):
    """Raises when it is fed certain lines."""

    def feed(self, name: str, given: BoundArguments) -> Actions:
        if name == "receive" and b'"result"' in given.arguments["data"]:
            raise ZeroDivisionError
        return super().feed(name, given)


class Grows(Mutant):
    """Remembers everything it was fed."""

    def feed(self, name: str, given: BoundArguments) -> Actions:
        vars(self).setdefault("fed", []).extend([name] * 100)
        return super().feed(name, given)


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (Raises, "ZeroDivisionError"),
        (AnswersTwice, "Finding"),
        (EndsTurnsTwice, "Finding"),
        (ForgetsTheTotal, "Finding: .* passed their total"),
        (Grows, "Finding: it grows"),
    ],
)
def test_a_planted_fault_is_found(
    fault: type[Mutant], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_fuzz, "Engine", fault)
    batches = (fuzz_batch(first)[1] for first in range(0, 2_000, BATCH))
    findings = next(filter(None, batches))
    assert [finding for _, finding in findings if not re.match(found, finding)] == []


def test_the_largest_container_is_found_wherever_it_is() -> None:
    class Part:
        def __init__(self) -> None:
            self._table = {"deep": (frozenset({1}), [set(range(7))])}

    assert largest_container(Part()) == 7
    assert largest_container([iter([Part()])]) == 7
