"""Entries of an old spool file are added only if the newer conversation stays."""

from __future__ import annotations

import pytest

from bridle._records.session_store import Entry
from bridle.sessions._transcripts.branches import Choice, NewerTitles, choose_again, choose_left


def said(uuid: str, parent: str | None, time: str | None) -> Entry:
    entry = {"type": "user", "uuid": uuid, "parentUuid": parent}
    return entry if time is None else {**entry, "timestamp": time}


@pytest.mark.parametrize(
    ("stored", "left", "after", "expected"),
    [
        ([], [said("1", None, "1")], None, Choice.ALL),
        ([said("1", None, "1")], [said("2", "1", "2")], "1", Choice.ALL),
        # The conversation was rewound: the session knew what the new branch hides.
        ([said("1", None, "1"), said("2", "1", "2")], [said("3", "1", "3")], "2", Choice.ALL),
        # Another machine continued, whenever that was.
        ([said("1", None, "1"), said("3", "1", "3")], [said("2", "1", "2")], "1", Choice.NONE),
        ([said("1", None, "1"), said("3", "1", "2")], [said("2", "1", "3")], "1", Choice.NONE),
        ([said("1", None, "1"), said("3", "1", None)], [said("2", "1", "2")], "1", Choice.NONE),
        # It is not known what the session knew.
        ([said("1", None, "1"), said("2", "1", "2")], [said("3", "1", "3")], None, Choice.NONE),
        ([said("1", None, "1"), said("2", "1", "2")], [said("3", "1", "3")], "x", Choice.NONE),
        (
            [said("1", None, "1"), said("3", "1", "3"), {"type": "last-prompt", "leafUuid": "3"}],
            [said("2", "1", "4"), {"type": "last-prompt", "leafUuid": "2"}],
            "1",
            Choice.WITHOUT_LAST_PROMPT,
        ),
        # The store has some of them already.
        ([said("1", None, "1"), said("3", "1", "3")], [said("1", None, "1")], None, Choice.ALL),
        ([said("1", None, "1"), said("2", "1", "2")], [said("2", "1", "2")], "1", Choice.ALL),
    ],
)
def test_entries_of_an_old_spool_must_not_hide_messages_of_others(
    stored: list[Entry], left: list[Entry], after: str | None, expected: Choice
) -> None:
    assert choose_left(stored, left, after) is expected


def title(text: str, time: str | None = None) -> Entry:
    entry = {"type": "custom-title", "customTitle": text}
    return entry if time is None else {**entry, "timestamp": time}


@pytest.mark.parametrize(
    ("stored", "left", "is_kept"),
    [
        # The messages around a title tell its time.
        ([said("1", None, "1")], [title("a")], True),
        ([said("1", None, "1"), title("b")], [said("2", "1", "2"), title("a")], True),
        ([said("1", None, "3"), title("b")], [said("2", "1", "2"), title("a")], False),
        # So does a timestamp of its own.
        ([said("1", None, "1"), title("b", "4")], [said("2", "1", "2"), title("a")], False),
        ([title("b", "4")], [said("2", "1", "2"), title("a", "5")], True),
        # Otherwise, the time of the file.
        ([said("1", None, "1"), title("b")], [title("a")], True),
        ([said("1", None, "4"), title("b")], [title("a")], False),
        # A tag is not a title.
        ([{"type": "tag", "tag": "b", "timestamp": "4"}], [title("a")], True),
    ],
)
def test_a_title_of_an_old_spool_does_not_replace_a_newer_one(
    stored: list[Entry], left: list[Entry], *, is_kept: bool
) -> None:
    newer = NewerTitles(stored, "3")
    # The entries come in several batches.
    kept = [entry for one in left for entry in newer.leave_out_older([one])]
    assert kept == (left if is_kept else left[:-1])


def test_rejected_entries_that_a_later_one_replaces_are_not_sent_again() -> None:
    old: list[Entry] = [{"type": "custom-title", "customTitle": "old"}, {"type": "mode"}]
    new: list[Entry] = [{"type": "custom-title", "customTitle": "new"}]
    assert choose_again(new, old) == [{"type": "mode"}]
    assert choose_again([], old) == old


def test_a_rejected_message_is_sent_again_unless_it_hides_later_ones() -> None:
    later = [said("3", "2", "3"), said("4", "3", "4")]
    missing = said("2", "1", "2")
    assert choose_again(later, [missing]) == [missing]
    assert choose_again(later, [said("other", "1", "2")]) is None
    named: Entry = {"type": "last-prompt", "leafUuid": "2"}
    assert choose_again(later, [missing, named]) == [missing, named]
    branched = [said("1", None, "1"), said("other", "1", "2"), said("3", "1", "3")]
    named_older: Entry = {"type": "last-prompt", "leafUuid": "other"}
    assert choose_again(branched, [{"type": "mode"}, named_older]) == [{"type": "mode"}]
