"""A session notices that others have added to its transcript, and not what it added itself."""

from __future__ import annotations

import pytest

from bridle._records.session_store import Entry
from bridle.sessions._transcripts.stored_position import StoredPosition


def said(*uuids: str) -> list[Entry]:
    return [{"type": "user", "uuid": uuid} for uuid in uuids]


def position(loaded: str = "", stored: str = "", sent: str = "") -> StoredPosition:
    made = StoredPosition()
    made.loaded(said(*loaded))
    made.sending(said(*stored))
    made.stored(said(*stored))
    made.sending(said(*sent))
    return made


@pytest.mark.parametrize(
    ("known", "stored", "expected"),
    [
        (position(), "", False),
        (position(), "b", True),
        (position(loaded="12"), "12", False),
        (position(loaded="12"), "12b", True),
        (position(loaded="12", stored="34"), "1234", False),
        (position(loaded="12", stored="34"), "1234b", True),
        # The store may have entries whose append did not return.
        (position(stored="1", sent="23"), "123", False),
        (position(stored="1", sent="23"), "12b3", True),
        (position(stored="1", sent="23"), "1b", True),
        # An entry that is stored twice, and one that the store has lost.
        (position(loaded="12"), "1212", False),
        (position(loaded="12"), "12b12", False),
        (position(loaded="12"), "", False),
        (position(loaded="12"), "1", True),
    ],
)
def test_entries_of_others_after_the_last_own_one_are_noticed(
    known: StoredPosition, stored: str, *, expected: bool
) -> None:
    assert known.is_passed(said(*stored)) is expected


def test_titles_and_tags_of_others_do_not_count() -> None:
    title: Entry = {"type": "custom-title", "uuid": "t", "customTitle": "x"}
    assert not position(loaded="1").is_passed([*said("1"), title])


def test_an_entry_that_was_rejected_first_does_not_move_the_position_back() -> None:
    """It was stored although the call failed, and later ones were stored before it was repeated."""
    known = position(loaded="1")
    known.sending(said("2"))
    known.sending(said("3"))
    known.stored(said("3"))
    known.sending(said("2"))
    known.stored(said("2"))
    assert known.last == "3"
    for stored in ("123", "132"):
        assert not known.is_passed(said(*stored))


def test_entries_that_were_not_sent_do_not_move_the_position() -> None:
    known = position(loaded="1")
    known.stored(said("2"))
    assert known.last == "1"
