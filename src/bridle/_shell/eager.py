"""Coroutines that start at once instead of in the loop's next round.

Most callbacks return without ever waiting. Run as tasks of their own they would cost the making of
a task and two more rounds of the event loop, several times what they do. So the first step of a
coroutine is taken on the spot; only one that then waits for something becomes a task.

It hardly can tell. Its current task is the same from beginning to end, so timeouts, task groups
and cancellation work: a spare task lies in wait, lends its name to the first step, and takes over
what has not finished. And all its steps run in one context, its own. What it may notice: those that
end in their first step share the spare task, one after the other.
"""

from __future__ import annotations

import asyncio

# Documented under "Extending", for those who run tasks in their own way.
from asyncio import _enter_task, _leave_task  # pyright: ignore[reportPrivateUsage]
from collections.abc import Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any

Work = Coroutine[Any, Any, Any]


class _Spare:
    """A task that waits for a coroutine to go on with."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._taken: asyncio.Future[None] = loop.create_future()
        self._rest: _Rest | None = None
        #: Whether it lies in wait; if so, it may still have been cancelled.
        self.waits = False
        self.task = loop.create_task(self._wait(), name="bridle-spare")

    @property
    def is_spent(self) -> bool:
        """Whether it can be used no more: somebody has meddled with it, cancelled it, say."""
        return self.task.done() or self.task.cancelling() > 0

    def take_over(self, rest: _Rest) -> None:
        """Go on with what has not finished."""
        self._rest = rest
        if not self._taken.done():  # it is, if the coroutine has cancelled its own task
            self._taken.set_result(None)

    async def _wait(self) -> Any:
        self.waits = True
        try:
            await self._taken
        except asyncio.CancelledError as error:
            if self._rest is None:
                raise
            self._rest.interruption = error  # cancelled on the way: it is the coroutine's now
        finally:
            self.waits = False
        assert self._rest is not None
        return await self._rest


class _Rest:
    """The steps of a coroutine after its first, which ended in waiting for something."""

    def __init__(self, work: Work, context: Context, waits_for: Any) -> None:
        self._work = work
        self._context = context
        self._waits_for = waits_for
        # A future says to the task that gets it next: this is an await. Ours gets it later, and
        # others may await the same future until then.
        self._is_await = bool(getattr(waits_for, "_asyncio_future_blocking", False))
        if self._is_await:
            waits_for._asyncio_future_blocking = False
        self.interruption: BaseException | None = None

    def __await__(self) -> Generator[Any, Any, Any]:
        run, work, waits_for = self._context.run, self._work, self._waits_for
        try:
            if self.interruption is not None:
                waits_for = run(work.throw, self.interruption)
            elif self._is_await:
                waits_for._asyncio_future_blocking = True
            while True:
                try:
                    sent = yield waits_for
                except BaseException as error:  # thrown in by whoever runs the task
                    waits_for = run(work.throw, error)
                else:
                    waits_for = run(work.send, sent)
        except StopIteration as end:
            return end.value


class Starter:
    """Starts the coroutines of one session."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._spare: _Spare | None = None

    def start(
        self, work: Work, name: str, context: Context | None
    ) -> tuple[asyncio.Task[Any] | None, Any]:
        """Take the first step, or leave all of them to a task if no spare one lies in wait.

        Returns the task in which it goes on; or None and the result, if that was all. What the
        coroutine raises in its first step is raised here.
        """
        if context is None:
            context = copy_context()
        spare = self._spare
        if spare is None or not spare.waits or spare.task.cancelling():
            if spare is None or spare.is_spent:
                self._spare = _Spare(self._loop)
            return self._loop.create_task(work, name=name, context=context), None
        try:
            _enter_task(self._loop, spare.task)
        except RuntimeError:  # some task is in the midst of a step, and calls us from there
            return self._loop.create_task(work, name=name, context=context), None
        try:
            waits_for = context.run(work.send, None)
        except StopIteration as end:
            return None, end.value
        finally:
            _leave_task(self._loop, spare.task)
        spare.task.set_name(name)
        spare.take_over(_Rest(work, context, waits_for))
        self._spare = _Spare(self._loop)
        return spare.task, None

    def close(self) -> None:
        """Let the spare task go."""
        if self._spare is not None:
            self._spare.task.cancel()
            self._spare = None
