"""Tasks whose first step runs at once, or runs even if the task is cancelled before it.

Most callbacks return without waiting. :class:`Starter` runs a callback up to its first wait in the
current iteration of the event loop, so that its result is there at once. Every callback has a task
and a context of its own.

:class:`StartedCoroutine` is for work that has to clean up even if its task is cancelled early.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

_T = TypeVar("_T")

Work = Coroutine[Any, Any, Any]


class Starter:
    """Starts callbacks on an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # The coroutine that `_keep_step` looks for, and the step that it finds.
        self._work: Work | None = None
        self._step: Callable[[], object] | None = None

    def start(
        self, work: Work, name: str, context: Context
    ) -> tuple[asyncio.Task[Any] | None, Any]:
        """Run a coroutine up to its first wait, in a new task and in this context.

        Inside the step of another task, and on a loop with a task factory, the coroutine starts
        when the loop starts its task.

        Returns:
            The task in which the coroutine continues, or None and the result if it has returned.

        Raises:
            BaseException: whatever the coroutine raises before its first wait.
        """
        loop = self._loop
        if asyncio.current_task(loop) is None and loop.get_task_factory() is None:
            task = self._start_now(work, name, context)
        else:
            task = loop.create_task(work, name=name, context=context)
        return (None, task.result()) if task.done() else (task, None)

    if sys.version_info >= (3, 12):

        def _start_now(self, work: Work, name: str, context: Context) -> asyncio.Task[Any]:
            return asyncio.Task(work, loop=self._loop, name=name, context=context, eager_start=True)

    else:

        def _start_now(self, work: Work, name: str, context: Context) -> asyncio.Task[Any]:
            """Create a task, keep the loop from scheduling its first step, and run the step."""
            if getattr(self._loop.call_soon, "__self__", None) is not self._loop:
                # Other code has replaced the method; leave the loop as it is.
                return self._loop.create_task(work, name=name, context=context)
            loop: Any = self._loop
            self._work = work
            # A task schedules its first step with this method before its constructor returns.
            loop.call_soon = self._keep_step
            try:
                task = asyncio.Task(work, loop=loop, name=name, context=context)
            finally:
                del loop.call_soon
                step, self._step = self._step, None
            if step is not None:
                context.run(step)
            return task

        def _keep_step(
            self, callback: Callable[..., object], *arguments: Any, context: Context | None = None
        ) -> Any:
            """Stand in for the loop's ``call_soon`` while a task is created."""
            task = getattr(callback, "__self__", None)
            if isinstance(task, asyncio.Task) and task.get_coro() is self._work:
                self._step, self._work = callback, None
                return None
            # Garbage collection may run a finalizer here that schedules a callback.
            call_soon = type(self._loop).call_soon
            return call_soon(self._loop, callback, *arguments, context=context)


class StartedCoroutine(Coroutine[Any, Any, _T]):
    """A coroutine that takes its first step even if its task is cancelled before that.

    If a task is cancelled before its first step, an ordinary coroutine does not run at all, and its
    clean-up is skipped. This coroutine runs up to its first wait and is cancelled there.
    """

    def __init__(self, work: Coroutine[Any, Any, _T]) -> None:
        self._work = work
        self._is_started = False

    def send(self, value: Any, /) -> Any:
        """Take a step."""
        self._is_started = True
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """Take a step with an exception; run up to the first wait before that."""
        if not self._is_started:
            waits_for = self.send(None)
            if getattr(waits_for, "_asyncio_future_blocking", False):
                # The flag tells a task that the future is awaited. No task gets this future.
                waits_for._asyncio_future_blocking = False
        return self._work.throw(*error)

    def close(self) -> None:
        """Take no more steps."""
        self._work.close()

    def __getattr__(self, name: str) -> Any:
        # `repr` of a task and debuggers look at attributes such as `cr_frame`.
        return getattr(self._work, name)

    def __await__(self) -> Generator[Any, Any, _T]:
        return self._work.__await__()
