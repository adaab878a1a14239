"""Run the connections of a store in a thread of their own.

A connection belongs to one event loop, and SQLite blocks. A store is used from any number of event
loops and threads. So each store has a daemon thread with an event loop, which is started when it
is first needed, and all work on the connections is done there.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class Connections(Protocol):
    """What a thread works with."""

    async def aclose(self) -> None:
        """Close the connections."""
        ...


C = TypeVar("C", bound=Connections)


class _Thread(Generic[C]):
    """One thread, its event loop and the connections that belong to it."""

    def __init__(self, connections: C) -> None:
        self.connections = connections
        self.loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._work, name="bridle-store", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Run a coroutine in the thread. The future belongs to the running event loop."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    def finish(self) -> None:
        """End the thread, without waiting for it. Operations that were submitted end first."""
        self.loop.call_soon_threadsafe(self._begin_to_finish)

    def _begin_to_finish(self) -> None:
        self._finishing = self.loop.create_task(self.close())

    async def close(self) -> None:
        """Wait for the other operations, close the connections, end the thread."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        try:
            if others:
                await asyncio.wait(others)
            await self.connections.aclose()
        finally:
            self.loop.call_soon(self.loop.stop)

    def _work(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()


class StoreThread(Generic[C]):
    """The thread of one store. Safe to use from any event loop and thread.

    Args:
        connect: Creates the object that will hold the connections.
    """

    def __init__(self, connect: Callable[[], C]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._thread: _Thread[C] | None = None
        self._finalizer: weakref.finalize[..., StoreThread[C]] | None = None
        _ALL.add(self)

    async def run(self, work: Callable[[C], Coroutine[Any, Any, T]]) -> T:
        """Run ``work`` in the thread and return its result. Cancellation cancels the work."""
        with self._lock:
            if self._thread is None:
                self._thread = _Thread(self._connect())
                self._finalizer = weakref.finalize(self, self._thread.finish)
                self._finalizer.atexit = False
            result = self._thread.submit(work(self._thread.connections))
        return await result

    async def aclose(self) -> None:
        """Wait for running operations, close the connections and end the thread.

        The next operation starts a new thread.
        """
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            if self._finalizer is not None:
                self._finalizer.detach()
            closed = thread.submit(thread.close())
        # A caller that is cancelled does not stop the closing.
        await asyncio.shield(closed)

    def forget(self) -> None:
        """Start anew in a forked child, which has no thread and must not use the connections."""
        if self._thread is not None:
            # Keep a reference: a collected connection would say goodbye to the parent's server.
            _INHERITED.append(self._thread)
            if self._finalizer is not None:
                self._finalizer.detach()
        self._thread = None
        self._lock = threading.Lock()


_ALL: weakref.WeakSet[StoreThread[Any]] = weakref.WeakSet()
_INHERITED: list[object] = []


def _after_fork() -> None:
    for thread in list(_ALL):
        thread.forget()


os.register_at_fork(after_in_child=_after_fork)
