"""Wait for functions that block, for events, and for work that must not be cut off."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


async def in_thread(work: Callable[..., _T], *arguments: object) -> _T:
    """Run a function that blocks in a daemon thread.

    A database that hangs must not keep the program from ending, as a thread of a pool would.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = work(*arguments)
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the event loop has been closed
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name="bridle-fleet", daemon=True).start()
    return await done


async def first(waits: list[Awaitable[Any]], timeout: float | None = None) -> None:
    """Wait until one of them is done."""
    tasks = [asyncio.ensure_future(one) for one in waits]
    try:
        await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def unless(work: Awaitable[None], *events: asyncio.Event) -> None:
    """Wait for something. If an event is set before, cancel it."""
    task = asyncio.ensure_future(work)
    tasks = [task, *(asyncio.ensure_future(one.wait()) for one in events)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.wait(tasks)
    if not task.cancelled():
        task.result()


async def finish(work: Awaitable[None]) -> None:
    """Wait for something to its end, also if this task is cancelled. Then raise that."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError
