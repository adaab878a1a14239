"""Entries reach the store or the spool file in order, whatever the store does."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import stat
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.limits import SetLimits
from tests.support.processes import open_descriptors, run, until
from tests.support.steps import ReplaceSteps

from bridle._records.session_store import Entry, SessionKey, SessionStore
from bridle.errors import SessionLoadError, SessionLoadTimeout, StoreError
from bridle.events import SdkWarning, WarningKind
from bridle.sessions import MemoryStore, PostgresStore, RedisStore, SqliteStore
from bridle.sessions._backlog import MAX_BATCH_BYTES, MAX_MEMORY, MAX_UNSPOOLED, Batch
from bridle.sessions._journal_writer import Journal
from bridle.sessions._loading import ConversationLoader
from bridle.sessions._outbox.leases import Leases
from bridle.sessions._outbox.spool import (
    LeftSpool,
    SkippedSpool,
    Spool,
    left_behind,
    spool_directory,
    spool_name,
)
from bridle.sessions._outbox.store_writer import StoreWriter
from bridle.sessions._start_calls import StartCalls
from bridle.sessions._store_calls import StoreCallTimeout, call_store

ID = "00000000-0000-4000-8000-000000000001"
KEY = SessionKey(ID, "", "-p")


class Store(MemoryStore):
    """A store that can hang, fail, fail after it has stored, and come back."""

    def __init__(self, **policy: Any) -> None:
        super().__init__(**policy)
        self.mode = "works"
        self.appends = 0
        self.running = 0
        self.most_running = 0

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        self.appends += 1
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            await asyncio.sleep(0)
            if self.mode == "hangs":
                await asyncio.Event().wait()
            if self.mode == "fails":
                raise ConnectionError("the server is down")
            await super().append(key, entries)
            if self.mode == "forgets to answer":
                raise ConnectionError("the connection was lost")
        finally:
            self.running -= 1


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits) -> Path:
    """Use a directory for spool files that the test can look at, and short waits."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    set_limits(append_outage=0.05, resend_outage=0.05, append=0.2, resend=0.05)
    return Path(spool_directory())


async def send_left_behind(
    store: SessionStore,
    warn: Callable[[SdkWarning], None] = lambda _: None,
    timeout: float = 5.0,
    needs_journal: bool = False,
) -> None:
    """Send the entries in spool files to a store."""
    leases, spools = Leases(store, lambda _: None), spool_name(store, ID)
    loader = ConversationLoader(store, KEY, StartCalls(timeout), spools, warn, leases=leases)
    await loader.send_left_behind(needs_journal=needs_journal)


def leave(
    store: SessionStore,
    owner: str,
    *entries: Entry,
    after: str | None = None,
    is_one_batch: bool = False,
) -> Path:
    """Leave a spool file with these entries behind, which follow the entry ``after``."""
    spool = Spool(f"{spool_name(store, ID)}transcript.", owner)
    parts = [[*entries]] if is_one_batch else [[entry] for entry in entries]
    spool.write([Batch(KEY, part, 10, len(part), after=after) for part in parts])
    spool.close()
    return Path(spool.path)


def left_in(file: Path, kind: bytes = b"+!") -> list[Any]:
    """Return the batches of a spool file: to be sent (``+``) or rejected (``!``)."""
    lines = [line for line in file.read_bytes().splitlines() if line[:1] in kind]
    return [json.loads(line[1:])["entries"] for line in lines]


