"""Hold the leases of sessions in a store, so that no other machine continues them meanwhile."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from bridle._core.mirroring import LEASE
from bridle._shell.lease_owners import lease_owners
from bridle._shell.store_calls import call_store
from bridle._store import LeasingStore
from bridle.errors import SessionInUseError

_T = TypeVar("_T")

_RELEASE_TIMEOUT = 2.0
"""Maximum seconds for giving a lease back to the store. Otherwise the lease expires."""

_PAUSE = 1.0
"""Seconds between two attempts to take the lease of a program that may be dead."""


def _now() -> float:
    """Return a time in seconds that also passes while the machine sleeps, where that is known."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class Leases:
    """The leases of one session: that of its id, and of the ids that it gets when it is cleared.

    A store without leases is accepted; then nothing is held.

    Args:
        store: the store.
        owner: a random word that stands for this session.
        on_lost: called if another owner has a lease that this session should hold.
    """

    def __init__(
        self, store: object, owner: str, on_lost: Callable[[SessionInUseError], None]
    ) -> None:
        self._store = store if isinstance(store, LeasingStore) else None
        self._owner = owner
        self._on_lost = on_lost
        # The sessions, with the time at which the lease of each may expire. Infinity before it is
        # granted.
        self._ids: dict[str, float] = {}
        # Leases that the store may have granted. They are not renewed.
        self._asked: set[str] = set()
        self._renewing: asyncio.Task[None] | None = None
        self._has_lapsed = False
        # Which leases this machine knows to be ours.
        self._owners = lease_owners()
        self._held: set[str] = set()

    @property
    def has_lapsed(self) -> bool:
        """Return True if a lease was not renewed in time, so that another owner may have had it."""
        return self._has_lapsed or any(expires < _now() for expires in self._ids.values())

    async def take(self, session_id: str, ask: Callable[..., Awaitable[bool]]) -> None:
        """Take a lease and renew it from now on.

        Args:
            session_id: the session.
            ask: calls a method of the store with the arguments that follow it.

        Raises:
            SessionInUseError: another owner has it.
            Exception: an exception of ``ask``.
        """
        if self._store is None or session_id in self._ids:
            return
        # The store may grant the lease although the call is cancelled or fails.
        self._asked.add(session_id)
        expires = _now() + LEASE
        is_ours = await ask(self._store.acquire, session_id, self._owner, LEASE)
        if not is_ours:
            dead = await self._in_thread(self._owners.dead, self._store, session_id)
            if dead is not None:
                # Does nothing if another owner has taken the lease in the meantime.
                await ask(self._store.release, session_id, dead)
                expires = _now() + LEASE
                is_ours = await ask(self._store.acquire, session_id, self._owner, LEASE)
        if not is_ours:
            self._asked.discard(session_id)
            raise SessionInUseError(session_id)
        self._asked.discard(session_id)
        self._ids[session_id] = expires
        await self._hold(session_id)
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

    async def renew(self, ask: Callable[..., Awaitable[bool]]) -> None:
        """Renew the leases now. ``ask`` is as for :meth:`take`.

        Raises:
            SessionInUseError: another owner has one of them. ``on_lost`` was called.
            Exception: an exception of ``ask``.
        """
        for session_id in list(self._ids):
            if not await self._renew_one(session_id, ask):
                raise SessionInUseError(session_id)

    async def renew_lapsed(self, ask: Callable[..., Awaitable[bool]]) -> None:
        """Renew the leases, and forget that they lapsed. Raises as `renew`."""
        await self.renew(ask)
        self._has_lapsed = False

    def take_soon(self, session_id: str) -> None:
        """Take a lease in the background. The session does not wait for it."""
        if self._store is not None and session_id not in self._ids:
            self._ids[session_id] = math.inf
            if self._renewing is not None:
                self._renewing.cancel()
                self._renewing = None
            self._start(at_once=True)

    async def aclose(self, timeout: float = _RELEASE_TIMEOUT) -> None:
        """Give the leases back. The store has ``timeout`` seconds for that."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing], timeout=timeout)
        if self._store is not None:
            release = self._store.release
            left = max(0.0, end - loop.time())
            ids = [*{*self._ids, *self._asked, *self._held}]
            releasing = [call_store(left, release, one, self._owner) for one in ids]
            results = await asyncio.gather(*releasing, return_exceptions=True)
            pairs = zip(ids, results, strict=True)
            await self._in_thread(self._drop, [one for one, result in pairs if result is None])
        self._ids.clear()
        self._asked.clear()
        self._held.clear()

    async def _hold(self, session_id: str) -> None:
        """Write on this machine that this process has a lease."""
        if session_id not in self._held:
            self._held.add(session_id)
            await self._in_thread(self._owners.hold, self._store, session_id, self._owner)

    def _drop(self, released: Sequence[str]) -> None:
        """Take note that this process has no leases. Those that are not released are dead."""
        for session_id in released:
            self._owners.drop(self._store, session_id, self._owner)
        self._owners.forget(self._owner)

    async def _in_thread(self, function: Callable[..., _T], *arguments: object) -> _T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, function, *arguments)

    def _start(self, *, at_once: bool = False) -> None:
        if self._renewing is None:
            loop = asyncio.get_running_loop()
            renewing = self._renew(0.0 if at_once else LEASE / 3)
            self._renewing = loop.create_task(renewing, name="bridle-lease")

    async def _renew(self, delay: float) -> None:
        ask = partial(call_store, LEASE / 3)
        while True:
            await asyncio.sleep(delay)
            delay = LEASE / 3
            for session_id in list(self._ids):
                try:
                    await self._renew_one(session_id, ask)
                except Exception:
                    delay = LEASE / 10  # the store fails: try again soon

    async def _renew_one(self, session_id: str, ask: Callable[..., Awaitable[bool]]) -> bool:
        """Renew a lease. Return False if another owner has it."""
        assert self._store is not None, "there are leases to renew"
        expires = _now() + LEASE
        is_ours = await ask(self._store.acquire, session_id, self._owner, LEASE)
        if session_id not in self._ids:
            return False
        if is_ours:
            self._has_lapsed = self._has_lapsed or self._ids[session_id] < _now()
            self._ids[session_id] = expires
            await self._hold(session_id)
            return True
        del self._ids[session_id]
        self._on_lost(SessionInUseError(session_id))
        return False


class BorrowedLeases:
    """The leases of a recovery, for a session that carries out one of its steps.

    The recovery gives them back.
    """

    def __init__(self, owner: Leases) -> None:
        self._owner = owner

    async def take_when_free(
        self, session_id: str, ask: Callable[..., Awaitable[bool]], seconds: float
    ) -> None:
        """Take a lease, unless the recovery has it. Wait while another owner has it."""
        await self._owner.take_when_free(session_id, ask, seconds)

    def take_soon(self, session_id: str) -> None:
        """Take a lease in the background, unless the recovery has it."""
        self._owner.take_soon(session_id)

    async def aclose(self, timeout: float = 0.0) -> None:
        """Do nothing."""
