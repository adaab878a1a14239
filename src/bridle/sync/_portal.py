"""The event loop of `bridle.sync`, and the calls from other threads to it.

One loop, in one daemon thread, serves the whole process. The first call starts it, and it runs
until the interpreter exits. Remaining tasks are then cancelled, as ``asyncio.run`` does. A forked
child starts its own loop at its first call.

A waiting thread blocks in ``SimpleQueue.get``. This needs no polling, and signal handlers can run.
The queue is implemented in C, so a signal handler that raises during the wait cannot leave a lock
held, which could block the loop.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from functools import wraps
from queue import SimpleQueue
from typing import Any, Generic, ParamSpec, TypeVar

from bridle.errors import SessionStopped, UsageError

log = logging.getLogger("bridle.sync")

_EXIT_TIMEOUT = 8.0
"""Maximum seconds that the interpreter's exit waits. Sessions send SIGKILL after five."""

_P = ParamSpec("_P")
_T = TypeVar("_T")

Work = Callable[[], Coroutine[Any, Any, _T]]


def nothing() -> None:
    """Do nothing when a wait is aborted."""


class Portal:
    """An event loop in a thread. Any other thread may call its methods."""

    def __init__(self) -> None:
        #: True if the loop does not run: the interpreter exits, or this is a forked child.
        self.is_over = False
        # Not made by the event loop policy: that is for the loops of the program.
        self._loop = asyncio.SelectorEventLoop()
        self._ending = asyncio.Event()
        #: Running tasks. The loop keeps only weak references to them.
        self.tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._serve, name="bridle-sync", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            loop = runner.get_loop()
            ending = loop.create_task(self._ending.wait())
            while not self._ending.is_set():
                # The loop serves all threads of the program, so no callback may end it.
                try:
                    if ending.done():
                        ending = loop.create_task(self._ending.wait())
                    loop.run_until_complete(ending)
                except (SystemExit, KeyboardInterrupt):
                    log.exception("an async callback raised SystemExit or KeyboardInterrupt")
                except (asyncio.CancelledError, RuntimeError):
                    log.exception("an async callback tried to stop the event loop of bridle.sync")

    def close(self) -> None:
        """Cancel all tasks and end the loop. Called when the interpreter exits.

        Only daemon threads can still be waiting. They are not woken, because they would only raise
        errors; they end with the process.
        """
        if not self.is_over:
            self.is_over = True
            with contextlib.suppress(RuntimeError):  # the loop has already ended
                self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join(_EXIT_TIMEOUT)

    def forget(self) -> None:
        """Mark the loop as over. Called in a forked child, where its thread does not exist."""
        self.is_over = True
        # Do not log that tasks of the parent are destroyed while pending.
        self._loop.set_exception_handler(lambda loop, context: None)

    # -- calling -----------------------------------------------------------------------------------

    def call(self, operation: str, work: Work[_T], give_up: Callable[[], None] = nothing) -> _T:
        """Run a coroutine on the loop, in this thread's context, and return its result.

        If an exception such as Ctrl-C ends the wait, the coroutine is cancelled, ``give_up`` is
        called, and the exception is raised at once.

        Raises:
            SessionStopped: the loop has ended, so all sessions have stopped.
            UsageError: this is the thread of the loop.
        """
        self.check(operation)
        call = _Call(work, self)
        try:
            self._loop.call_soon_threadsafe(call.start)
            task = call.done.get()
        except BaseException:
            if self._loop.is_closed():  # it was closed during this call
                raise SessionStopped(operation) from None
            self.post(call.cancel)
            give_up()
            raise
        try:
            return task.result()
        finally:
            del task  # breaks the cycle of exception, traceback frame and task

    def post(self, function: Callable[[], object]) -> None:
        """Schedule a function on the loop, after those scheduled before. Never waits.

        It may be called at any time: in a signal handler, during garbage collection, and after the
        loop has ended.
        """
        if not self.is_over:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(function)

    def start(self, work: Work[object]) -> None:
        """Start a coroutine on the loop without waiting for its result."""
        self.post(_Call(work, self).start)

    def check(self, operation: str) -> None:
        """Raise the errors of :meth:`call` if it cannot run an operation now."""
        if self.is_over:
            raise SessionStopped(operation)
        if threading.get_ident() == self._thread.ident:
            raise UsageError(
                f"bridle.sync: {operation} was called on its own event loop, and would block it.",
                fix="Async callbacks run on that loop. Make the callback a plain function, which "
                "runs in its own thread, or use asyncio.to_thread.",
            )


class _Call(Generic[_T]):
    """A coroutine on the loop, and the queue on which the calling thread waits."""

    def __init__(self, work: Work[_T], home: Portal) -> None:
        self.done: SimpleQueue[asyncio.Task[_T]] = SimpleQueue()
        self._work = work
        self._portal = home
        self._task: asyncio.Task[_T] | None = None

    def start(self) -> None:
        """Start the coroutine. Runs on the loop."""
        self._task = task = asyncio.get_running_loop().create_task(self._run())
        self._portal.tasks.add(task)
        task.add_done_callback(self._finish)

    async def _run(self) -> _T:
        # Called inside the task, so that the thread gets every error.
        return await self._work()

    def cancel(self) -> None:
        """Cancel the coroutine. Runs on the loop, after :meth:`start`."""
        if self._task is not None:
            self._task.cancel()

    def _finish(self, task: asyncio.Task[_T]) -> None:
        self._portal.tasks.discard(task)
        # Read the exception, so that asyncio does not log it if the thread has given up.
        _ = task.cancelled() or task.exception()
        if not self._portal.is_over:
            self.done.put(task)


# ---------------------------------------------------------------- the portal of this process

_current: Portal | None = None
_lock = threading.Lock()
_left_behind: list[Portal] = []


def portal() -> Portal:
    """Return the portal of this process. Start it if needed."""
    global _current
    with _lock:
        if _current is None:
            _current = Portal()
            # Exit functions run in reverse order. This one must run before those that kill
            # processes: the watchdog's, and weakref's, which the first finalizer registers.
            weakref.finalize(_current, nothing).detach()
            atexit.register(_current.close)
        return _current


def blocking_function(function: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, _T]:
    """Return a function that runs a coroutine function on the shared event loop and waits."""

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return portal().call(function.__name__, lambda: function(*args, **kwargs))

    return call


def _forget() -> None:
    global _current, _lock
    _lock = threading.Lock()
    if _current is not None:
        _current.forget()
        # Never released: the parent shares its descriptors, and a collected loop closes them.
        _left_behind.append(_current)
        _current = None


os.register_at_fork(after_in_child=_forget)