class Bench:
    """A writer, its store and its warnings."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store or Store()
        self.warnings: list[SdkWarning] = []
        self.spool = Spool(f"{spool_name(self.store, ID)}transcript.", "me", self.store.redact)
        self.writer = StoreWriter(self.store, self.spool, self.warnings.append)

    def put(self, *numbers: int, size: int = 10) -> None:
        self.writer.put(KEY, [{"uuid": str(number)} for number in numbers], size)

    async def handled(self) -> None:
        """Wait until the store or the spool file has every entry."""
        await until(lambda: len(self.writer._backlog) == 0)

    async def spooled(self) -> None:
        """Wait until the spool file has every entry that the store does not have."""
        await until(lambda: self.writer._backlog.size == 0)

    async def resume(self, timeout: float = 5.0, *, needs_journal: bool = False) -> None:
        """Send the entries in spool files to the store, as a session does that resumes."""
        await send_left_behind(self.store, self.warnings.append, timeout, needs_journal)

    async def stored(self) -> list[int]:
        found = await self.store.load(KEY) or []
        return [int(str(entry["uuid"])) for entry in found]


@asynccontextmanager
async def bench_with(store: Store | None = None) -> AsyncIterator[Bench]:
    """Return a new writer. No task and no descriptor is left."""
    before = open_descriptors()
    yield Bench(store)
    await until(lambda: asyncio.all_tasks() <= {asyncio.current_task()})
    assert open_descriptors() <= before


def files(state: Path) -> list[Path]:
    return sorted(state.iterdir()) if state.exists() else []


async def test_entries_that_no_caller_waits_for_are_appended_together(
    set_limits: SetLimits,
) -> None:
    set_limits(append_linger=3600.0)
    async with bench_with() as bench:
        for number in range(10):
            bench.put(number)
            await asyncio.sleep(0)
        assert bench.store.appends == 0
        await bench.writer.write(KEY, {"uuid": "10"}, 5.0)
        assert (await bench.stored(), bench.store.appends) == (list(range(11)), 1)
        bench.put(11)
        await asyncio.sleep(0)
        bench.put(12, size=MAX_BATCH_BYTES)
        await until(lambda: bench.store.appends == 3)  # too much to wait for more
        bench.put(13)
        await asyncio.sleep(0)
        await bench.writer.aclose(5.0)
        assert (await bench.stored(), bench.store.appends) == (list(range(14)), 4)


async def test_entries_of_two_files_do_not_wait_once_for_each_change_of_the_file(
    set_limits: SetLimits,
) -> None:
    set_limits(append_linger=2.0)
    async with bench_with() as bench:
        for number in range(200):
            key = KEY if number % 2 else SessionKey(ID, "subagents/agent-a", "-p")
            bench.writer.put(key, [{"uuid": str(number)}], 10)
        await until(lambda: bench.store.appends == 200)
        await bench.writer.aclose(5.0)


async def test_entries_reach_the_store_in_order_one_append_at_a_time(state: Path) -> None:
    async with bench_with() as bench:
        for number in range(200):
            bench.put(number)
            if number % 20 == 0:
                await asyncio.sleep(0)
        await bench.writer.aclose(0.5)
        assert await bench.stored() == list(range(200))
        assert (bench.store.most_running, bench.warnings) == (1, [])
        assert bench.store.appends < 50
        assert files(state) == []


@pytest.mark.parametrize("mode", ["fails", "hangs", "forgets to answer"])
async def test_a_store_that_comes_back_gets_every_entry_once(mode: str, state: Path) -> None:
    async with bench_with() as bench:
        bench.put(0)
        await until(lambda: bench.store.appends)
        bench.store.mode = mode
        for number in range(1, 50):
            bench.put(number)
            await asyncio.sleep(0.002)
        await until(lambda: bench.warnings)
        await until(lambda: files(state))
        for number in range(50, 100):
            bench.put(number)
        bench.store.mode = "works"
        await until(lambda: not files(state))
        assert await bench.stored() == list(range(100))
        bench.put(100)
        await bench.writer.aclose(0.5)
        assert await bench.stored() == list(range(101))
        [warning] = bench.warnings
        assert warning.kind is WarningKind.STORE_FAILED
        assert bench.spool.path in warning.detail


async def test_a_flush_waits_until_the_store_works_again(set_limits: SetLimits) -> None:
    set_limits(append_outage=10.0, append_linger=3600.0)
    bench = Bench()
    await bench.writer.flush()  # nothing to do
    bench.store.mode = "fails"
    bench.put(1)
    bench.put(2)
    flushing = asyncio.ensure_future(bench.writer.flush())
    await until(lambda: bench.store.appends > 1)
    assert not flushing.done()
    bench.store.mode = "works"
    await flushing
    assert await bench.stored() == [1, 2]
    await bench.writer.aclose(1.0)


async def test_a_short_failure_needs_no_spool(set_limits: SetLimits, state: Path) -> None:
    set_limits(append_outage=60.0)
    async with bench_with() as bench:
        bench.store.mode = "fails"
        bench.put(1)
        await until(lambda: bench.store.appends >= 2)
        bench.store.mode = "works"
        await bench.writer.aclose(0.5)
        assert (await bench.stored(), bench.warnings, files(state)) == ([1], [], [])


@pytest.mark.parametrize("mode", ["fails", "hangs"])
async def test_what_a_dead_store_did_not_take_is_left_in_a_private_file(
    mode: str, state: Path
) -> None:
    async with bench_with() as bench:
        bench.store.mode = mode
        bench.put(1, 2)
        bench.put(3)
        await bench.writer.aclose(0.5)
        assert "3 entries are not in the store" in bench.warnings[-1].detail
        assert bench.spool.path in bench.warnings[-1].detail
    [file] = files(state)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    lines = [json.loads(line[1:]) for line in file.read_bytes().splitlines()]
    uuids = [entry["uuid"] for batch in left_in(file, b"+") for entry in batch]
    assert uuids == ["1", "2", "3"]
    assert lines[0]["key"] == {"session_id": ID, "subkey": "", "project": "-p"}


async def test_the_next_process_sends_what_an_earlier_one_left(state: Path) -> None:
    store = Store()
    async with bench_with(store) as bench:
        bench.put(1)
        await until(lambda: bench.store.appends)
        bench.store.mode = "fails"
        bench.put(2, 3)
        await bench.writer.aclose(0.5)
    [file] = files(state)
    with file.open("ab") as stream:
        stream.write(b'+{"key": {"session_id"')  # the process died while it wrote this line
    async with bench_with(store) as bench:
        bench.store.mode = "works"
        await bench.resume()
        assert await bench.stored() == [1, 2, 3]
    assert files(state) == []


async def test_a_spool_of_a_process_that_lives_is_left_alone(state: Path) -> None:
    async with bench_with() as bench:
        bench.store.mode = "fails"
        bench.put(1)
        await until(lambda: files(state))
        told: list[SdkWarning] = []
        await send_left_behind(bench.store, told.append)
        [warning] = told
        assert bench.spool.path in warning.detail
        assert "another process uses it" in warning.detail
        await bench.writer.aclose(0.5)
        [left] = left_behind(spool_name(bench.store, ID))
        assert isinstance(left, LeftSpool)
        left.close()


async def test_a_damaged_spool_is_kept(state: Path) -> None:
    state.mkdir(parents=True)
    store = Store()
    (state / f"{spool_name(store, ID)}transcript.old.jsonl").write_bytes(b"+not json\n")
    async with bench_with(store) as bench:
        await bench.resume()
        [file] = files(state)
        assert (file.name.startswith("damaged."), file.read_bytes()) == (True, b"+not json\n")
        [warning] = bench.warnings
        assert str(file) in warning.detail


async def test_a_spool_that_vanishes_does_not_hide_the_others(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = os.scandir

    def scan(directory: str) -> list[os.DirEntry[str]]:
        found = list(listed(directory))
        os.unlink(min(one.path for one in found))  # another process has sent it
        return found

    async with bench_with() as bench:
        for number in range(2):
            leave(bench.store, str(number), {"uuid": str(number)})
        monkeypatch.setattr(os, "scandir", scan)
        await bench.resume()
        assert (await bench.stored(), bench.warnings) == ([1], [])


async def test_spools_that_cannot_be_read_are_reported(state: Path) -> None:
    async with bench_with() as bench:
        name = f"{spool_name(bench.store, ID)}transcript.a.jsonl"
        state.mkdir(parents=True)
        (state / name).symlink_to(state)  # Bridle does not follow links
        await bench.resume()
        (state / name).unlink()
        state.rmdir()
        state.write_text("not a directory")
        await bench.resume()
        link, directory = bench.warnings
        assert str(state / name) in link.detail
        assert str(state) in directory.detail


async def test_a_warning_has_rounded_seconds(state: Path) -> None:
    """The time that is left for the store is computed."""
    async with bench_with() as bench:
        bench.store.mode = "hangs"
        bench.put(1)
        await bench.writer.aclose(0.0999999)
        assert "within 0.1 s" in bench.warnings[0].detail
    async with bench_with() as bench:
        bench.store.mode = "hangs"
        await bench.writer.write(JOURNAL, {"uuid": "1"}, 0.0999999)
        assert "waited for 0.1 s" in bench.warnings[0].detail
        await bench.writer.aclose(0.0)
    with pytest.raises(StoreCallTimeout, match=r"within 0\.1 s"):
        await call_store(0.0999999, asyncio.Event().wait)


@pytest.mark.parametrize("what", ["locked", "damaged", "unreadable", "no directory"])
async def test_a_recovery_needs_every_spool_of_the_journal(state: Path, what: str) -> None:
    async with bench_with() as bench:
        name = f"{spool_name(bench.store, ID)}journal."
        spool = Spool(name, "a")
        path = Path(spool.path)
        if what == "locked":
            spool.write([Batch(JOURNAL, [{"uuid": "1"}], 10, 1)])
        elif what == "no directory":
            state.parent.mkdir(parents=True)
            state.write_text("")
            path = state
        else:
            state.mkdir(parents=True)
            path.write_text("+not json\n") if what == "damaged" else path.symlink_to(state)
        named = path.with_name(f"damaged.{path.name}") if what == "damaged" else path
        with pytest.raises(SessionLoadError, match=re.escape(str(named))):
            await bench.resume(needs_journal=True)
        assert named.is_symlink() or named.exists()
        spool.close()


async def test_a_spool_whose_directory_was_removed_is_written_again(state: Path) -> None:
    async with bench_with() as bench:
        bench.store.mode = "fails"
        bench.put(1)
        await until(lambda: files(state))
        await bench.spooled()
        shutil.rmtree(state)
        await bench.writer.aclose(0.2)
        [file] = files(state)
        assert b'"uuid":"1"' in file.read_bytes()


def test_a_spool_is_not_sent_to_another_database(tmp_path: Path, state: Path) -> None:
    async def main() -> None:
        first, second = SqliteStore(tmp_path / "a.db"), SqliteStore(tmp_path / "b.db")
        leave(first, "me", {"uuid": "1"})
        await send_left_behind(second)
        assert await second.load(KEY) is None
        again = SqliteStore(tmp_path / "a.db")
        await send_left_behind(again)
        assert await first.load(KEY) == [{"uuid": "1"}]
        for store in (first, second, again):
            await store.aclose()

    run(main)  # a thread of the stores may end later
    assert files(state) == []


async def test_a_spool_for_another_store_is_reported(state: Path) -> None:
    async with bench_with() as bench:
        other = leave(Store(), "a", {"uuid": "1"})
        leave(bench.store, "b", {"uuid": "2"})
        await bench.resume()
        [warning] = bench.warnings
        assert warning.kind is WarningKind.STORE_FAILED
        assert str(other) in warning.detail
        assert files(state) == [other]
        assert await bench.stored() == [2]


async def test_every_spool_is_sent_after_the_store_failed_once(state: Path) -> None:
    async with bench_with() as bench:
        left = [leave(bench.store, str(number), {"uuid": str(number)}) for number in range(3)]
        bench.store.mode = "fails"
        with pytest.raises(SessionLoadError, match="the server is down") as caught:
            await bench.resume(0.2)
        assert any(str(file) in str(caught.value) for file in left)
        assert "move the file" in caught.value.fix
        assert files(state) == sorted(left)
        bench.store.mode = "works"
        await bench.resume()
        assert sorted(await bench.stored()) == [0, 1, 2]  # files of the same age have no order
    assert files(state) == []


async def test_a_store_that_fails_for_a_moment_gets_a_spool_before_the_session_resumes(
    state: Path, set_limits: SetLimits
) -> None:
    set_limits(resend_outage=2.0)

    class FailingOnce(Store):
        is_failing = True

        async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
            if self.is_failing:
                self.is_failing = False
                raise ConnectionResetError("connection reset")
            await super().append(key, entries)

    async with bench_with(FailingOnce()) as bench:
        leave(bench.store, "me", {"uuid": "1"}, {"uuid": "2"})
        await bench.resume()
        assert await bench.stored() == [1, 2]
        assert bench.warnings == []
    assert files(state) == []


async def test_a_forked_child_does_not_keep_a_spool_locked(state: Path) -> None:
    async with bench_with() as bench:
        spool = Spool(f"{spool_name(bench.store, ID)}transcript.", "me")
        spool.write([Batch(KEY, [{"uuid": "1"}], 10, 1)])
        [other] = left_behind_after(leave(bench.store, "other", {"uuid": "2"}))
        end, may_end = os.pipe()
        ready, is_ready = os.pipe()
        child = os.fork()
        if not child:
            os.close(may_end)
            os.write(is_ready, b".")
            os.read(end, 1)
            os._exit(0)
        os.read(ready, 1)
        for descriptor in (end, ready, is_ready):
            os.close(descriptor)
        try:
            # The parent still holds both locks.
            found = list(left_behind(spool_name(bench.store, ID)))
            assert [type(one) for one in found] == [SkippedSpool, SkippedSpool]
            spool.close()
            other.close()
            await bench.resume()
            assert sorted(await bench.stored()) == [1, 2]
        finally:
            os.close(may_end)
            os.waitpid(child, 0)
    assert files(state) == []


def left_behind_after(path: Path) -> list[LeftSpool]:
    """Take a spool file."""
    taken = LeftSpool.take(str(path))
    return [taken] if isinstance(taken, LeftSpool) else []


@pytest.mark.parametrize("error", [ValueError, OSError, KeyError])
async def test_a_warning_shows_nothing_of_an_entry_that_redact_rejects(
    state: Path, error: type[Exception]
) -> None:
    def redact(entry: Entry) -> Entry:
        raise error(f"unexpected value {entry['uuid']}")

    async with bench_with(Store(redact=redact)) as bench:
        bench.store.mode = "fails"
        bench.writer.put(KEY, [{"uuid": "card 4111"}], 10)
        await bench.writer.aclose(0.5)
        details = [one.detail for one in bench.warnings]
        assert any(error.__name__ in one for one in details)
        assert all("4111" not in one for one in details)
    assert files(state) == []


async def test_entries_with_half_a_surrogate_pair_are_spooled_and_sent(state: Path) -> None:
    odd = {"uuid": "2", "text": "a\ud800b"}
    async with bench_with() as bench:
        bench.store.mode = "fails"
        bench.put(1)
        bench.writer.put(KEY, [odd], 10)
        journal = Journal(bench.writer, SessionKey(ID, "journal", "-p"))
        await journal.write({"uuid": "3", "text": "\ud800"})
        bench.put(4)
        bench.store.mode = "works"
        await bench.writer.aclose(0.5)
        assert await bench.store.load(KEY) == [{"uuid": "1"}, odd, {"uuid": "4"}]
    assert files(state) == []


class Rejecting(Store):
    """A store that rejects the entries with a uuid of three digits."""

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        if any(len(str(entry["uuid"])) == 3 for entry in entries):
            raise ValueError("too large")
        await super().append(key, entries)


class Hanging(Store):
    """A store that hangs for the entries with a uuid of three digits."""

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        if any(len(str(entry["uuid"])) == 3 for entry in entries):
            await asyncio.Event().wait()
        await super().append(key, entries)


@pytest.mark.parametrize("is_one_batch", [True, False])
@pytest.mark.parametrize("numbers", [[200], [1, 200], [200, 201, 202, 203, 4], [1, 200, 201, 3]])
async def test_rejected_entries_of_a_spool_do_not_prevent_a_resume(
    state: Path, numbers: list[int], *, is_one_batch: bool
) -> None:
    """Also if they are the last ones, or several in a row."""
    entries: list[Entry] = [{"uuid": str(number)} for number in numbers]
    async with bench_with(Rejecting()) as bench:
        file = leave(bench.store, "a", *entries, is_one_batch=is_one_batch)
        await bench.resume()
        assert await bench.stored() == [number for number in numbers if number < 100]
        [warning] = bench.warnings
        assert str(file) in warning.detail
        assert left_in(file) == [[{"uuid": str(number)}] for number in numbers if number >= 100]


async def test_a_store_that_takes_nothing_fails_the_start(state: Path) -> None:
    async with bench_with() as bench:
        left = leave(bench.store, "a", {"uuid": "1"}, {"uuid": "2"})
        bench.store.mode = "fails"
        with pytest.raises(SessionLoadError, match="the server is down") as caught:
            await bench.resume(0.5)
        assert str(left) in str(caught.value)
        bench.store.mode = "works"
        await bench.resume()
        assert await bench.stored() == [1, 2]


@pytest.mark.parametrize("is_one_batch", [True, False])
async def test_a_resume_sets_aside_only_the_entry_that_the_store_rejects(
    state: Path, *, is_one_batch: bool
) -> None:
    entries: list[Entry] = [{"uuid": "1"}, {"uuid": "200"}, {"uuid": "3"}]
    async with bench_with(Rejecting()) as bench:
        file = leave(bench.store, "a", *entries, is_one_batch=is_one_batch)
        with file.open("ab") as stream:
            stream.write(b'+{"key": {"session_id"')  # the process died while it wrote this line
        for _ in range(2):
            bench.warnings.clear()
            await bench.resume()
            assert await bench.stored() == [1, 3]
            [warning] = bench.warnings
            assert str(file) in warning.detail
            assert "too large" in warning.detail
        assert left_in(file, b"!") == [[{"uuid": "200"}]]


@pytest.mark.parametrize("is_rejected", [True, False])
async def test_entries_on_which_the_store_hangs_do_not_prevent_a_resume(
    state: Path, set_limits: SetLimits, *, is_rejected: bool
) -> None:
    set_limits(resend=0.2)
    async with bench_with(Hanging()) as bench:
        count = 100 if is_rejected else 6
        hanging: list[Entry] = [{"uuid": str(200 + number)} for number in range(count)]
        spool = Spool(f"{spool_name(bench.store, ID)}transcript.", "a")
        if is_rejected:
            spool.write_rejected(KEY, hanging)
        else:
            spool.write([Batch(KEY, [entry], 10, 1) for entry in hanging])
        spool.write([Batch(KEY, [{"uuid": "1"}], 10, 1)])
        spool.close()
        await bench.resume(10.0)
        assert await bench.stored() == [1]
        [warning] = bench.warnings
        assert spool.path in warning.detail
        assert "append did not end within" in warning.detail
        assert left_in(Path(spool.path), b"!") == [[entry] for entry in hanging]


async def test_many_rejected_batches_do_not_prevent_a_resume(
    state: Path, set_limits: SetLimits
) -> None:
    """The store gets time to recover only for the first of them."""
    set_limits(resend_outage=0.4)
    async with bench_with(Rejecting()) as bench:
        numbers = range(200, 210)
        file = leave(bench.store, "a", *[{"uuid": str(number)} for number in numbers])
        await bench.resume(2.0)
        assert [line[:1] for line in file.read_bytes().splitlines()] == [b"-"] * 10 + [b"!"] * 10


async def test_a_resume_that_fails_keeps_what_it_learned_about_rejected_entries(
    state: Path,
) -> None:
    class Breaking(Rejecting):
        async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
            if any(entry["uuid"] == "1" for entry in entries):
                self.mode = "fails"
            await super().append(key, entries)

    async with bench_with(Breaking()) as bench:
        file = leave(bench.store, "a", {"uuid": "200"}, {"uuid": "1"})
        with pytest.raises(SessionLoadError):
            await bench.resume(0.5)
        assert [line[:1] for line in file.read_bytes().splitlines()] == [b"-", b"+", b"!"]


async def test_a_recovery_needs_a_rejected_entry_of_the_journal(state: Path) -> None:
    async with bench_with(Rejecting()) as bench:
        spool = Spool(f"{spool_name(bench.store, ID)}journal.", "a")
        spool.write_rejected(JOURNAL, [{"uuid": "200"}])
        spool.close()
        await bench.resume()
        assert len(bench.warnings) == 1
        with pytest.raises(SessionLoadError, match=re.escape(spool.path)):
            await bench.resume(0.3, needs_journal=True)


@pytest.mark.parametrize("is_one_batch", [True, False])
@pytest.mark.parametrize("numbers", [[200], [1, 200], [200, 201, 202, 203, 4], [1, 200, 201, 3]])
async def test_rejected_entries_hold_up_no_others_and_keep_their_order(
    state: Path, numbers: list[int], *, is_one_batch: bool
) -> None:
    """Also if they are the last ones, or several in a row."""
    async with bench_with(Rejecting()) as bench:
        if is_one_batch:
            bench.put(*numbers)
        else:
            for number in numbers:
                bench.put(number)
                await bench.handled()
        await bench.handled()
        assert await bench.stored() == [number for number in numbers if number < 100]
        await bench.writer.aclose(0.5)
        assert bench.spool.path in bench.warnings[-1].detail
    [file] = files(state)
    kept = [[{"uuid": str(number)}] for number in numbers if number >= 100]
    assert left_in(file) == left_in(file, b"!") == kept


class Flapping(Store):
    """A store that fails for most appends."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = random.Random(seed)

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        if self.chance.random() < 0.7:
            raise ConnectionError("try again")
        await super().append(key, entries)


