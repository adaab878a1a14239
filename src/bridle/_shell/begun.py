"""Coroutines that clean up, however early they are cancelled.

A task that is cancelled before its first step runs nothing of its coroutine, a ``finally`` of it
included. That happens when a loop ends in the very step in which the task was made.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

_T = TypeVar("_T")


class Begun(Coroutine[Any, Any, _T]):
    """A coroutine that is cancelled where it first waits, if it is cancelled before it began."""

    def __init__(self, work: Coroutine[Any, Any, _T]) -> None:
        self._work = work
        self._has_begun = False

    def send(self, value: Any, /) -> Any:
        """Take a step."""
        self._has_begun = True
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """Take a step with an exception; the very first one goes up to where it waits."""
        if not self._has_begun:
            waits_for = self.send(None)
            if getattr(waits_for, "_asyncio_future_blocking", False):
                waits_for._asyncio_future_blocking = False  # no task gets to see it
        return self._work.throw(*error)

    def close(self) -> None:
        """Take no more steps."""
        self._work.close()

    def __getattr__(self, name: str) -> Any:
        # Its name, and where it waits: for those who show tasks.
        return getattr(self._work, name)

    def __await__(self) -> Generator[Any, Any, _T]:
        return self._work.__await__()
