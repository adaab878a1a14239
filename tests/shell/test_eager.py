"""Coroutines that start at once hardly can tell that they did."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from bridle._shell.eager import Starter

VALUE: contextvars.ContextVar[str] = contextvars.ContextVar("VALUE", default="outside")


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(10):
            return await work()

    return asyncio.run(bounded(), debug=True)


class Bench:
    """A starter, used from a callback of the loop as the pipes use it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.starter = Starter(self.loop)
        self.results: list[object] = []

    async def warm(self) -> None:
        """Have a spare task in wait, as after the first callback of a session."""
        task = await self.start(quick())
        assert task is not None
        await task

    def now(
        self, work: Coroutine[Any, Any, Any], context: contextvars.Context | None = None
    ) -> asyncio.Task[Any] | None:
        """The task in which it goes on; or none, and the result is among the others."""
        task, result = self.starter.start(work, "work", context)
        if task is None:
            self.results.append(result)
        return task

    async def start(
        self, work: Coroutine[Any, Any, Any], context: contextvars.Context | None = None
    ) -> asyncio.Task[Any] | None:
        """What the starter returns, or raises, when a callback of the loop calls it."""
        answer: asyncio.Future[asyncio.Task[Any] | None] = self.loop.create_future()

        def call() -> None:
            try:
                answer.set_result(self.now(work, context))
            except BaseException as error:
                answer.set_exception(error)

        self.loop.call_soon(call)
        return await answer


async def quick() -> str:
    return "quick"


def test_what_does_not_wait_is_done_at_once_and_makes_no_task() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.warm()
        before = asyncio.all_tasks()
        assert await bench.start(quick()) is None
        assert await bench.start(quick()) is None
        assert bench.results == ["quick", "quick"]
        assert asyncio.all_tasks() == before
        bench.starter.close()

    run(main)


def test_what_waits_goes_on_in_a_task() -> None:
    async def work(gate: asyncio.Event) -> str:
        await gate.wait()
        await asyncio.sleep(0)
        return "later"

    async def main() -> None:
        bench, gate = Bench(), asyncio.Event()
        await bench.warm()
        task = await bench.start(work(gate))
        assert task is not None
        assert (task.get_name(), bench.results) == ("work", [])
        gate.set()
        assert await task == "later"
        bench.starter.close()

    run(main)


def test_what_is_raised_is_raised_where_it_happens() -> None:
    async def fail(*, later: bool) -> None:
        if later:
            await asyncio.sleep(0)
        raise ValueError("no")

    async def main() -> None:
        bench = Bench()
        await bench.warm()
        with pytest.raises(ValueError, match="no"):
            await bench.start(fail(later=False))
        task = await bench.start(fail(later=True))
        assert task is not None
        with pytest.raises(ValueError, match="no"):
            await task
        bench.starter.close()

    run(main)


def test_the_current_task_is_one_from_beginning_to_end() -> None:
    """So a timeout set in the first step ends a later one, and a task group finds its parent."""

    async def work() -> str:
        task = asyncio.current_task()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            child = group.create_task(quick())
        assert asyncio.current_task() is task is not None
        return child.result()

    async def main() -> None:
        bench = Bench()
        await bench.warm()
        task = await bench.start(work())
        assert task is not None
        assert await task == "quick"
        bench.starter.close()

    run(main)


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_cancelling_reaches_the_coroutine_however_early(rounds: int) -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main() -> None:
        bench = Bench()
        await bench.warm()
        task = await bench.start(work())
        assert task is not None
        for _ in range(rounds):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        bench.starter.close()

    run(main)
    assert seen == ["cancelled"]


def test_a_coroutine_may_survive_being_cancelled() -> None:
    async def work() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "survived"

    async def main() -> None:
        bench = Bench()
        await bench.warm()
        task = await bench.start(work())
        assert task is not None
        task.cancel()
        assert await task == "survived"
        bench.starter.close()

    run(main)