@pytest.mark.parametrize("seed", range(4))
async def test_a_store_that_fails_now_and_then_gets_entries_in_order(
    state: Path, replace_steps: ReplaceSteps, seed: int
) -> None:
    """Those that it seems to reject come later, or stay in the spool."""
    stored: list[int] = []
    rejected: set[int] = set()
    write_rejected = Spool.write_rejected

    def note(spool: Spool, key: SessionKey, entries: Sequence[Entry], *more: Any) -> Any:
        rejected.update(int(str(entry["uuid"])) for entry in entries)
        return write_rejected(spool, key, entries, *more)

    replace_steps(spool_rejected=note)
    async with bench_with(Flapping(seed)) as bench:
        for number in range(8):
            bench.put(number)
            await asyncio.sleep(0.01)
        await bench.writer.aclose(5.0)
        stored.extend(await bench.stored())
    parts = [part for file in files(state) for part in left_in(file)]
    kept = [int(entry["uuid"]) for part in parts for entry in part]
    in_order = [one for one in stored if one not in rejected]
    assert in_order == sorted(in_order)
    assert len(stored) == len(set(stored))
    assert {*stored, *kept} == set(range(8))


class Scripted(Store):
    """A store that fails for the appends that the script says, and then works."""

    def __init__(self, *fails: bool) -> None:
        super().__init__()
        self.fails = iter(fails)

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        if next(self.fails, False):
            raise ConnectionError("try again")
        await super().append(key, entries)


