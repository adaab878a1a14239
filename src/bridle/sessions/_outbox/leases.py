"""Hold the leases of sessions in a store, so that no other machine continues them meanwhile.

A process that is frozen or cut off cannot renew its lease: the lease lapses, and another owner may
take it, continue the session and give it back. So a session appends through its leases. After a
lapse, a lease is taken again and the transcript in the store is compared with what the session
knows of it, before anything is appended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from msgspec import Struct, field

from bridle._records.session_store import (
    Entry,
    LeasingStore,
    SessionKey,
    SessionStore,
    fencing_store,
)
from bridle.errors import SessionInUseError, StoreError
from bridle.sessions._backlog import APPEND_TIMEOUT, LEASE
from bridle.sessions._outbox.lease_owners import lease_owners
from bridle.sessions._start_calls import in_thread
from bridle.sessions._store_calls import StoreCallCancelled, StoreCallTimeout, call_store
from bridle.sessions._transcripts.stored_position import StoredPosition

_T = TypeVar("_T")

_RELEASE_TIMEOUT = 2.0
"""Maximum seconds for giving a lease back to the store. Otherwise the lease expires."""

_LAPSED = -1.0
"""When a lease expires that the store does not grant any more."""

_PAUSE = 1.0
"""Seconds between two attempts to take the lease of a program that may be dead."""


_MAX_REFUSALS = 3
"""How often an append is refused, with a new lease each time, before it fails."""


def _now() -> float:
    """Return a time in seconds that also passes while the machine sleeps, where that is known."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _new_owner() -> str:
    return uuid4().hex


class _Lease(Struct):
    """The lease of a session."""

    #: A random word. A lease that another owner may have had gets a new one.
    owner: str = field(default_factory=_new_owner)
    #: When it may expire. Until it is granted: when another owner may get it first.
    expires: float = field(default_factory=lambda: _now() + LEASE)
    is_granted: bool = False
    #: True while the store fails, if it has no leases.
    is_failing: bool = False
    #: What the session knows of the transcript in the store.
    position: StoredPosition = field(default_factory=StoredPosition)
    #: The key of the transcript.
    key: SessionKey | None = None
    refreshing: asyncio.Task[None] | None = None

    @property
    def has_lapsed(self) -> bool:
        return self.expires < _now()


class Leases:
    """The leases of one session: that of its id, and of the ids that it gets when it is cleared.

    A store without leases is accepted. Then a lease is only the time in which the session was
    neither frozen nor cut off.

    Args:
        store: the store.
        on_lost: called if another owner has, or had, a lease that this session should hold.
        load_timeout: seconds that the store has to load a transcript. None if the leases are not
            those of transcripts, and the caller finds out what others have changed.
    """

    def __init__(
        self,
        store: SessionStore,
        on_lost: Callable[[SessionInUseError], None],
        load_timeout: float | None = None,
    ) -> None:
        self._store = store
        self._leasing = store if isinstance(store, LeasingStore) else None
        self._fencing = fencing_store(store)
        self._on_lost = on_lost
        self._load_timeout = load_timeout
        self._leases: dict[str, _Lease] = {}
        # Sessions that another owner has continued.
        self._lost: set[str] = set()
        # The session and the owner of each lease that the store may have granted.
        self._asked: set[tuple[str, str]] = set()
        self._renewing: asyncio.Task[None] | None = None
        self._has_lapsed = False
        self._is_closed = False
        # Which leases this machine knows to be ours.
        self._owners = lease_owners()
        self._held: set[tuple[str, str]] = set()
        self._holding: set[asyncio.Future[None]] = set()

    @property
    def has_lapsed(self) -> bool:
        """Return True if a lease was not renewed in time, so that another owner may have had it."""
        return self._has_lapsed or any(one.has_lapsed for one in self._leases.values())

    # -- taking ------------------------------------------------------------------------------------

    async def take(self, session_id: str, ask: Callable[..., Awaitable[bool]]) -> None:
        """Take a lease and renew it from now on.

        Args:
            session_id: the session.
            ask: calls a method of the store with the arguments that follow it.

        Raises:
            SessionInUseError: another owner has it.
            Exception: an exception of ``ask``.
        """
        if session_id in self._leases:
            return
        lease = _Lease()
        if self._leasing is not None:
            self._asked.add((session_id, lease.owner))
            is_ours = await ask(self._leasing.acquire, session_id, lease.owner, LEASE)
            if not is_ours:
                dead = await in_thread(self._owners.dead, self._store, session_id)
                if dead is not None:
                    # Does nothing if another owner has taken the lease in the meantime.
                    await ask(self._leasing.release, session_id, dead)
                    lease.expires = _now() + LEASE
                    is_ours = await ask(self._leasing.acquire, session_id, lease.owner, LEASE)
            if not is_ours:
                self._asked.discard((session_id, lease.owner))
                raise SessionInUseError(session_id)
        lease.is_granted = True
        self._leases[session_id] = lease
        self._hold(session_id, lease.owner)
        self._start()

    async def take_when_free(
        self, session_id: str, ask: Callable[..., Awaitable[bool]], seconds: float
    ) -> None:
        """Take a lease, and wait up to ``seconds`` while another owner has it.

        ``ask`` is as for :meth:`take`, which raises the same errors.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            try:
                return await self.take(session_id, ask)
            except SessionInUseError:
                left = end - loop.time()
                if left <= 0:
                    raise
            await asyncio.sleep(min(_PAUSE, LEASE / 4, left))

    async def take_when_expired(self, session_id: str, ask: Callable[..., Awaitable[bool]]) -> None:
        """Take a lease, and wait until that of a program that was killed has expired.

        ``ask`` is as for :meth:`take`.

        Raises:
            SessionInUseError: another owner has it, and renews it.
            Exception: an exception of ``ask``.
        """
        await self.take_when_free(session_id, ask, LEASE + _PAUSE)

    def take_soon(self, session_id: str) -> None:
        """Take a lease in the background. The session does not wait for it."""
        if session_id not in self._leases:
            lease = self._leases[session_id] = _Lease()
            _ = self._refresh_soon(session_id, lease)
            self._start()

    # -- renewing ----------------------------------------------------------------------------------

    async def renew(self) -> None:
        """Renew the leases now.

        Raises:
            SessionInUseError: another owner has one of them. ``on_lost`` was called.
            Exception: an exception of the store.
        """
        for session_id, lease in list(self._leases.items()):
            await _result(self._refresh_soon(session_id, lease), None)

    async def confirm(self, session_id: str, ask: Callable[..., Awaitable[Any]]) -> None:
        """Renew the lease of a session now. ``ask`` is as for :meth:`take`.

        Raises:
            SessionInUseError: another owner has it, or has continued the session.
            Exception: an exception of ``ask``.
        """
        if session_id in self._lost:
            raise lost_lease(session_id)
        lease = self._leases.get(session_id)
        if lease is not None:
            await ask(_result, self._refresh_soon(session_id, lease), None)

    async def renew_lapsed(self) -> None:
        """Renew the leases, and forget that they lapsed. Raises as `renew`."""
        await self.renew()
        self._has_lapsed = False

    def _start(self) -> None:
        if self._renewing is None:
            loop = asyncio.get_running_loop()
            self._renewing = loop.create_task(self._renew(), name="bridle-lease")

    async def _renew(self) -> None:
        delay = LEASE / 3
        while True:
            await asyncio.sleep(delay)
            delay = LEASE / 3
            for session_id, lease in list(self._leases.items()):
                try:
                    await _result(self._refresh_soon(session_id, lease), None)
                except SessionInUseError:
                    pass
                except Exception:
                    delay = LEASE / 10  # the store fails: try again soon

    def _refresh_soon(self, session_id: str, lease: _Lease) -> asyncio.Task[None]:
        """Return the task that renews a lease. Start it if it does not run."""
        if lease.refreshing is None or lease.refreshing.done():
            loop = asyncio.get_running_loop()
            refreshing = self._refresh(session_id, lease)
            lease.refreshing = loop.create_task(refreshing, name="bridle-lease-renewal")
            # Nobody may wait for it. Then asyncio would log its exception.
            lease.refreshing.add_done_callback(lambda done: done.cancelled() or done.exception())
        return lease.refreshing

    async def _refresh(self, session_id: str, lease: _Lease) -> None:
        """Renew a lease, or take it again if it has lapsed.

        Raises:
            SessionInUseError: another owner has it, or has continued the session.
            Exception: an exception of the store.
        """
        expires, is_late = _now() + LEASE, lease.has_lapsed
        if self._leasing is None:
            if lease.is_failing and not is_late:
                return  # it lapses unless the store works again
        else:
            if self._fencing is not None and lease.is_granted:
                key, append = lease.key or SessionKey(session_id), self._fencing.append_leased
                if await _ask(append, key, (), lease.owner, LEASE):
                    lease.expires = max(lease.expires, expires)
                    return
                # Another owner may have had it. No append that is on its way has the new word.
                lease.owner, lease.is_granted, lease.expires = _new_owner(), False, _LAPSED
                expires, is_late = _now() + LEASE, True
            if not await self._acquire(session_id, lease):
                await self._lose(session_id, lease)
        # It may have lapsed before the store granted it.
        is_late = is_late or lease.has_lapsed
        if is_late:
            expires = await self._compare(session_id, lease, expires)
        self._has_lapsed = self._has_lapsed or is_late
        lease.expires, lease.is_granted = expires, True

    async def _compare(self, session_id: str, lease: _Lease, expires: float) -> float:
        """Look for what another owner has added. Return when the lease expires.

        The lease is renewed meanwhile, because loading the transcript may take longer than it.

        Raises:
            SessionInUseError: another owner has continued the session, or has the lease now.
            Exception: an exception of the store.
        """
        loop = asyncio.get_running_loop()
        comparing = loop.create_task(self._is_continued(session_id, lease))
        try:
            while not (await asyncio.wait([comparing], timeout=LEASE / 3))[0]:
                expires = _now() + LEASE
                if self._leasing is not None and not await self._acquire(session_id, lease):
                    await self._lose(session_id, lease)
            if comparing.result():
                await self._lose(session_id, lease)
        finally:
            comparing.cancel()
        return expires

    async def _acquire(self, session_id: str, lease: _Lease) -> bool:
        """Take or renew a lease. Return False if another owner has it."""
        assert self._leasing is not None, "the store has leases"
        self._asked.add((session_id, lease.owner))
        is_ours = await _ask(self._leasing.acquire, session_id, lease.owner, LEASE)
        if is_ours:
            self._hold(session_id, lease.owner)
        return is_ours

    async def _is_continued(self, session_id: str, lease: _Lease) -> bool:
        """Return whether another owner has added to the transcript."""
        if self._load_timeout is None:
            return False
        key = lease.key or SessionKey(session_id)
        stored = await call_store(self._load_timeout, self._store.load, key)
        return await in_thread(lease.position.is_passed, list(stored or ()))

    async def _lose(self, session_id: str, lease: _Lease) -> None:
        """Give a lease up for good. Raises SessionInUseError."""
        if self._leases.get(session_id) is lease:
            self._lost.add(session_id)
            del self._leases[session_id]
            self._on_lost(lost_lease(session_id))
            await self._release(session_id, _RELEASE_TIMEOUT)
        raise lost_lease(session_id)

    # -- appending ---------------------------------------------------------------------------------

    def position(self, key: SessionKey) -> StoredPosition:
        """Return what the session knows of its transcript in the store. It may be changed."""
        lease = self._leases.get(key.session_id)
        if lease is None:
            return StoredPosition()
        lease.key = key
        return lease.position

    async def append(
        self,
        key: SessionKey,
        entries: Sequence[Entry],
        ask: Callable[..., Awaitable[Any]] | None = None,
    ) -> None:
        """Append entries, unless another owner has continued the session.

        Args:
            key: the key of the entries.
            entries: the entries.
            ask: calls a method of the store with the arguments that follow it. None gives the store
                the usual time for an append.

        Raises:
            SessionInUseError: another owner has continued the session. ``on_lost`` was called.
            StoreError: the store grants the lease and refuses entries again and again.
            Exception: an exception of ``ask``.
        """
        call = ask or partial(call_store, APPEND_TIMEOUT)
        refusals = 0
        while refusals < _MAX_REFUSALS:
            if key.session_id in self._lost:
                raise lost_lease(key.session_id)
            lease = self._leases.get(key.session_id)
            if self._is_closed:
                raise StoreCallCancelled("the leases of the session were given back")
            if lease is None:
                await call(self._store.append, key, entries)
                return
            if not key.subkey:
                lease.key = key
            if lease.has_lapsed or not lease.is_granted:
                refreshing = self._refresh_soon(key.session_id, lease)
                if ask is None:
                    await _result(refreshing, APPEND_TIMEOUT)
                else:  # which names the session in an error
                    await ask(_result, refreshing, None)
                continue
            if await self._append(lease, key, entries, call):
                return
            refusals += 1
        why = f"it refused the entries {refusals} times, although acquire had granted the lease"
        raise StoreError(type(self._store).__name__, "append_leased", why)

    async def _append(
        self,
        lease: _Lease,
        key: SessionKey,
        entries: Sequence[Entry],
        ask: Callable[..., Awaitable[Any]],
    ) -> bool:
        """Append entries. Return False if the lease is not ours any more."""
        if not key.subkey:
            lease.position.sending(entries)
        if self._fencing is None:
            lease.is_failing = True
            await ask(self._store.append, key, entries)
            lease.is_failing = False
        else:
            owner, expires = lease.owner, _now() + LEASE
            if not await ask(self._fencing.append_leased, key, entries, owner, LEASE):
                if lease.owner == owner:
                    lease.expires = _LAPSED
                return False
            lease.expires = max(lease.expires, expires)
        if not key.subkey:
            lease.position.stored(entries)
        return True

    # -- the end -----------------------------------------------------------------------------------

    async def aclose(self, timeout: float = _RELEASE_TIMEOUT) -> None:
        """Give the leases back. The store has ``timeout`` seconds for that."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        tasks = [self._renewing, *(lease.refreshing for lease in self._leases.values())]
        running = [task for task in tasks if task is not None and not task.done()]
        self._leases.clear()
        self._is_closed = True
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=timeout)
        await self._release(None, max(0.0, end - loop.time()))

    async def _release(self, session_id: str | None, timeout: float) -> None:
        """Give back the leases of a session, or all."""
        asked = [one for one in self._asked if session_id in (None, one[0])]
        self._asked.difference_update(asked)
        if self._leasing is not None:
            release = self._leasing.release
            releasing = [call_store(timeout, release, *one) for one in asked]
            results = await asyncio.gather(*releasing, return_exceptions=True)
            pairs = zip(asked, results, strict=True)
            released = [one for one, result in pairs if result is None]
            if self._holding:
                await asyncio.wait(self._holding)
            await in_thread(self._drop, released, session_id)

    def _hold(self, session_id: str, owner: str) -> None:
        """Write on this machine that this process has a lease. Does not wait."""
        if self._leasing is not None and (session_id, owner) not in self._held:
            self._held.add((session_id, owner))
            loop, hold = asyncio.get_running_loop(), self._owners.hold
            holding = loop.run_in_executor(None, hold, self._store, session_id, owner)
            self._holding.add(holding)
            holding.add_done_callback(self._holding.discard)

    def _drop(self, released: Sequence[tuple[str, str]], session_id: str | None) -> None:
        """Take note that this process has no leases. Those that are not released are dead."""
        for one in released:
            self._owners.drop(self._store, *one)
        self._forget(session_id)

    def _forget(self, session_id: str | None) -> None:
        """Unlock the owners of a session, or all."""
        for one in [one for one in self._held if session_id in (None, one[0])]:
            self._held.discard(one)
            self._owners.forget(one[1])