def test_each_has_a_context_of_its_own_for_all_its_steps() -> None:
    async def work(value: str, *, waits: bool) -> list[str]:
        seen = [VALUE.get()]
        VALUE.set(value)
        if waits:
            await asyncio.sleep(0)
        return [*seen, VALUE.get()]

    async def main() -> None:
        bench = Bench()
        await bench.warm()
        await bench.start(work("one", waits=False))
        task = await bench.start(work("two", waits=True))
        assert task is not None
        given = contextvars.copy_context()
        given.run(VALUE.set, "given")
        other = await bench.start(work("three", waits=True), given)
        assert other is not None
        assert await task == ["outside", "two"]
        assert await other == ["given", "three"]
        assert bench.results == [["outside", "one"]]
        assert (VALUE.get(), given[VALUE]) == ("outside", "three")
        bench.starter.close()

    run(main)


def test_one_that_cancels_itself_and_returns_harms_nobody_after_it() -> None:
    async def cancels_itself() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "done"

    async def main() -> None:
        bench = Bench()
        await bench.warm()
        assert await bench.start(cancels_itself()) is None
        task = await bench.start(asyncio.sleep(0, "slept"))
        assert task is not None
        assert await task == "slept"
        assert await bench.start(quick()) is None
        assert bench.results == ["done", "quick"]
        bench.starter.close()

    run(main)


def test_inside_a_task_it_becomes_a_task_as_any_other() -> None:
    """There is a current task then, which may not be taken away."""

    async def main() -> None:
        bench = Bench()
        task = bench.now(quick())
        assert task is not None
        assert await task == "quick"
        assert bench.results == []

    run(main)


def test_closing_leaves_no_task() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.warm()
        await bench.start(quick())
        bench.starter.close()
        bench.starter.close()
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)

    run(main)


def test_two_may_wait_for_the_same_future() -> None:
    """Each says so to the loop in its own time; the first must not take it from the second."""

    async def work(shared: asyncio.Future[str]) -> str:
        return await shared

    async def main() -> None:
        bench = Bench()
        await bench.warm()
        shared: asyncio.Future[str] = bench.loop.create_future()
        started: list[asyncio.Task[str] | None] = []

        def call() -> None:
            for _ in range(3):
                task = bench.now(work(shared))
                started.append(task)

        bench.loop.call_soon(call)
        other = asyncio.ensure_future(work(shared))
        while len(started) < 3:
            await asyncio.sleep(0)
        shared.set_result("shared")
        tasks = [task for task in started if task is not None]
        assert await asyncio.gather(*tasks, other) == ["shared"] * 4
        bench.starter.close()

    run(main)


def test_cancelled_in_the_round_it_began_it_still_cleans_up() -> None:
    seen: list[str] = []

    async def work() -> None:
        seen.append("began")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            seen.append("cleaned up")

    async def main() -> None:
        bench = Bench()
        await bench.warm()
        tasks: list[asyncio.Task[Any]] = []

        def call() -> None:
            task = bench.now(work())
            assert task is not None
            task.cancel()
            tasks.append(task)

        bench.loop.call_soon(call)
        while not tasks:
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        bench.starter.close()

    run(main)
    assert seen == ["began", "cleaned up"]


def test_one_that_cancels_itself_and_then_waits_is_cancelled() -> None:
    seen: list[str] = []

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main() -> None:
        bench = Bench()
        await bench.warm()
        task = await bench.start(work())
        assert task is not None
        with pytest.raises(asyncio.CancelledError):
            await task
        bench.starter.close()

    run(main)
    assert seen == ["cancelled"]


def test_without_a_spare_in_wait_it_is_a_task_as_any_other() -> None:
    """The first one of all, and the second of two that wait in the same round."""

    async def main() -> None:
        bench = Bench()
        first = await bench.start(quick())
        assert first is not None
        assert await first == "quick"
        assert await bench.start(quick()) is None
        bench.starter.close()

    run(main)
