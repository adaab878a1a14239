"""Carry out the decisions of a pool's table: start, hand out and close processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar, cast

from bridle._pool.keys import PoolKeys
from bridle._pool.pooled import PooledRun, PooledSession
from bridle._pool.table import (
    Close,
    Lend,
    PoolAction,
    PoolLimits,
    PoolTable,
    Refuse,
    Source,
    Start,
)
from bridle._process.parked import ParkedCli
from bridle._session.run import OneTurn
from bridle.errors import BridleError, PoolTimeout, UsageError

log = logging.getLogger("bridle.pool")

_T = TypeVar("_T")


class Places:
    """The places of one pool on the running event loop, and the processes in them.

    Args:
        limits: the limits of the pool.
        park: starts a process without a session. The argument is called when the process exits.
        keys: the conversations of the keys.
    """

    def __init__(
        self,
        limits: PoolLimits,
        park: Callable[[Callable[[ParkedCli], None]], ParkedCli],
        keys: PoolKeys,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.table = PoolTable(limits)
        self._size = limits.size
        self._make_parked = park
        self._keys = keys
        # What is in each place that has a process, in use or not.
        self._held: dict[int, ParkedCli | PooledSession | OneTurn] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # The work of callers, with the place in which it starts a process or runs.
        self._working: dict[asyncio.Task[Any], int | None] = {}
        #: True once everything is closed, whether it has ended or not.
        self.is_forced = False
        self._timer: asyncio.TimerHandle | None = None
        # Done at the next change of the table.
        self._changed: asyncio.Future[None] = self.loop.create_future()

    def open(self) -> None:
        """Start the processes to keep ready."""
        self._perform(self.table.open(self.loop.time()))

    # -- borrowing ---------------------------------------------------------------------------------

    async def borrow(
        self, key: str | None, timeout: float | None, *, takes_ready: bool
    ) -> tuple[int, Source]:
        """Wait for a place.

        Args:
            key: the key of the conversation, or None.
            timeout: seconds to wait. None means no limit.
            takes_ready: whether the ready processes have the right options.

        Raises:
            PoolTimeout: the timeout has passed.
            UsageError: the pool is closed.
        """
        now = self.loop.time()
        ticket: asyncio.Future[tuple[int, Source]] = self.loop.create_future()
        deadline = None if timeout is None else now + timeout
        self._perform(
            self.table.borrow(ticket, now, key=key, takes_ready=takes_ready, deadline=deadline)
        )
        try:
            return await ticket
        except asyncio.CancelledError:
            if not ticket.cancelled() and ticket.exception() is None:
                self._return_unused(*ticket.result())
            else:
                self._perform(self.table.cancel(ticket, self.loop.time()))
            raise
        except PoolTimeout as error:
            waiting = self.table.metrics().waiting
            raise PoolTimeout(timeout or error.timeout, self._size, waiting, key) from None

    def _return_unused(self, place: int, source: Source) -> None:
        """Take back a place whose caller was cancelled before it knew of the place."""
        if source is Source.IDLE:
            self.give_back(place)
        elif source is Source.READY:
            _ = self._start(self._close_place(place))
        else:
            self._perform(self.table.closed(place, self.loop.time()))

    def session_in(self, place: int) -> PooledSession:
        """Return the session in a place."""
        return cast("PooledSession", self._held[place])

    def fail(self, place: int, error: BridleError) -> None:
        """End the session in a place with this error. One that has not started is left alone."""
        held = self._held.get(place)
        if isinstance(held, PooledSession) and held.connection.is_alive:
            held.fail(error)

    def take_parked(self, place: int, source: Source) -> ParkedCli | None:
        """Return the ready process of a place that was lent, or None if there is none."""
        if source is not Source.READY:
            return None
        return cast("ParkedCli | None", self._held.pop(place, None))

    def put(self, place: int, session: PooledSession | OneTurn) -> None:
        """Put the session that uses a place into it. It is closed with the place."""
        self._held[place] = session

    async def work(self, place: int | None, work: Coroutine[Any, Any, _T]) -> _T:
        """Start a process in a place, or run a job in it. Closing the pool can cancel this.

        ``place`` is None if the work needs no process.

        Raises:
            UsageError: the pool was closed before the work had ended.
        """
        if self.is_forced:
            work.close()
            raise _closed()
        caller = asyncio.current_task()
        before = 0 if caller is None else caller.cancelling()
        task: asyncio.Task[_T] = self.loop.create_task(work)
        self._working[task] = place
        try:
            return await task
        except asyncio.CancelledError:
            if caller is None or caller.cancelling() > before or not self.is_forced:
                raise
            raise _closed() from None
        finally:
            del self._working[task]

    def give_back(self, place: int) -> None:
        """Take back the session of a key: keep it for the next caller, or close it."""
        key = self.table.key_of(place)
        is_old = key is not None and self._keys.may_be_old(key)
        keep = not is_old and self.session_in(place).may_stay()
        self._perform(self.table.give_back(place, self.loop.time(), keep=keep))

    def drop(self, place: int, session: PooledSession, reason: str) -> None:
        """Close a place if it is idle and holds this session. ``reason`` is for the log."""
        if self.table.is_idle(place) and self._held.get(place) is session:
            log.info("The idle process of a key %s, so it is closed.", reason)
            self._perform(self.table.drop(place, self.loop.time()))

    async def end(self, place: int) -> None:
        """Close the process of a place that was lent, and free it. Cancelling does not stop it."""
        await self.finish(self._close_place(place))

    async def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for work that goes on if the caller is cancelled. Closing the pool awaits it."""
        await asyncio.shield(self._start(work))

    @contextlib.asynccontextmanager
    async def reserved(self, key: str) -> AsyncGenerator[None]:
        """Close the process of a key, and take its lease. Let callers wait until the block ends.

        Raises:
            UsageError: a caller uses the key, or the pool is closed.
            SessionInUseError: another program uses the key.
            SessionLoadError: the store failed.
        """
        if self.table.is_closing:
            raise _closed()
        actions = self.table.reserve(key, self.loop.time())
        if actions is None:
            raise UsageError("The session of this key is in use.", fix="Leave its block first.")
        takes_lease = False
        try:
            self._perform(actions)
            while self.table.has_process(key):
                await asyncio.wait([self._changed])
            takes_lease = True
            await self._keys.take(key)
            yield
        finally:
            await self.finish(self._unreserve(key, has_lease=takes_lease))

    async def _unreserve(self, key: str, *, has_lease: bool) -> None:
        try:
            if has_lease:
                await self._keys.release(key)
        finally:
            self._perform(self.table.unreserve(key, self.loop.time()))

    # -- closing -----------------------------------------------------------------------------------

    async def drain(self, seconds: float, hurry: asyncio.Event) -> None:
        """Reject callers, give those in progress ``seconds`` to end, then close everything.

        Close everything at once when ``hurry`` is set.
        """
        self._perform(self.table.drain())
        end = self.loop.time() + seconds
        hurrying = self.loop.create_task(hurry.wait())
        try:
            while not self.table.is_empty and (left := end - self.loop.time()) > 0:
                either: list[asyncio.Future[Any]] = [self._changed, hurrying]
                await asyncio.wait(either, timeout=left, return_when="FIRST_COMPLETED")
                if hurrying.done():
                    break
        finally:
            hurrying.cancel()
        self.is_forced = True
        for task, place in self._working.items():
            if self.table.is_empty:
                break  # the work has ended, and its task is about to end
            held = None if place is None else self._held.get(place)
            # A run in its turn ends with an outcome when its session is closed.
            if not (isinstance(held, PooledRun) and held.give_up()):
                task.cancel()
        await asyncio.gather(*(one.aclose() for one in self._held.values()), return_exceptions=True)
        while unfinished := [one for one in (*self._tasks, *self._working) if not one.done()]:
            await asyncio.wait(unfinished)

    async def _close_place(self, place: int) -> None:
        key, held = self.table.key_of(place), self._held.get(place)
        try:
            if held is not None:
                await held.aclose()
            if key is not None:
                await self._keys.release(key)
        except Exception:
            log.exception("A process of the pool could not be closed.")
        finally:
            self._held.pop(place, None)
            self._perform(self.table.closed(place, self.loop.time()))

    # -- the table ---------------------------------------------------------------------------------

    def _perform(self, actions: list[PoolAction]) -> None:
        """Carry out all actions. None of them raises, because callers wait for the others."""
        for action in actions:
            match action:
                case Start(place):
                    self._park(place)
                case Lend(ticket, place, source):
                    waiting = cast("asyncio.Future[tuple[int, Source]]", ticket)
                    if waiting.done():  # its caller was cancelled a moment ago
                        self.loop.call_soon(self._return_unused, place, source)
                    else:
                        waiting.set_result((place, source))
                case Close(place):
                    _ = self._start(self._close_place(place))
                case Refuse(ticket, waited, is_closing):
                    self._refuse(cast("asyncio.Future[Any]", ticket), waited, is_closing=is_closing)
        self._changed.set_result(None)
        self._changed = self.loop.create_future()
        self._set_timer()

    def _refuse(self, ticket: asyncio.Future[Any], waited: float, *, is_closing: bool) -> None:
        if ticket.done():  # its caller was cancelled a moment ago
            return
        error: BridleError = PoolTimeout(waited, self._size)
        if is_closing:
            error = _closed()
        ticket.set_exception(error)

    def _park(self, place: int) -> None:
        """Start a process that waits in this place."""
        try:
            self._held[place] = self._make_parked(lambda parked: self._on_exit(place, parked))
        except Exception as error:  # of any kind: "can't start new thread" is a RuntimeError
            # The next caller starts a process itself, and gets the error.
            log.info("A process could not be started in advance: %s", error)
            # Later, because the actions of the table are being performed.
            self.loop.call_soon(self._lose, place)

    def _on_exit(self, place: int, parked: ParkedCli) -> None:
        if self._held.get(place) is parked and self.table.is_ready(place):
            log.info("A process that was started in advance has exited.")
            del self._held[place]
            _ = self._start(parked.aclose())
            self._lose(place)

    def _lose(self, place: int) -> None:
        if self.table.is_ready(place):
            self._perform(self.table.lost(place, self.loop.time()))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = None if self.table.is_closing else self.table.next_deadline
        if due is not None:
            self._timer = self.loop.call_at(due, self._advance)

    def _advance(self) -> None:
        self._timer = None
        self._perform(self.table.advance(self.loop.time()))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _closed() -> UsageError:
    return UsageError("This pool is closed.", fix="Create another one: agent.pool().")
