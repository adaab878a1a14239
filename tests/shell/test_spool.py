"""Spool files keep what the store does not have, and when it was written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.stored import ListStore

from bridle._records.session_store import SessionKey
from bridle.sessions._backlog import Batch
from bridle.sessions._loading import ConversationLoader
from bridle.sessions._outbox.leases import Leases
from bridle.sessions._outbox.spool import (
    LeftSpool,
    Spool,
    has_spooled_journal,
    spool_directory,
    spool_name,
)
from bridle.sessions._start_calls import StartCalls

ID = "00000000-0000-4000-8000-000000000001"
KEY = SessionKey(ID, "", "-p")
OLD = 1_700_000_000 * 10**9


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a directory for spool files that the test can look at."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Path(spool_directory())


def written(store: object, *numbers: int) -> tuple[Spool, list[Batch]]:
    """A spool with a batch for each number."""
    spool = Spool(f"{spool_name(store, ID)}transcript.", "old")
    batches = [Batch(KEY, [{"uuid": str(number)}], 10, 1) for number in numbers]
    spool.write(batches)
    return spool, batches


def taken(path: str) -> LeftSpool:
    spool = LeftSpool.take(path)
    assert isinstance(spool, LeftSpool)
    return spool


@pytest.mark.parametrize("mark", [b"\0", b"x", b" "])
async def test_a_line_with_an_unknown_mark_is_damaged(state: Path, mark: bytes) -> None:
    store = ListStore()
    spool, _ = written(store, 1, 2)
    spool.close()
    path = Path(spool.path)
    path.write_bytes(mark + path.read_bytes()[1:])

    warnings: list[str] = []
    spools = spool_name(store, ID)
    leases = Leases(store, lambda _: None)
    loader = ConversationLoader(
        store,
        KEY,
        StartCalls(5.0),
        spools,
        lambda one: warnings.append(one.detail),
        leases=leases,
    )
    await loader.send_left_behind()
    assert [one["uuid"] for one in await store.load(KEY) or ()] == ["2"]
    [kept] = state.iterdir()
    assert kept.name.startswith("damaged.")
    assert b'"uuid":"1"' in kept.read_bytes()
    assert str(kept) in warnings[0]


def test_marking_a_batch_does_not_change_when_the_spool_was_written() -> None:
    """Titles have no time of their own. They count as old as the file."""
    spool, (first, second, third) = written(ListStore(), 1, 2, 3)
    os.utime(spool.path, ns=(OLD, OLD))
    assert (first.place, second.place) != (None, None)
    spool.mark_done(first.place or (0, 0))
    spool.close()
    assert os.stat(spool.path).st_mtime_ns == OLD
    left = taken(spool.path)
    [_, last] = left.batches()
    left.mark_done((second.place or (0, 0))[0])
    left.write_rejected(last, [{"uuid": "3"}])
    left.mark_done((third.place or (0, 0))[0])
    left.close()
    again = taken(spool.path)
    assert again.written == "2023-11-14T22:13:20.000Z"
    [rejected] = again.batches()
    assert rejected.is_rejected
    again.close()


def test_a_spool_that_is_written_again_keeps_its_time() -> None:
    spool, _ = written(ListStore(), 1)
    os.utime(spool.path, ns=(OLD, OLD))
    os.unlink(spool.path)
    spool.close()
    assert os.stat(spool.path).st_mtime_ns == OLD


@pytest.mark.parametrize(
    ("error", "expected"),
    [(NotADirectoryError, False), (PermissionError, False), (OSError, True)],
)
def test_a_directory_that_the_user_cannot_enter_has_no_journal(
    monkeypatch: pytest.MonkeyPatch, error: type[OSError], *, expected: bool
) -> None:
    """Any other error may hide one."""

    def fail(path: str) -> list[str]:
        raise error(path)

    monkeypatch.setattr(os, "listdir", fail)
    assert has_spooled_journal(ListStore(), ID) is expected
