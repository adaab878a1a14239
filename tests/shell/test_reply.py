"""A task that waits for a reply goes on the moment it may, and otherwise as any task does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import pytest

from bridle._shell.reply import Reply

PLACE: ContextVar[str] = ContextVar("PLACE", default="outside")


def in_loop(work: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """A test that is a coroutine."""

    async def bounded() -> None:
        async with asyncio.timeout(10):
            await work()

    return lambda: asyncio.run(bounded(), debug=True)


async def soon(step: Callable[[], object]) -> None:
    """Have that done by a callback of the loop, as a pipe's is, where no task is in a step."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def callback() -> None:
        try:
            step()
        finally:
            done.set_result(None)

    asyncio.get_running_loop().call_soon(callback)
    await done


async def waiting(log: list[object]) -> tuple[Reply, asyncio.Task[object]]:
    """A reply, and a task that waits for it and notes what came of it."""
    reply = Reply(loop=asyncio.get_running_loop())

    async def wait() -> object:
        PLACE.set("inside")
        try:
            log.append(await reply)
        except BaseException as error:
            log.append(type(error))
            raise
        finally:
            log.append(PLACE.get())
        return "done"

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    return reply, task


@in_loop
async def test_its_task_goes_on_before_resume_returns_and_in_its_own_context() -> None:
    log: list[object] = []
    reply, task = await waiting(log)

    def answer() -> None:
        reply.set_result(5)
        assert log == []
        reply.resume()
        assert (log, PLACE.get()) == ([5, "inside"], "outside")

    await soon(answer)
    assert await task == "done"


@in_loop
async def test_an_error_is_raised_where_it_is_awaited() -> None:
    log: list[object] = []
    reply, task = await waiting(log)

    def refuse() -> None:
        reply.set_exception(LookupError("no"))
        reply.resume()
        assert log == [LookupError, "inside"]

    await soon(refuse)
    with pytest.raises(LookupError):
        await task


@in_loop
async def test_whoever_asks_in_the_midst_of_a_task_is_not_run_over() -> None:
    log: list[object] = []
    reply, task = await waiting(log)
    reply.set_result(5)
    reply.resume()
    assert log == []
    assert await task == "done"
    assert log == [5, "inside"]


@in_loop
async def test_a_reply_that_came_first_needs_no_waiting() -> None:
    reply = Reply(loop=asyncio.get_running_loop())
    reply.set_result(5)
    reply.resume()
    assert await reply == 5


@in_loop
async def test_a_cancelled_task_is_resumed_by_the_loop() -> None:
    log: list[object] = []
    reply, task = await waiting(log)
    task.cancel("enough")
    assert log == []
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await task
    assert (log, reply.cancelled()) == ([asyncio.CancelledError, "inside"], True)


@in_loop
async def test_a_task_cancelled_after_the_answer_and_before_it_goes_on_is_cancelled() -> None:
    log: list[object] = []
    reply, task = await waiting(log)

    def answer() -> None:
        reply.set_result(5)
        task.cancel()
        reply.resume()

    await soon(answer)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == [asyncio.CancelledError, "inside"]


@in_loop
async def test_what_ends_the_program_is_not_held_back() -> None:
    reply = Reply(loop=asyncio.get_running_loop())

    async def leave() -> None:
        await reply
        raise SystemExit(3)

    task = asyncio.create_task(leave())
    await asyncio.sleep(0)

    def answer() -> None:
        reply.set_result(None)
        with pytest.raises(SystemExit):
            reply.resume()

    await soon(answer)
    assert isinstance(task.exception(), SystemExit)
