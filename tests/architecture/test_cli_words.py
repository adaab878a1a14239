"""Every module that reads texts of the CLI is in the table of what Bridle relies on."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src" / "bridle"
PAGE = REPOSITORY / "docs" / "explanation" / "protocol.md"

OWN = {
    "_core/incoming/unknown.py",
    "_core/launch.py",
    "_core/oversized.py",
    "_core/turn_events.py",
    "_core/unknown_values.py",
    "_core/wire.py",
    "_doors/pooled.py",
    "_doors/query_session.py",
    "_shell/locate.py",
    "_shell/real_api.py",
    "_shell/verifications.py",
    "_shell/watchdog.py",
}
"""Modules whose expressions read texts of Bridle, of the program or of the operating system."""

READS_TEXT = re.compile(
    r"re\.compile\(|\.(?:startswith|endswith)\(\(?\"|[\"'] in \w*(?:text|tail)\b"
)


def table() -> list[list[str]]:
    """The rows of the table: what, from, in, depends, if it changes, test."""
    page = PAGE.read_text("utf-8")
    section = page.split("## What Bridle relies on")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:1] == "|"]
    return rows[2:]


def test_every_row_names_modules_and_a_test_that_exist() -> None:
    assert len(table()) >= 20
    for row in table():
        assert len(row) == 6, row
        for module in re.findall(r"`([\w/]+\.py)`", row[2]):
            assert (SOURCE / module).is_file(), module
        test = re.findall(r"`(tests/[\w/]+\.py)`", row[5])[0]
        assert (REPOSITORY / test).is_file(), test


def test_modules_that_read_texts_are_in_the_table() -> None:
    named = {module for row in table() for module in re.findall(r"`([\w/]+\.py)`", row[2])}
    reading = {
        str(path.relative_to(SOURCE))
        for part in ("_core", "_shell", "_doors")
        for path in (SOURCE / part).rglob("*.py")
        if READS_TEXT.search(path.read_text("utf-8"))
    }
    assert sorted(reading - named - OWN) == []
    assert sorted(OWN - reading) == []
