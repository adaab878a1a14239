"""Millions of spoiled lines through the engine. Long, so only when asked for, as by `make soak`."""

from __future__ import annotations

import os

import pytest
from tests.fuzz.engine_fuzz import fuzz_lines

LINES = 3_000_000

pytestmark = pytest.mark.skipif(
    not os.environ.get("BRIDLE_SOAK"), reason="takes minutes: `make soak` runs it"
)


def test_millions_of_spoiled_lines_find_nothing() -> None:
    lines, findings = fuzz_lines(LINES, start=10_000_000, jobs=os.cpu_count() or 1)
    assert findings == []
    assert lines >= LINES
