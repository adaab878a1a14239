"""The event loop behind the blocking door, and how threads talk to it.

One loop, in one daemon thread, serves a process. It is started by the first call and goes on until
the interpreter exits; what is left then is ended as ``asyncio.run`` would end it. A forked child
gets a loop of its own when it first needs one.

A waiting thread sleeps in ``SimpleQueue.get``: no polling, signals get through, and, as the queue
is made of no Python code, a signal handler that raises there leaves no lock behind that the loop
could stumble over.
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
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from bridle.errors import SessionStopped, UsageError

log = logging.getLogger("bridle.sync")

_FAREWELL = 8.0
"""Seconds the interpreter's exit waits at most; a session that resists is killed after five."""

_T = TypeVar("_T")

Work = Callable[[], Coroutine[Any, Any, _T]]


def nothing() -> None:
    """Nothing more is to be done when a wait is broken off."""


class Portal:
    """A loop in a thread. Every method may be called from any thread but the loop's own."""

    def __init__(self) -> None:
        #: The loop does not run: the interpreter exits, or this is a fork of its process.
        self.is_over = False
        # Whatever policy the program has is for loops of its own.
        self._loop = asyncio.SelectorEventLoop()
        self._ending = asyncio.Event()
        #: What was asked for; a loop alone would not keep it alive.
        self.tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._serve, name="bridle-sync", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            loop = runner.get_loop()
            ending = loop.create_task(self._ending.wait())
            while not self._ending.is_set():
                # The loop serves every thread of the program: no callback can end it.
                try:
                    if ending.done():
                        ending = loop.create_task(self._ending.wait())
                    loop.run_until_complete(ending)
                except (SystemExit, KeyboardInterrupt):
                    log.exception("an async callback tried to end the program")
                except (asyncio.CancelledError, RuntimeError):
                    log.exception("an async callback tried to end the loop of bridle.sync")

    def close(self) -> None:
        """The interpreter exits: end everything that still runs, and the loop.

        Only daemon threads can still wait for something. They wait on, and end with the process:
        woken now they would only complain.
        """
        if not self.is_over:
            self.is_over = True
            with contextlib.suppress(RuntimeError):  # the loop could not be kept going
                self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join(_FAREWELL)

    def forget(self) -> None:
        """This is a forked child: the loop, its thread and all it serves are the parent's."""
        self.is_over = True
        # Tasks that will never end are nothing to complain of here.
        self._loop.set_exception_handler(lambda loop, context: None)

    # -- calling -----------------------------------------------------------------------------------

    def call(self, operation: str, work: Work[_T], give_up: Callable[[], None] = nothing) -> _T:
        """Run a coroutine on the loop, in this thread's context, and wait for it.

        If the wait is broken off, as by Ctrl-C, the coroutine is cancelled, ``give_up`` is called,
        and the exception goes on at once.

        Raises:
            SessionStopped: the loop is over, and with it everything it served.
            UsageError: this is the loop's thread.
        """
        self.check(operation)
        call = _Call(work, self)
        try:
            self._loop.call_soon_threadsafe(call.start)
            task = call.done.get()
        except BaseException:
            if self._loop.is_closed():  # this very moment
                raise SessionStopped(operation) from None
            self.post(call.cancel)
            give_up()
            raise
        try:
            return task.result()
        finally:
            del task  # the exception refers to this frame, and the task to the exception

    def post(self, function: Callable[[], object]) -> None:
        """Have a function called on the loop, after everything asked for before. Never waits.

        At any moment: in a signal handler, while garbage is collected, when the loop is over.
        """
        if not self.is_over:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(function)

    def start(self, work: Work[object]) -> None:
        """Run a coroutine on the loop for which nobody waits. Never waits."""
        self.post(_Call(work, self).start)

    def check(self, operation: str) -> None:
        """Refuse what could not end well. Raises as :meth:`call`."""
        if self.is_over:
            raise SessionStopped(operation)
        if threading.get_ident() == self._thread.ident:
            raise UsageError(
                f"bridle.sync: {operation} would block the event loop that has to carry it out.",
                fix="Async callbacks run on that loop: make this one a plain function, which gets "
                "a thread of its own, or use asyncio.to_thread.",
            )


class _Call(Generic[_T]):
    """A coroutine on the loop, and where its thread waits for it."""

    def __init__(self, work: Work[_T], home: Portal) -> None:
        self.done: SimpleQueue[asyncio.Task[_T]] = SimpleQueue()
        self._work = work
        self._portal = home
        self._task: asyncio.Task[_T] | None = None

    def start(self) -> None:
        """Begin. On the loop."""
        self._task = task = asyncio.get_running_loop().create_task(self._run())
        self._portal.tasks.add(task)
        task.add_done_callback(self._finish)

    async def _run(self) -> _T:
        # Called inside the task: whatever goes wrong, the thread hears of it.
        return await self._work()

    def cancel(self) -> None:
        """Nobody waits any more. On the loop, after :meth:`start`."""
        if self._task is not None:
            self._task.cancel()

    def _finish(self, task: asyncio.Task[_T]) -> None:
        self._portal.tasks.discard(task)
        # Read here, so that nobody complains if the thread has given up.
        _ = task.cancelled() or task.exception()
        if not self._portal.is_over:
            self.done.put(task)


# ---------------------------------------------------------------- the one of this process

_current: Portal | None = None
_lock = threading.Lock()
_left_behind: list[Portal] = []


def portal() -> Portal:
    """The portal of this process, started if need be."""
    global _current
    with _lock:
        if _current is None:
            _current = Portal()
            # Exit functions run in reverse, and this one must be before those that kill: the
            # watchdog's, and weakref's, which is registered with the first finalizer.
            weakref.finalize(_current, nothing).detach()
            atexit.register(_current.close)
        return _current


def _forget() -> None:
    global _current, _lock
    _lock = threading.Lock()
    if _current is not None:
        _current.forget()
        # Kept for good: its descriptors are shared, and a loop that is collected closes them.
        _left_behind.append(_current)
        _current = None


os.register_at_fork(after_in_child=_forget)