@pytest.mark.parametrize("is_spooled", [True, False])
async def test_a_store_that_goes_down_while_it_rejects_entries_gets_the_others_in_order(
    state: Path, set_limits: SetLimits, *, is_spooled: bool
) -> None:
    """It rejects 0, takes 1, and fails for 2 and for the probe. Then it works."""
    set_limits(append_outage=0.0)
    if is_spooled:
        set_limits(unstored_memory=1)
    batch, one_by_one = [True, True], [True, False, True, False, True, True]
    async with bench_with(Scripted(*batch, *one_by_one)) as bench:
        bench.put(0, 1, 2, 3)
        await bench.writer.flush()
        assert await bench.stored() == [1, 2, 3, 0]
        assert [one.detail for one in bench.warnings if "1 entry is rejected" in one.detail]
        await bench.writer.aclose(5.0)
    assert files(state) == []


async def test_a_store_that_goes_down_during_a_resume_gets_the_others_in_order(
    state: Path, set_limits: SetLimits
) -> None:
    set_limits(resend_outage=0.0)
    entries: list[Entry] = [{"uuid": str(number)} for number in range(4)]
    batch, one_by_one = [True], [True, False, True, False, True, True]
    async with bench_with(Scripted(*batch, *one_by_one)) as bench:
        file = leave(bench.store, "a", *entries, is_one_batch=True)
        await bench.resume()
        assert await bench.stored() == [1, 2, 3]
        [warning] = bench.warnings
        assert str(file) in warning.detail
        await bench.resume()
        assert await bench.stored() == [1, 2, 3, 0]
    assert files(state) == []


