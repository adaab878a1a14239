"""The recordings say which CLI wrote them and when, and no test changes them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

WIRE = Path(__file__).parent
CHANGES = re.compile(r"\b(?:GOLDEN|RECORDINGS|TRANSCRIPTS|WIRE)\b.*\.(?:write_|touch|unlink|mkdir)")


@pytest.mark.requirement("S104")
def test_every_recorded_version_is_listed_with_its_date() -> None:
    rows = re.findall(
        r"^\| (\d+\.\d+\.\d+) \| \d{4}-\d\d-\d\d", (WIRE / "README.md").read_text(), re.MULTILINE
    )
    recorded = {path.name for kind in ("golden", "transcripts") for path in (WIRE / kind).iterdir()}
    assert set(rows) == recorded


@pytest.mark.requirement("S104")
def test_no_test_writes_a_recording_or_replaces_the_real_cli() -> None:
    sources = {path: path.read_text("utf-8") for path in WIRE.parent.rglob("test_*.py")}
    assert [path.name for path, text in sources.items() if CHANGES.search(text)] == []
    real = [text for path, text in sources.items() if path.parent.name == "real"]
    assert [text for text in real if "unittest.mock" in text or "FakeCli" in text] == []
