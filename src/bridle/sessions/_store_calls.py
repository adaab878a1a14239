"""Call the methods of a store: in a task of their own, and with a deadline.

A store is code of the user. It may ignore that it is cancelled, or raise CancelledError itself.
Neither may delay or end the task that calls it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

_T = TypeVar("_T")

_CANCEL_TIMEOUT = 1.0
"""Seconds that a cancelled caller waits until the store has ended the call."""


class StoreCallTimeout(Exception):
    """A method of the store did not end in time. It was cancelled."""


class StoreCallCancelled(Exception):
    """A method of the store raised CancelledError, although nothing cancelled it."""


async def call_store(
    timeout: float, method: Callable[..., Awaitable[_T]], *arguments: object
) -> _T:
    """Call a method of a store and return its result. ``timeout`` is in seconds.

    Cancellation: the method is cancelled. Wait a moment until it has ended, so that its effects do
    not come later than those of the next call.

    Raises:
        StoreCallTimeout: it did not end in time.
        StoreCallCancelled: it raised CancelledError.
        Exception: an exception of the store.
    """
    calling = asyncio.get_running_loop().create_task(_call(method, arguments))
    try:
        await asyncio.wait([calling], timeout=timeout)
    except asyncio.CancelledError:
        calling.cancel()
        await asyncio.wait([calling], timeout=_CANCEL_TIMEOUT)
        raise
    finally:
        if not calling.done():
            calling.cancel()
        # An exception that comes later is read here, otherwise asyncio would log it.
        calling.add_done_callback(lambda done: done.cancelled() or done.exception())
    name = getattr(method, "__name__", "the call")
    if not calling.done():
        raise StoreCallTimeout(f"{name} did not end within {round(timeout, 2):g} s")
    if calling.cancelled():
        raise StoreCallCancelled(f"{name} was cancelled")
    return calling.result()


async def _call(method: Callable[..., Awaitable[_T]], arguments: tuple[object, ...]) -> _T:
    """Call a method. One that is not async fails here like one that raises."""
    return await method(*arguments)