def lost_lease(session_id: str) -> SessionInUseError:
    """Return the error of a session whose lease lapsed, and which another owner has continued."""
    error = SessionInUseError(session_id)
    error.fix = (
        "Another process took the session over, because this one did not renew its lock in the "
        "store (the lease) in time: it was frozen, or could not reach the store. Resume the "
        "session to go on from there. If entries of this process are not in the store, the warning "
        "store_failed names the file that has them."
    )
    return error


async def _ask(method: Callable[..., Awaitable[bool]], *arguments: object) -> bool:
    return await call_store(LEASE / 3, method, *arguments)


async def _result(task: asyncio.Task[None], timeout: float | None) -> None:
    """Wait for a task. Cancellation does not cancel it, because others may wait for it.

    Raises:
        StoreCallTimeout: it did not end in time.
        Exception: its exception.
    """
    done, _ = await asyncio.wait([task], timeout=timeout)
    if not done:
        raise StoreCallTimeout("the lease could not be renewed in time")
    if not task.cancelled():
        task.result()


class BorrowedLeases:
    """The leases of a recovery or a run, for one of the sessions that do its work.

    The recovery, or the run, gives them back.
    """

    def __init__(self, owner: Leases) -> None:
        self.owner = owner
        self.append = owner.append
        self.position = owner.position
        self.take_when_free = owner.take_when_free
        self.take_soon = owner.take_soon

    async def aclose(self, timeout: float = 0.0) -> None:
        """Do nothing."""
