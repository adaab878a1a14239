"""The engine for spoiled recordings of real CLIs in random states. The long run is `make soak`."""

from __future__ import annotations

import pytest
from tests.fuzz.engine_fuzz import fuzz, fuzz_lines

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
