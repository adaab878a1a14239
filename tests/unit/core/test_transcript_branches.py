"""Entries of an old spool file are added only if the newer conversation stays."""

from __future__ import annotations

import pytest

from bridle._core.transcript_branches import Choice, choose_left
from bridle._store import Entry


def said(uuid: str, parent: str | None, time: str | None) -> Entry:
    entry = {"type": "user", "uuid": uuid, "parentUuid": parent}
    return entry if time is None else {**entry, "timestamp": time}


@pytest.mark.parametrize(
    ("stored", "left", "expected"),
    [
        ([], [said("1", None, "1")], Choice.ALL),
        ([said("1", None, "1")], [said("2", "1", "2")], Choice.ALL),
        # The conversation was rewound: what the new branch hides is older.
        ([said("1", None, "1"), said("2", "1", "2")], [said("3", "1", "3")], Choice.ALL),
        # Another machine continued: what the spool would hide is newer, or its time is unknown.
        ([said("1", None, "1"), said("3", "1", "3")], [said("2", "1", "2")], Choice.NONE),
        ([said("1", None, "1"), said("3", "1", None)], [said("2", "1", "2")], Choice.NONE),
        (
            [said("1", None, "1"), said("3", "1", "3"), {"type": "last-prompt", "leafUuid": "3"}],
            [said("2", "1", "2"), {"type": "last-prompt", "leafUuid": "2"}],
            Choice.WITHOUT_LAST_PROMPT,
        ),
        # The store has them already.
        ([said("1", None, "1"), said("3", "1", "3")], [said("1", None, "1")], Choice.ALL),
    ],
)
def test_entries_of_an_old_spool_must_not_hide_newer_messages(
    stored: list[Entry], left: list[Entry], expected: Choice
) -> None:
    assert choose_left(stored, left) is expected
