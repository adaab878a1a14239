"""A coroutine that is cancelled before it began still cleans up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.support.processes import run

from bridle._shell.begun import Begun


def noting(log: list[str], *waits: Callable[[], Awaitable[object]]) -> Begun[str]:
    async def work() -> str:
        log.append("begun")
        try:
            for wait in waits:
                await wait()
                log.append("waited")
        finally:
            await asyncio.sleep(0)
            log.append("cleaned up")
        return "done"

    return Begun(work())


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


WAITS: dict[str, Callable[[], Awaitable[object]]] = {
    "a future": for_ever,
    "a round": lambda: asyncio.sleep(0),
    "a time": lambda: asyncio.sleep(60),
    "tasks": lambda: asyncio.wait([asyncio.ensure_future(for_ever())]),
}


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("steps", [0, 1])
def test_however_early_it_is_cancelled_it_begins_and_cleans_up(wait: str, steps: int) -> None:
    log: list[str] = []

    async def main() -> None:
        task = asyncio.create_task(noting(log, WAITS[wait]))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main)
    assert log == ["begun", "cleaned up"]


def test_left_alone_it_is_the_coroutine() -> None:
    log: list[str] = []

    async def main() -> None:
        wait = WAITS["a round"]
        task = asyncio.create_task(noting(log, wait, wait))
        assert "noting.<locals>.work" in repr(task)
        assert await task == "done"
        assert await noting(log) == "done"

    run(main)
    assert log == ["begun", "waited", "waited", "cleaned up", "begun", "cleaned up"]


def test_one_that_waits_for_nothing_is_done_before_it_is_cancelled() -> None:
    async def at_once() -> str:
        return "done"

    async def main() -> None:
        task = asyncio.create_task(Begun(at_once()))
        task.cancel()
        assert await task == "done"

    run(main)


def test_one_that_is_never_run_is_closed_without_a_word() -> None:
    async def never() -> None:
        raise AssertionError

    Begun(never()).close()
