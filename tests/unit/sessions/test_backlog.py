"""Where the entries of transcripts go in a store, in which batches, and when they are spooled."""

from __future__ import annotations

import pytest

from bridle._records.session_store import Entry, SessionKey
from bridle.sessions._backlog import (
    MAX_BATCH_BYTES,
    MAX_BATCH_ENTRIES,
    MAX_MEMORY,
    MAX_UNSPOOLED,
    Backlog,
    delay_after,
    key_of,
)

ID = "00000000-0000-4000-8000-000000000001"
OTHER = "00000000-0000-4000-8000-000000000002"
KEY = SessionKey(ID)


def entries(count: int, start: int = 0) -> list[Entry]:
    return [{"uuid": str(start + number)} for number in range(count)]


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (f"/c/projects/-home-me/{ID}.jsonl", SessionKey(ID, "", "-home-me")),
        (f"/tmp/bridle-x/{ID}.jsonl", SessionKey(ID, "", "-here")),
        (f"{ID}.jsonl", SessionKey(ID, "", "-here")),
        (
            f"/c/projects/-home-me/{ID}/subagents/agent-a1.jsonl",
            SessionKey(ID, "subagents/agent-a1", "-home-me"),
        ),
        (
            f"/c/projects/-a/{ID}/subagents/deep/agent-a1.jsonl",
            SessionKey(ID, "subagents/deep/agent-a1", "-a"),
        ),
        (
            f"/c/projects/-a/{ID}/subagents/workflows/{OTHER}/agent-1.jsonl",
            SessionKey(ID, f"subagents/workflows/{OTHER}/agent-1", "-a"),
        ),
        (
            f"/tmp/bridle-x/{ID}/subagents/workflows/{OTHER}.jsonl",
            SessionKey(ID, f"subagents/workflows/{OTHER}", "-here"),
        ),
        (f"/srv/{OTHER}/projects/-a/{ID}.jsonl", SessionKey(ID, "", "-a")),
        (f"/tmp/{OTHER}/bridle-x/{ID}.jsonl", SessionKey(ID, "", "-here")),
        ("/c/projects/-home-me/notes.jsonl", None),
        (f"/c/projects/-home-me/{ID}.txt", None),
        ("", None),
    ],
)
def test_a_transcript_file_has_a_key(path: str, key: SessionKey | None) -> None:
    assert key_of(path, "-here") == key


def test_the_pause_between_attempts_grows_up_to_a_limit() -> None:
    assert [delay_after(count) for count in (1, 2, 3, 50)] == [0.1, 0.2, 0.4, 5.0]


def test_entries_of_one_key_share_a_batch() -> None:
    backlog = Backlog()
    backlog.add(KEY, entries(2), 20)
    backlog.add(KEY, entries(1, 2), 10)
    assert len(backlog) == 1
    assert (backlog.first.entries, backlog.first.size, backlog.entries) == (entries(3), 30, 3)
    backlog.add(SessionKey(ID, "subagents/a"), entries(1), 10)
    backlog.add(KEY, entries(1, 3), 10)
    assert (len(backlog), backlog.size, backlog.entries) == (3, 50, 5)


def test_a_batch_that_is_being_appended_does_not_grow() -> None:
    backlog = Backlog()
    first = backlog.add(KEY, entries(1), 10)
    backlog.first.is_sealed = True
    assert backlog.add(KEY, entries(1, 1), 10) is not first
    assert len(backlog) == 2


def test_a_batch_is_limited_in_entries_and_bytes() -> None:
    backlog = Backlog()
    backlog.add(KEY, entries(2 * MAX_BATCH_ENTRIES + 1), 1000)
    assert len(backlog) == 3
    backlog = Backlog()
    backlog.add(KEY, entries(4), 4 * MAX_BATCH_BYTES)
    assert (len(backlog), backlog.first.count, backlog.size) == (4, 1, 4 * MAX_BATCH_BYTES)
    backlog.add(KEY, entries(1, 4), 10)
    assert len(backlog) == 5


def test_batches_leave_in_order() -> None:
    backlog = Backlog()
    for number in range(3):
        backlog.add(SessionKey(str(number)), entries(1), 10)
    taken: list[str] = []
    while backlog:
        taken.append(backlog.first.key.session_id)
        backlog.remove(backlog.first)
    assert (taken, backlog.size) == (["0", "1", "2"], 0)


def test_memory_is_bounded_by_the_spool() -> None:
    backlog = Backlog()
    backlog.add(KEY, entries(1), MAX_MEMORY)
    before = backlog.wants_spool
    backlog.add(KEY, entries(1), 1)
    assert (before, backlog.wants_spool) == (False, True)
    for number, batch in enumerate(backlog.unspooled()):
        assert batch.is_sealed
        batch.place = (number, 1)
        backlog.forget_entries(batch)
    assert (backlog.size, len(backlog), backlog.entries, backlog.unspooled()) == (0, 2, 2, [])
    before = backlog.wants_spool
    backlog.is_spooling = True
    assert (before, backlog.wants_spool) == (False, True)


def test_entries_are_dropped_and_counted_if_the_spool_cannot_be_written_either() -> None:
    backlog = Backlog()
    backlog.add(KEY, entries(1), MAX_UNSPOOLED)
    backlog.is_spool_failing = True
    assert backlog.add(KEY, entries(3), 1) is None
    assert (backlog.dropped, backlog.entries) == (3, 1)
    backlog.remove(backlog.first)
    assert not backlog.is_spool_failing


def test_nothing_is_dropped_while_the_spool_works() -> None:
    backlog = Backlog()
    backlog.add(KEY, entries(1), MAX_UNSPOOLED)
    assert backlog.add(KEY, entries(3), 1) is not None
    assert (backlog.dropped, backlog.entries) == (0, 4)
