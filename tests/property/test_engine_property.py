"""The engine for spoiled recordings of real CLIs in random states. The long run is `make soak`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.fuzz.engine_fuzz import fuzz, fuzz_lines

from bridle._core.budget import LimitWatch
from bridle._core.turns import TurnBook

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


def _raise(*_: object) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("part", "name", "fault"),
    [
        (TurnBook, "deliver", _raise),
        (TurnBook, "deliver_all", _raise),
        (LimitWatch, "_reach", lambda *_: None),
    ],
    ids=["single lines", "batches", "limits"],
)
def test_a_planted_fault_is_found(
    part: type, name: str, fault: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, name, fault)
    _, findings = fuzz_lines(40_000)
    assert findings
