"""Connect the event loop of the program with the event loop of Bridle.

Under asyncio both are the same. Under trio, Bridle runs on its background loop, and a `TrioBridge`
passes calls, messages and callbacks between the two.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar

_T = TypeVar("_T")
_P = ParamSpec("_P")


class Bridge(Protocol):
    """The way from the program to Bridle, and back for callbacks."""

    @property
    def checkpoint(self) -> Callable[[], Awaitable[None]] | None:
        """What to await before each message, so that a cancelled program gets no more of them.

        None if the program does not expect it.
        """
        ...

    async def run(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine on the loop of Bridle, and return its result to the program.

        Cancellation: cancels the coroutine, and waits for its end.
        """
        ...

    def post(self, function: Callable[[], object]) -> None:
        """Call a function on the loop of Bridle, before all later calls. Does not wait."""
        ...

    def callback(
        self, function: Callable[_P, Awaitable[_T]], lost: type[BaseException] = RuntimeError
    ) -> Callable[_P, Awaitable[_T]]:
        """Return a function for the loop of Bridle that calls ``function`` in the program.

        It raises ``lost`` if the program has ended, or ends.
        """
        ...

    def pull(self, source: AsyncIterable[_T]) -> AsyncIterable[_T]:
        """Return an iterable for the loop of Bridle that reads ``source`` in the program."""
        ...


class AsyncioBridge:
    """The bridge of a program that uses asyncio: everything runs on its own loop."""

    #: A task of asyncio is cancelled where it waits. A wait for each message would be slow.
    checkpoint = None

    async def run(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine."""
        return await work()

    def post(self, function: Callable[[], object]) -> None:
        """Call a function."""
        function()

    def callback(
        self, function: Callable[_P, Awaitable[_T]], lost: type[BaseException] = RuntimeError
    ) -> Callable[_P, Awaitable[_T]]:
        """Return the function itself."""
        return function

    def pull(self, source: AsyncIterable[_T]) -> AsyncIterable[_T]:
        """Return the iterable itself."""
        return source


_ASYNCIO = AsyncioBridge()


def current_bridge() -> Bridge:
    """Return the bridge for the running event loop.

    Raises:
        RuntimeError: neither asyncio nor trio is running.
    """
    if "trio" in sys.modules:
        from bridle.compat.claude_agent_sdk._loops.trio_bridge import (
            trio_bridge,  # only if trio is in use
        )

        bridge = trio_bridge()
        if bridge is not None:
            return bridge
    asyncio.get_running_loop()
    return _ASYNCIO