async def test_an_entry_on_which_the_store_hangs_holds_up_no_others(state: Path) -> None:
    async with bench_with(Hanging()) as bench:
        bench.put(1, 200, 3)
        await bench.handled()
        assert await bench.stored() == [1, 3]
        await bench.writer.aclose(0.5)


class PartlyDown(Store):
    """A store that can fail for transcripts while it takes the journal."""

    is_down = True

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        if self.is_down and not key.subkey:
            raise ConnectionError("a part of the database is down")
        await super().append(key, entries)


@pytest.mark.parametrize("when", ["later", "at the end"])
async def test_entries_that_seemed_to_be_rejected_are_sent_again(state: Path, when: str) -> None:
    store = PartlyDown()
    async with bench_with(store) as bench:
        for number in (1, 2):
            bench.put(number)
            await bench.handled()
        assert b"!" in files(state)[0].read_bytes()
        store.is_down = False
        if when == "later":
            bench.put(3)
            await until(lambda: not files(state))
            assert sorted(await bench.stored()) == [1, 2, 3]
        await bench.writer.aclose(5.0)
        assert sorted(await bench.stored()) == ([1, 2, 3] if when == "later" else [1, 2])
    assert files(state) == []


async def test_a_rejected_entry_is_sent_again_once(state: Path) -> None:
    class Counting(Rejecting):
        tries = 0

        async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
            self.tries += {"uuid": "200"} in entries
            await super().append(key, entries)

    store = Counting()
    async with bench_with(store) as bench:
        bench.put(200)
        await bench.handled()
        before = store.tries
        for number in (1, 2, 3):
            bench.put(number)
            await bench.handled()
        await bench.writer.aclose(5.0)
        assert store.tries == before + 1
        assert await bench.stored() == [1, 2, 3]
    assert b'"uuid":"200"' in files(state)[0].read_bytes()


async def test_a_hanging_entry_does_not_keep_other_rejected_ones_back(state: Path) -> None:
    """The others are sent again when the store takes the next entry, or at the end."""

    class Shard(Hanging):
        """Hangs for one entry, and rejects others until it is repaired."""

        is_broken = True

        async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
            if self.is_broken and key == KEY and {"uuid": "200"} not in entries:
                raise ValueError("this part of the database is down")
            await super().append(key, entries)

    store = Shard()
    async with bench_with(store) as bench:
        bench.put(200)
        bench.put(1)
        bench.put(2)
        await bench.handled()
        store.is_broken = False
        bench.put(3)
        await bench.handled()
        await bench.writer.aclose(5.0)
        assert sorted(await bench.stored()) == [1, 2, 3]


async def test_a_store_without_journals_gets_no_probe(state: Path) -> None:
    class Transcripts(Rejecting):
        has_journals = False

        async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
            assert key == KEY
            await super().append(key, entries)

    async with bench_with(Transcripts()) as bench:
        bench.put(1, 200, 2)
        await bench.handled()
        assert await bench.stored() == [1, 2]
        bench.put(3)
        await bench.writer.aclose(5.0)
        assert await bench.stored() == [1, 2, 3]
    assert b'"uuid":"200"' in files(state)[0].read_bytes()


@pytest.mark.parametrize("how", ["changed", "cut off"])
async def test_a_batch_that_the_spool_has_no_more_stops_no_others(state: Path, how: str) -> None:
    async with bench_with() as bench:
        bench.store.mode = "fails"
        for number in (1, 2):
            bench.put(number)
            await bench.spooled()
        [file] = files(state)
        with file.open("r+b") as stream:
            stream.seek(5)
            stream.write(b"\0") if how == "changed" else stream.truncate()
        bench.store.mode = "works"
        await bench.handled()
        lost = [one.detail for one in bench.warnings if "lost" in one.detail]
        assert len(lost) == (1 if how == "changed" else 2)
        assert str(file) in lost[0]
        bench.put(3)
        await bench.writer.aclose(5.0)
        assert await bench.stored() == ([2, 3] if how == "changed" else [3])


async def test_a_redaction_that_rejects_unknown_types_holds_up_no_entries(state: Path) -> None:
    """A probe has nothing to redact, so the function does not get it."""

    def redact(entry: Entry) -> Entry:
        assert "type" not in entry
        return entry

    async with bench_with(Rejecting(redact=redact)) as bench:
        bench.put(200, 1, 2)
        await bench.handled()
        assert await bench.stored() == [1, 2]
        await bench.writer.aclose(0.5)


async def test_rejected_entries_are_dropped_if_the_spool_fails_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    async with bench_with(Rejecting()) as bench:
        bench.put(1, 200, 3)
        await bench.handled()
        assert await bench.stored() == [1, 3]
        [lost] = [one.detail for one in bench.warnings if "1 entry is lost" in one.detail]
        assert "too large" in lost
        await bench.writer.aclose(0.5)


@pytest.mark.parametrize("mode", ["works", "fails"])
async def test_an_entry_that_cannot_be_redacted_does_not_take_others_with_it(
    mode: str, state: Path
) -> None:
    def redact(entry: Entry) -> Entry:
        if entry["uuid"] == "2":
            raise KeyError("message")
        return entry

    async with bench_with(Store(redact=redact)) as bench:
        bench.store.mode = mode
        for number in range(5):
            bench.put(number)
            await until(lambda: files(state) or mode == "works")
        bench.store.mode = "works"
        await bench.writer.aclose(5.0)
        assert await bench.stored() == [0, 1, 3, 4]
        lost = [one.detail for one in bench.warnings if "1 entry is lost" in one.detail]
        assert len(lost) == 1
        assert "KeyError" in lost[0]
    assert files(state) == []


async def test_a_spool_that_keeps_failing_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    async with bench_with() as bench:
        bench.store.mode = "fails"
        for number in range(5):
            bench.put(number)
            await asyncio.sleep(0.1)
        assert len([one for one in bench.warnings if "failed too" in one.detail]) == 1
        bench.store.mode = "works"
        await bench.writer.aclose(5.0)
        assert await bench.stored() == [0, 1, 2, 3, 4]


async def test_a_store_that_hangs_while_it_gets_a_spool_is_named_with_the_file(state: Path) -> None:
    async with bench_with() as bench:
        file = leave(bench.store, "a", {"uuid": "1"})
        bench.store.mode = "hangs"
        with pytest.raises(SessionLoadTimeout, match=re.escape(str(file))):
            await bench.resume(0.1)
        assert files(state) == [file]


def said(uuid: str, parent: str | None, minute: int) -> dict[str, object]:
    time = f"2026-01-01T00:{minute:02}:00.000Z"
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "timestamp": time}


@pytest.mark.parametrize("named", [True, False])
async def test_an_old_spool_does_not_hide_newer_messages(state: Path, *, named: bool) -> None:
    """Another machine has continued the conversation since the spool was left behind."""
    async with bench_with() as bench:
        stored = [said("1", None, 1), said("3", "1", 3)]
        if named:
            stored.append({"type": "last-prompt", "leafUuid": "3"})
        await bench.store.append(KEY, stored)
        title: Mapping[str, object] = {"type": "custom-title", "customTitle": "mine"}
        older = [said("2", "1", 2), title]
        file = leave(bench.store, "a", *older, {"type": "last-prompt", "leafUuid": "2"})
        await bench.resume()
        assert await bench.store.load(KEY) == ([*stored, *older] if named else stored)
        [warning] = bench.warnings
        assert "newer messages" in warning.detail
        assert file.exists() is (str(file) in warning.detail) is not named


async def test_an_old_spool_does_not_replace_a_newer_title(state: Path) -> None:
    first: dict[str, object] = {"uuid": "1", "type": "user", "timestamp": "2026-01-01T00:00:00Z"}
    later = {"type": "custom-title", "customTitle": "new", "timestamp": "2026-01-03T00:00:00Z"}
    async with bench_with() as bench:
        await bench.store.append(KEY, [first, {"uuid": "3", **later}])
        spooled = {**first, "uuid": "2", "parentUuid": "1", "timestamp": "2026-01-02T00:00:00Z"}
        leave(bench.store, "a", spooled, {"type": "custom-title", "customTitle": "old"})
        await bench.resume()
        found = await bench.store.load(KEY) or []
        assert [one.get("customTitle", one.get("uuid")) for one in found] == ["1", "new", "2"]
    assert files(state) == []


async def test_the_spool_of_a_journal_does_not_need_the_transcript(state: Path) -> None:
    class CountingLoads(Store):
        loads = 0

        async def load(self, key: SessionKey) -> list[dict[str, object]] | None:
            self.loads += 1
            return await super().load(key)

    store = CountingLoads()
    async with bench_with(store):
        spool = Spool(f"{spool_name(store, ID)}journal.", "me")
        spool.write([Batch(JOURNAL, [{"uuid": "1"}], 10, 1)])
        spool.close()
        await send_left_behind(store)
        assert store.loads == 0
        assert await store.load(JOURNAL) == [{"uuid": "1"}]


