"""Append entries to a session store in the background, in order, and lose none if it fails.

Adding entries never waits. One task appends them, batch by batch, and repeats what failed. If the
store fails for longer than a moment, or too much waits in memory, the entries go to a spool file,
from which the task appends them once the store works again. An entry that the store rejects stays
in the spool file and is sent again once (see ``rejections``). One that cannot be redacted is
dropped. An append may be repeated although the store has done it. Stores skip entries whose uuid
they have.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from bridle._observe.user_values import describe_error
from bridle._records.session_store import Entry, SessionKey, SessionStore, has_journals
from bridle._runtime.stored_errors import to_raise
from bridle.errors import SessionInUseError, StoreError
from bridle.events import SdkWarning, WarningKind
from bridle.sessions._backlog import (
    APPEND_TIMEOUT,
    LINGER,
    MAX_BATCH_BYTES,
    MAX_FAILING,
    Backlog,
    Batch,
    delay_after,
)
from bridle.sessions._outbox.rejected import Appended, SetAside, append_singly
from bridle.sessions._outbox.spool import Spool, SpoolDamaged
from bridle.sessions._outbox.storable import Unstorable, split_storable
from bridle.sessions._start_calls import in_thread
from bridle.sessions._store_calls import StoreCallCancelled, StoreCallTimeout, call_store
from bridle.sessions._stores.entries import to_rows
from bridle.sessions._transcripts.branches import choose_again

_T = TypeVar("_T")


Append: TypeAlias = Callable[[SessionKey, Sequence[Entry]], Awaitable[None]]

_FULL = "the disk is full"

_LAST_DELAY = 0.25
"""Longest pause, in seconds, between two attempts while the writer closes."""


class _Caller(NamedTuple):
    """A caller that waits until its entry is in the store or in the spool."""

    entry: Entry
    #: The result is None, or why neither has the entry.
    kept: asyncio.Future[str | None]


class StoreWriter:
    """Appends entries to a store. Belongs to one event loop.

    Args:
        store: the store.
        spool: gets what the store does not take.
        warn: reports a warning.
        append: appends entries to the store. It may raise SessionInUseError: then the session
            belongs to another process, and what waits goes to the spool. None calls the store.
        after: the uuid of the last message that the store has.
    """

    def __init__(
        self,
        store: SessionStore,
        spool: Spool,
        warn: Callable[[SdkWarning], None],
        append: Append | None = None,
        after: str | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._spool = spool
        self._warn = warn
        self._send = append or self._send_plainly
        self._backlog = Backlog(after)
        # Set once another process has continued the session. Then nothing more is sent.
        self._lost: SessionInUseError | None = None
        self._appending: asyncio.Task[None] | None = None
        # The write to the spool that runs in a thread.
        self._spooling: asyncio.Future[list[Unstorable]] | None = None
        # By the id of the batch that has their entry.
        self._callers: dict[int, list[_Caller]] = {}
        self._failures = 0
        self._failing_since = 0.0
        # Whether the store has rejected an entry. Then it is asked sooner which others it rejects.
        self._rejects = False
        # The rejected entries that were not sent again yet.
        self._rejected: dict[SessionKey, SetAside] = {}
        # Set when the writer closes, to end a pause.
        self._is_closing = asyncio.Event()
        # Set to append at once, without a wait for more entries.
        self._is_urgent = asyncio.Event()
        # Callers of `flush`.
        self._flushes = 0
        # Set by `hurry`, until nothing waits.
        self._hurries = False
        self._is_closed = False

    def put(self, key: SessionKey, entries: Sequence[Entry], size: int) -> Batch | None:
        """Add entries of about ``size`` bytes. Never waits. Return None if nothing was added."""
        if not entries:
            return None
        if self._is_closed:
            self._tell(f"{_entries(len(entries))} lost: the session is closed")
            return None
        batch = self._backlog.add(key, entries, size)
        if batch is None:
            self._tell(f"{self._backlog.dropped} entries were dropped so far")
        if self._backlog.wants_spool:
            self._start_spooling("too many entries wait in memory")
            self._spool_soon()
        if self._is_in_haste:
            self._is_urgent.set()
        _ = self._task()
        return batch

    async def write(self, key: SessionKey, entry: Entry, timeout: float) -> None:
        """Add an entry and wait until the store has it.

        If the store does not have it after ``timeout`` seconds, or is known to fail, wait until the
        entry is in the spool file.

        Raises:
            StoreError: neither the store nor the spool file has the entry. The store may still get
                it later, unless the entry is not JSON.
            SessionInUseError: another process has continued the session. The spool has the entry.
        """
        [row] = to_rows(type(self._store).__name__, [entry], None)
        batch = self.put(key, [entry], len(row.body))
        if batch is None:
            full = f"too many entries wait, and the spool {self._spool.path} fails"
            raise self._not_kept("the session is closed" if self._is_closed else full)
        kept: asyncio.Future[str | None] = self._loop.create_future()
        self._callers.setdefault(id(batch), []).append(_Caller(entry, kept))
        self._is_urgent.set()
        done, _ = await asyncio.wait([kept], timeout=timeout)
        if not done:
            self._start_spooling(f"an entry waited for {round(timeout, 2):g} s")
            await asyncio.wait([kept])
        problem = kept.result()
        if self._lost is not None:
            raise to_raise(self._lost)
        if problem is not None:
            raise self._not_kept(problem)

    def _not_kept(self, problem: str) -> StoreError:
        fix = "Check that the store can be reached and that the spool file can be written."
        if _FULL in problem:
            fix = f"Free space on the disk of {os.path.dirname(self._spool.path)}."
        return StoreError(type(self._store).__name__, "append", problem, fix=fix)

    def hurry(self) -> None:
        """Append what waits now, without a wait for more entries."""
        if self._backlog:
            self._hurries = True
            self._is_urgent.set()

    async def flush(self) -> None:
        """Wait until the store has everything. While the store fails, this waits."""
        self._flushes += 1
        self._is_urgent.set()
        try:
            while self._is_busy:
                await asyncio.wait([self._task()])
        finally:
            self._flushes -= 1

    async def aclose(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds until the store has everything.

        Leave the rest in the spool file. Cancellation: the rest is written to the spool file before
        this ends.
        """
        self._is_closing.set()
        self._is_urgent.set()
        deadline = self._loop.time() + timeout
        try:
            # The loop may have cancelled the task, so it may have to be started again.
            while self._is_busy and (left := deadline - self._loop.time()) > 0:
                await asyncio.wait([self._task()], timeout=left)
            if self._backlog and not self._backlog.is_spooling:
                limit = f"{round(timeout, 2):g} s"
                self._start_spooling(f"it did not take the last entries within {limit}")
            while self._spooling is not None:
                await asyncio.wait([self._spooling])
        finally:
            if self._appending is not None:
                self._appending.cancel()
            self._finish()

    def _finish(self) -> None:
        """Write what only memory has to the spool file, and close it."""
        self._is_closed = True
        problem: str | None = None
        try:
            try:
                self._drop(self._spool.write(self._backlog.unspooled()))
            finally:
                self._spool.close()
        except Exception as error:
            problem = self._spool_problem(error)
            self._tell(f"{_entries(self._backlog.entries)} lost: {problem}")
        else:
            if left := self._backlog.entries:
                then = "The next session with this store and this id sends them"
                if self._lost is not None:
                    then = "Another process has continued the session without them"
                self._tell(f"{_entries(left)} not in the store, but in {self._spool.path}. {then}")
        self._release_callers(problem)

    # -- appending ---------------------------------------------------------------------------------

    @property
    def _is_busy(self) -> bool:
        if self._has_lost():
            return False
        is_running = self._appending is not None and not self._appending.done()
        is_last_try_due = self._is_closing.is_set() and len(self._rejected) > 0
        return is_running or is_last_try_due or len(self._backlog) > 0

    @property
    def _is_in_haste(self) -> bool:
        """Whether entries must not wait for more."""
        is_large = self._backlog.size >= MAX_BATCH_BYTES
        is_awaited = self._flushes > 0 or len(self._callers) > 0 or self._hurries
        return is_large or is_awaited or self._is_closing.is_set()

    def _has_lost(self) -> bool:
        """Whether another process has continued the session."""
        return self._lost is not None

    def _task(self) -> asyncio.Task[None]:
        """Return the task that appends. Start it if it does not run."""
        if self._appending is None or self._appending.done():
            self._appending = self._loop.create_task(self._append_all(), name="bridle-store")
        return self._appending

    async def _append_all(self) -> None:
        while self._backlog and not self._has_lost():
            if len(self._backlog) == 1 and not (self._failures or self._is_in_haste):
                await self._linger()
                if not self._backlog:
                    break  # what waited cannot be stored
            batch = self._backlog.first
            batch.is_sealed = True
            try:
                entries = await self._entries_of(batch)
                problem = await self._append(batch.key, entries)
                if self._has_lost():
                    break
                if not problem:
                    await self._finish_batch(batch)
                    await self._send_again(batch.key, entries)
                    continue
                if await self._drop_unstorable(batch) or await self._set_aside(batch):
                    continue
            except SpoolDamaged as error:
                self._tell(f"{_entries(batch.count)} lost: {error}")
                await self._remove(batch)
                continue
            except OSError as error:
                problem = describe_error(error)
            await self._failed(problem)
        if self._has_lost():
            if self._backlog:
                self._start_spooling("another process has continued the session")
        elif self._is_closing.is_set():
            for key in list(self._rejected):
                await self._send_again(key, ())

    async def _linger(self) -> None:
        """Wait a moment for more entries."""
        self._is_urgent.clear()
        try:
            async with asyncio.timeout(LINGER):
                await self._is_urgent.wait()
        except TimeoutError:
            pass

    async def _finish_batch(self, batch: Batch) -> None:
        """Remove a batch whose entries are in the store, or in the spool as rejected."""
        self._failures = 0
        self._release(batch)
        if self._spooling is not None:  # this batch may get its place in the spool just now
            await asyncio.wait([self._spooling])
        with contextlib.suppress(OSError):  # then the next session sends the batch again
            if batch.place is not None:
                await in_thread(self._spool.mark_done, batch.place)
        await self._remove(batch)

    async def _remove(self, batch: Batch) -> None:
        """Remove a batch from the backlog. Remove the spool file if it has nothing more."""
        self._backlog.remove(batch)
        if not self._backlog and self._backlog.is_spooling:
            with contextlib.suppress(OSError):
                await in_thread(self._spool.remove_if_done)
            # Entries that came meanwhile are in the spool.
            self._backlog.is_spooling = bool(self._backlog)
        self._hurries = self._hurries and bool(self._backlog)

    async def _entries_of(self, batch: Batch) -> list[Entry]:
        if batch.entries is not None:
            return batch.entries
        assert batch.place is not None, "the entries are in the spool"
        return await in_thread(self._spool.read, batch.place)

    async def _append(self, key: SessionKey, entries: Sequence[Entry]) -> str:
        """Append entries. Return what went wrong, or ""."""
        try:
            await self._send(key, entries)
        except SessionInUseError as error:
            self._lost = error
            return str(error)
        except StoreCallTimeout as error:
            self._start_spooling(str(error))
            return str(error)
        except StoreCallCancelled as error:
            return str(error)
        except Exception as error:
            return describe_error(error)
        return ""

    async def _send_plainly(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        await call_store(APPEND_TIMEOUT, self._store.append, key, entries)

    async def _drop_unstorable(self, batch: Batch) -> bool:
        """Drop the entries of the first batch that can never be stored.

        Return whether there were any.
        """
        while True:
            await self._wait_until_spooled()
            if not self._backlog or self._backlog.first is not batch:
                return True  # the spool could write none of its entries
            entries = batch.entries
            if entries is None:  # the spool has dropped them
                return False
            storable, _, reason = await in_thread(split_storable, entries, self._spool.redact)
            if self._spooling is None and batch.entries is entries:
                break
        if reason:
            self._drop([Unstorable(batch, storable, reason)])
        return bool(reason)

    async def _wait_until_spooled(self) -> None:
        while self._spooling is not None:
            await asyncio.wait([self._spooling])

    def _drop(self, unstorable: Sequence[Unstorable]) -> None:
        """Drop entries that can never be stored, with one warning."""
        before = self._backlog.entries
        for one in unstorable:
            self._release(one.batch, one.reason, one.storable)
            self._backlog.keep_only(one.batch, one.storable)
        if unstorable:
            lost = _entries(before - self._backlog.entries)
            self._tell(f"{lost} lost: {unstorable[-1].reason}")

    async def _set_aside(self, batch: Batch) -> bool:
        """Append entries of the first batch one by one. Keep those that are rejected in the spool.

        Return False if the store takes none: then it does not fail because of an entry. If it stops
        to take entries, those that follow stay in the batch.
        """
        is_failing = self._failures and self._loop.time() - self._failing_since >= MAX_FAILING
        if not (is_failing or self._rejects):
            return False
        entries = await self._entries_of(batch)
        found = await append_singly(
            batch.key, entries, self._append, has_journals=has_journals(self._store)
        )
        if len(found.left) == len(entries) or self._has_lost():
            return False
        if found.taken:
            await self._send_again(batch.key, found.taken)
        if found.rejected:
            self._rejects = True
            await self._keep_rejected(batch, found)
        if found.left:
            await self._wait_until_spooled()  # the spool keeps what it writes now
            self._release(batch, but=found.left)
            self._backlog.keep_only(batch, found.left)
        else:
            await self._finish_batch(batch)
        return True

    async def _keep_rejected(self, batch: Batch, found: Appended) -> None:
        """Write entries that the store rejects to the spool. Drop them if that fails."""
        try:
            places = await in_thread(
                self._spool.write_rejected, batch.key, found.rejected, batch.after
            )
        except (OSError, StoreError) as error:
            problem = f"the store rejects them ({found.reason}), and {self._spool_problem(error)}"
            self._tell(f"{_entries(len(found.rejected))} lost: {problem}")
            self._release(batch, problem, [*found.taken, *found.left])
        else:
            aside = self._rejected.setdefault(batch.key, SetAside())
            aside.places += places
            aside.later += found.taken
            self._tell(
                f"{_entries(len(found.rejected))} rejected ({found.reason}) and kept in "
                f"{self._spool.path}"
            )

    async def _send_again(self, key: SessionKey, taken: Sequence[Entry]) -> None:
        """Send the entries of a key that the store rejected once more. ``taken`` it has taken.

        Those that fail again, or would hide later messages, stay in the spool.
        """
        aside = self._rejected.pop(key, None)
        if aside is None:
            return
        is_all_taken = True
        with contextlib.suppress(OSError):  # then the next session sends them
            entries: list[Entry] = []
            for place in aside.places:
                entries += await in_thread(self._spool.read, place)
            chosen: list[Entry] | None = entries
            if not key.subkey:
                chosen = await in_thread(choose_again, [*aside.later, *taken], entries)
            if chosen is None:
                return
            to_send = set(map(id, chosen))
            for number, (place, entry) in enumerate(zip(aside.places, entries, strict=True)):
                if id(entry) in to_send:
                    try:
                        await self._send(key, [entry])
                    except StoreCallTimeout:
                        # The others wait for the next entry that the store takes.
                        rest = self._rejected.setdefault(key, SetAside())
                        rest.places[:0] = aside.places[number + 1 :]
                        rest.later[:0] = [*aside.later, *taken]
                        return
                    except Exception:
                        is_all_taken = False
                        continue
                await in_thread(self._spool.mark_done, place)
            if is_all_taken:
                self._rejects = False
            await in_thread(self._spool.remove_if_done)

    async def _failed(self, problem: str) -> None:
        """Wait before the next attempt. Use the spool if the store fails for too long."""
        now = self._loop.time()
        if not self._failures:
            self._failing_since = now
        self._failures += 1
        if now - self._failing_since >= MAX_FAILING:
            self._start_spooling(problem)
        delay = delay_after(self._failures)
        if self._is_closing.is_set():
            await asyncio.sleep(min(delay, _LAST_DELAY))
            return
        try:
            async with asyncio.timeout(delay):
                await self._is_closing.wait()
        except TimeoutError:
            pass

    # -- spooling ----------------------------------------------------------------------------------

    def _start_spooling(self, why: str) -> None:
        if not self._backlog.is_spooling:
            self._backlog.is_spooling = True
            self._tell(f"{why.removesuffix('.')}. Entries for it are kept in {self._spool.path}")
        self._spool_soon()

    def _spool_soon(self) -> None:
        """Write what only memory has to the spool, in a thread."""
        batches = self._backlog.unspooled() if self._spooling is None else []
        if batches:
            self._spooling = self._loop.run_in_executor(None, self._spool.write, batches)
            self._spooling.add_done_callback(lambda done: self._spooled(batches, done))

    def _spooled(self, batches: list[Batch], done: asyncio.Future[list[Unstorable]]) -> None:
        self._spooling = None
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        was_failing, self._backlog.is_spool_failing = (
            self._backlog.is_spool_failing,
            error is not None,
        )
        if error is not None:
            problem = self._spool_problem(error)
            if not was_failing:
                self._tell(problem)
            for batch in batches:
                self._release(batch, problem)
            if self._callers:  # their entries came meanwhile
                self._spool_soon()
            return
        self._drop(done.result())
        for batch in batches:
            self._backlog.forget_entries(batch)
            self._release(batch)
        self._spool_soon()

    def _spool_problem(self, error: BaseException) -> str:
        is_known = isinstance(error, OSError | StoreError)  # another one may show an entry
        about = describe_error(error) if is_known else type(error).__name__
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            about = _FULL
        return f"the spool {self._spool.path} failed too ({about})"

    # -- callers -----------------------------------------------------------------------------------

    def _release(
        self,
        batch: Batch,
        problem: str | None = None,
        but: Sequence[Entry] = (),
    ) -> None:
        """Release the callers of a batch, except those of the entries in ``but``.

        ``problem`` is why their entries are not kept, None if they are.
        """
        waiting: list[_Caller] = []
        others = set(map(id, but))
        for caller in self._callers.pop(id(batch), ()):
            if id(caller.entry) in others:
                waiting.append(caller)
            elif not caller.kept.done():
                caller.kept.set_result(problem)
        if waiting:
            self._callers[id(batch)] = waiting

    def _release_callers(self, problem: str | None) -> None:
        """Release all callers. ``problem`` is why their entries are not kept, None if they are."""
        for caller in [caller for callers in self._callers.values() for caller in callers]:
            if not caller.kept.done():
                caller.kept.set_result(problem)
        self._callers.clear()

    def _tell(self, what: str) -> None:
        self._warn(SdkWarning(WarningKind.STORE_FAILED, f"{type(self._store).__name__}: {what}"))


def _entries(count: int) -> str:
    return "1 entry is" if count == 1 else f"{count} entries are"
