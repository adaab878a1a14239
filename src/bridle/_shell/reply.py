"""What a control operation waits for, and how it goes on without another round of the event loop.

A future leaves it to the loop to resume whoever awaits it, in the next round. For an operation that
round, with its look at every pipe and timer, would cost as much as asking and answering together.
So the task goes on within the callback that brought the answer, once everything else that came with
the answer is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any


class Reply(asyncio.Future[Any]):
    """A future for one task to await, and for nothing else.

    It is settled like any other; then `resume` takes the task on. A task that is cancelled is
    resumed by the loop, as usual. Belongs to its loop.
    """

    _waiter: tuple[Callable[[Reply], object], Context] | None = None

    def add_done_callback(
        self, fn: Callable[[Any], object], /, *, context: Context | None = None
    ) -> None:
        """Called by the task that awaits it, with its own context."""
        assert context is not None, "only a task awaits a reply"
        self._waiter = (fn, context)

    def cancel(self, msg: Any | None = None) -> bool:
        """Called by the task that awaits it, when it is cancelled."""
        is_cancelled = super().cancel(msg)
        if is_cancelled and self._waiter is not None:
            self._resume_later(*self._waiter)
        return is_cancelled

    def resume(self) -> None:
        """Let the task go on, up to where it waits next. It may do anything on the way."""
        if self._waiter is None:
            return  # it was answered while it was being asked: there will be nothing to wait for
        step, context = self._waiter
        try:
            context.run(step, self)
        except RuntimeError:
            # Not the task's own, which would keep it: some task is in the midst of a step, and
            # calls us from there.
            self._resume_later(step, context)

    def _resume_later(self, step: Callable[[Reply], object], context: Context) -> None:
        self.get_loop().call_soon(step, self, context=context)