async def test_a_spool_that_continues_or_rewinds_the_conversation_is_sent_whole(
    state: Path,
) -> None:
    async with bench_with() as bench:
        await bench.store.append(KEY, [said("1", None, 1), said("2", "1", 2)])
        named: Entry = {"type": "last-prompt", "leafUuid": "3"}
        leave(bench.store, "a", said("3", "1", 3), named, after="2")
        await bench.resume()
        named = {"type": "last-prompt", "leafUuid": "4"}
        leave(bench.store, "b", said("4", "3", 4), named, after="3")
        await bench.resume()
        found = await bench.store.load(KEY) or []
        assert [entry.get("uuid") for entry in found] == ["1", "2", "3", None, "4", None]
        assert bench.warnings == []
    assert files(state) == []


async def test_a_spool_is_free_after_taking_it_was_cancelled(
    state: Path, replace_steps: ReplaceSteps
) -> None:
    is_taking, may_take = threading.Event(), threading.Event()
    take = LeftSpool.take

    def slow_take(path: str) -> LeftSpool | SkippedSpool | None:
        is_taking.set()
        assert may_take.wait(10.0)
        return take(path)

    async with bench_with() as bench:
        leave(bench.store, "me", {"uuid": "1"})
        replace_steps(take_spool=slow_take)
        sending = asyncio.ensure_future(send_left_behind(bench.store))
        await until(is_taking.is_set)
        sending.cancel()
        await asyncio.sleep(0)
        may_take.set()
        await asyncio.wait([sending])
        await bench.resume()
        assert await bench.stored() == [1]


def test_stores_on_different_databases_have_different_spools() -> None:
    stores = [
        MemoryStore(),
        MemoryStore(),
        PostgresStore("postgresql://me:secret@host/a"),
        PostgresStore("postgresql://me:secret@host/b"),
        PostgresStore("postgresql://me:secret@host/a?options=-csearch_path%3Dtenant"),
        RedisStore("redis://host/0"),
        RedisStore("redis://host/1"),
        RedisStore("redis://host/0", prefix="tenant:"),
    ]
    assert len({spool_name(store, ID) for store in stores}) == len(stores)


def test_the_spool_of_a_database_does_not_depend_on_the_password() -> None:
    for one, other in (
        (PostgresStore("postgresql://me:old@host/a"), PostgresStore("postgresql://me:new@host/a")),
        (RedisStore("redis://me:old@host/0"), RedisStore("redis://me:new@host:6379")),
    ):
        assert spool_name(one, ID) == spool_name(other, ID)


