"""Reads the prompts of a query from an iterable of the program."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from typing import TypeVar, cast

from bridle._runtime.workers import WORKERS
from bridle.content import Prompts

_T = TypeVar("_T")
_NO_MORE = object()


async def draw(prompts: Prompts) -> AsyncGenerator[object, None]:
    """Yield the prompts of an iterable on demand. A plain iterable is read in a thread."""
    if isinstance(prompts, AsyncIterable):
        source = cast("AsyncIterable[object]", prompts)
        async with _closing(source):
            async for prompt in source:
                yield prompt
    else:
        plain = cast("Iterable[object]", prompts)
        iterator = await in_thread(lambda: iter(plain))
        while (prompt := await in_thread(lambda: next(iterator, _NO_MORE))) is not _NO_MORE:
            yield prompt


@contextlib.asynccontextmanager
async def _closing(source: AsyncIterable[object]) -> AsyncGenerator[None, None]:
    """Close an async generator at the end. Other iterables have no ``aclose``."""
    try:
        yield
    finally:
        close = getattr(source, "aclose", None)
        if close is not None:
            await close()


async def in_thread(function: Callable[[], _T]) -> _T:
    """Call a plain function in a daemon thread, without blocking the event loop.

    A function that hangs does not keep the program from ending.

    Cancellation: ends the wait; the function continues in its thread.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def settle(result: list[_T], error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result[0])
        else:
            done.set_exception(error)

    def job() -> None:
        result: list[_T] = []
        error: BaseException | None = None
        try:
            result.append(function())
        except (
            StopIteration
        ) as problem:  # a future cannot hold one; a generator raises RuntimeError too
            error = RuntimeError("the iterable of prompts raised StopIteration")
            error.__cause__ = problem
        except BaseException as problem:  # passed to the task that waits
            error = problem
        with contextlib.suppress(RuntimeError):  # the loop is closed, and no task waits
            loop.call_soon_threadsafe(settle, result, error)

    WORKERS.run(job)
    return await done