async def test_memory_does_not_grow_while_the_store_hangs(state: Path) -> None:
    async with bench_with() as bench:
        bench.store.mode = "hangs"
        for number in range(64):
            bench.put(number, size=MAX_MEMORY // 8)
            await until(lambda: bench.writer._backlog.size < MAX_MEMORY)
        await bench.spooled()
        bench.store.mode = "works"
        await until(lambda: not files(state))
        assert await bench.stored() == list(range(64))
        await bench.writer.aclose(0.5)


async def test_a_burst_of_entries_loses_none(state: Path) -> None:
    async with bench_with() as bench:
        for number in range(10):
            bench.put(number, size=MAX_UNSPOOLED // 4)
        await bench.writer.aclose(0.5)
        assert await bench.stored() == list(range(10))
    assert files(state) == []


async def test_entries_are_dropped_only_after_the_spool_failed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    async with bench_with() as bench:
        bench.store.mode = "fails"
        bench.put(1, size=MAX_UNSPOOLED)
        await until(lambda: any("failed too" in warning.detail for warning in bench.warnings))
        bench.put(2)
        assert any("1 entries were dropped" in warning.detail for warning in bench.warnings)
        bench.store.mode = "works"
        await bench.writer.aclose(0.5)
        assert await bench.stored() == [1]


async def test_the_spool_holds_only_redacted_entries(state: Path) -> None:
    store = Store(redact=lambda entry: {**entry, "text": "..."})
    async with bench_with(store) as bench:
        bench.store.mode = "fails"
        bench.writer.put(KEY, [{"uuid": "1", "text": "secret"}], 10)
        await bench.writer.aclose(0.5)
    [file] = files(state)
    assert b"secret" not in file.read_bytes()
    assert b'"text":"..."' in file.read_bytes()


async def test_a_redaction_that_fails_writes_nothing(state: Path) -> None:
    def redact(_: Entry) -> Entry:
        raise ValueError("cannot read this")

    async with bench_with(Store(redact=redact)) as bench:
        bench.writer.put(KEY, [{"uuid": "1", "text": "secret"}], 10)
        await bench.writer.aclose(0.5)
        assert "1 entry is lost" in bench.warnings[-1].detail
    assert files(state) == []


async def test_a_writer_that_is_cancelled_still_spools(state: Path) -> None:
    async with bench_with() as bench:
        bench.store.mode = "hangs"
        bench.put(1)
        closing = asyncio.ensure_future(bench.writer.aclose(60.0))
        await until(lambda: bench.store.appends)
        closing.cancel()
        await asyncio.wait([closing])
    [file] = files(state)
    assert b'"uuid":"1"' in file.read_bytes()


async def test_a_spool_that_cannot_be_written_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    async with bench_with() as bench:
        bench.store.mode = "fails"
        bench.put(1)
        await until(lambda: len(bench.warnings) >= 2)
        assert "failed too" in bench.warnings[1].detail
        bench.store.mode = "works"
        await bench.writer.aclose(0.5)
        assert await bench.stored() == [1]


# ---------------------------------------------------------------- the journal

JOURNAL = SessionKey(ID, "journal", "-p")


async def test_a_journal_entry_is_in_the_store_when_write_returns() -> None:
    async with bench_with() as bench:
        journal = Journal(bench.writer, JOURNAL)
        await asyncio.gather(*(journal.write({"uuid": str(number)}) for number in range(10)))
        found = await bench.store.load(JOURNAL) or []
        assert [entry["uuid"] for entry in found] == [str(number) for number in range(10)]
        await bench.writer.aclose(0.5)


@pytest.mark.parametrize("mode", ["fails", "hangs"])
async def test_a_journal_entry_goes_to_the_spool_if_the_store_does_not_answer(
    mode: str, state: Path, set_limits: SetLimits
) -> None:
    set_limits(journal_wait=0.2, append_outage=600.0, append=600.0)
    async with bench_with() as bench:
        loop = asyncio.get_running_loop()
        bench.store.mode = mode
        journal = Journal(bench.writer, JOURNAL)
        before = loop.time()
        await journal.write({"uuid": "1"})
        assert loop.time() - before > 0.15
        [file] = files(state)
        assert b'"uuid":"1"' in file.read_bytes()
        [warning] = bench.warnings
        assert warning.kind is WarningKind.STORE_FAILED
        await journal.write({"uuid": "2"})  # the store is known to fail, so this does not wait
        assert b'"uuid":"2"' in file.read_bytes()
        bench.store.mode = "works"
        assert bench.writer._appending is not None
        bench.writer._appending.cancel()  # as the event loop does when the program ends
        await bench.writer.aclose(0.5)
        assert [entry["uuid"] for entry in await bench.store.load(JOURNAL) or []] == ["1", "2"]
    assert files(state) == []


async def test_a_journal_entry_that_neither_store_nor_spool_has_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    set_limits(journal_wait=0.2)
    async with bench_with() as bench:
        bench.store.mode = "fails"
        journal = Journal(bench.writer, JOURNAL)
        with pytest.raises(StoreError) as caught:
            await journal.write({"uuid": "1"})
        assert (caught.value.store, caught.value.operation) == ("Store", "append")
        assert bench.spool.path in str(caught.value)
        bench.put(1, size=MAX_UNSPOOLED - len('{"uuid":"1"}'))
        with pytest.raises(StoreError):  # too much waits, so this entry is dropped
            await journal.write({"uuid": "2"})
        bench.store.mode = "works"
        await bench.writer.aclose(0.5)
        assert await bench.store.load(JOURNAL) == [{"uuid": "1"}]


async def test_the_error_of_a_redaction_is_not_shown(state: Path) -> None:
    def redact(_: Entry) -> Entry:
        raise ValueError("unexpected value: secret")

    async with bench_with(Store(redact=redact)) as bench:
        with pytest.raises(StoreError) as caught:
            await bench.writer.write(JOURNAL, {"uuid": "1", "text": "secret"}, 0.2)
        assert "ValueError" in str(caught.value)
        await bench.writer.aclose(0.5)
        told = [str(caught.value), *(warning.detail for warning in bench.warnings)]
        assert not any("secret" in text for text in told)


class Gated(Store):
    """A store that answers when the test lets it."""

    def __init__(self, **policy: Any) -> None:
        super().__init__(**policy)
        self.gate = asyncio.Event()

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        if any(len(str(entry["uuid"])) == 3 for entry in entries):
            raise ValueError("too large")
        self.appends += 1
        await self.gate.wait()
        await MemoryStore.append(self, key, entries)


def redact_all_but_two(entry: Entry) -> Entry:
    if entry["uuid"] == "2":
        raise KeyError("message")
    return entry


async def test_each_caller_gets_the_result_of_its_own_entry(state: Path) -> None:
    async with bench_with(Gated(redact=redact_all_but_two)) as bench:
        assert isinstance(bench.store, Gated)
        writing = [asyncio.ensure_future(write(bench, "0"))]
        await until(lambda: bench.store.appends)
        # The next entries wait together.
        writing += [asyncio.ensure_future(write(bench, uuid)) for uuid in ("1", "2", "3")]
        await asyncio.sleep(0)
        bench.store.gate.set()
        problems = await asyncio.gather(*writing, return_exceptions=True)
        assert [type(one) for one in problems] == [type(None), type(None), StoreError, type(None)]
        await bench.writer.aclose(0.5)
        found = await bench.store.load(JOURNAL) or []
        assert [entry["uuid"] for entry in found] == ["0", "1", "3"]


async def write(bench: Bench, uuid: str) -> None:
    await bench.writer.write(JOURNAL, {"uuid": uuid}, 5.0)


async def test_an_entry_in_the_store_counts_as_kept_although_the_spool_fails(
    state: Path, monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits
) -> None:
    set_limits(append=60.0)
    gate = threading.Event()

    def fail(_: object) -> list[Any]:
        gate.wait()
        raise OSError("full")

    async with bench_with(Gated()) as bench:
        assert isinstance(bench.store, Gated)
        monkeypatch.setattr(bench.spool, "write", fail)
        writing = asyncio.ensure_future(bench.writer.write(JOURNAL, {"uuid": "1"}, 0.05))
        await until(lambda: bench.writer._spooling is not None)
        bench.store.gate.set()
        await until(lambda: bench.store._sessions)
        for _ in range(5):  # the task waits for the spool now
            await asyncio.sleep(0)
        gate.set()
        await writing
        monkeypatch.undo()
        await bench.writer.aclose(0.5)


async def test_a_batch_that_is_dropped_while_it_is_appended_stops_no_others(
    state: Path, set_limits: SetLimits
) -> None:
    set_limits(append=60.0)
    async with bench_with(Gated(redact=redact_all_but_two)) as bench:
        assert isinstance(bench.store, Gated)
        bench.put(200)
        bench.store.gate.set()
        await bench.handled()
        bench.store.gate.clear()
        appends = bench.store.appends
        bench.put(2)
        await until(lambda: bench.store.appends > appends)
        bench.put(3, size=MAX_MEMORY + 1)  # goes to the spool at once, and with it the first one
        await until(lambda: any("1 entry is lost" in one.detail for one in bench.warnings))
        bench.store.gate.set()
        await bench.handled()
        assert await bench.stored() == [3]
        await bench.writer.aclose(0.5)


def test_a_closed_spool_creates_no_file(state: Path) -> None:
    spool = Spool("name.", "me")
    batch = Batch(KEY, [{"uuid": "1"}], 10, 1)
    assert spool.write([batch]) == []
    assert batch.place is not None
    spool.mark_done(batch.place)
    spool.close()
    calls: list[Callable[[], object]] = [
        lambda: spool.write([Batch(KEY, [{"uuid": "2"}], 10, 1)]),
        lambda: spool.write_rejected(KEY, [{"uuid": "2"}]),
        lambda: spool.read((0, 1)),
        lambda: spool.mark_done((0, 1)),
    ]
    for call in calls:
        with pytest.raises(OSError, match="closed"):
            call()
    spool.close()
    assert files(state) == []


async def test_entries_for_a_closed_writer_are_dropped_with_a_warning(state: Path) -> None:
    async with bench_with() as bench:
        await bench.writer.aclose(0.5)
        bench.store.mode = "fails"
        bench.put(1, 2)
        [warning] = bench.warnings
        assert "2 entries are lost" in warning.detail
        with pytest.raises(StoreError, match="closed"):
            await bench.writer.write(JOURNAL, {"uuid": "3"}, 0.1)
    assert files(state) == []
