"""Callbacks start at once, each in a task of its own; clean-up work always starts."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import importlib.util
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import anyio
import pytest
from tests.support.processes import LIMIT
from tests.support.processes import run as run_plainly

from bridle._runtime.tasks import StartedCoroutine, Starter

UVLOOP = importlib.util.find_spec("uvloop") is not None
VALUE: contextvars.ContextVar[str] = contextvars.ContextVar("VALUE", default="outside")

Main = Callable[[], Awaitable[Any]]
Result = TypeVar("Result")


def new_uvloop() -> asyncio.AbstractEventLoop:
    uvloop: Any = importlib.import_module("uvloop")
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


LOOPS: list[Any] = [
    pytest.param(asyncio.new_event_loop, id="asyncio"),
    pytest.param(
        new_uvloop, id="uvloop", marks=pytest.mark.skipif(not UVLOOP, reason="needs uvloop")
    ),
]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Main], Any]:
    """Return a function that runs a coroutine on one kind of event loop, in debug mode."""

    def run_main(main: Main) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(LIMIT):
                return await main()

        with asyncio.Runner(debug=True, loop_factory=request.param) as runner:
            return runner.run(bounded())

    return run_main


class Bench:
    """A starter, and callbacks of the loop that use it, as the read callback of a pipe does."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.starter = Starter(self.loop)

    def now(
        self, work: Coroutine[Any, Any, Any], context: contextvars.Context | None = None
    ) -> tuple[asyncio.Task[Any] | None, Any]:
        """Start a coroutine; return the task in which it continues, or None and its result."""
        return self.starter.start(work, "work", context or contextvars.copy_context())

    async def outside(self, function: Callable[[], Result]) -> Result:
        """Call a function from a callback of the loop, where no task is current."""
        answer: asyncio.Future[Result] = self.loop.create_future()

        def call() -> None:
            try:
                answer.set_result(function())
            except BaseException as error:
                answer.set_exception(error)

        self.loop.call_soon(call)
        return await answer

    async def result(
        self, work: Coroutine[Any, Any, Any], context: contextvars.Context | None = None
    ) -> Any:
        """Return the result of a coroutine that does not wait."""
        task, result = await self.outside(lambda: self.now(work, context))
        assert task is None, "it does not wait"
        return result

    async def task(
        self, work: Coroutine[Any, Any, Any], context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        """Return the task of a coroutine that waits."""
        task, _ = await self.outside(lambda: self.now(work, context))
        assert task is not None, "it waits"
        return task


async def quick() -> str:
    return "quick"


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


Run = Callable[[Main], Any]


# ---------------------------------------------------------------- starting at once


def test_a_callback_that_does_not_wait_is_done_at_once(run: Run) -> None:
    async def main() -> None:
        bench = Bench()
        before = asyncio.all_tasks()
        assert await bench.result(quick()) == "quick"
        assert await bench.result(quick()) == "quick"
        assert asyncio.all_tasks() == before

    run(main)


def test_a_callback_that_waits_continues_in_a_task(run: Run) -> None:
    async def work(gate: asyncio.Event) -> str:
        await gate.wait()
        await asyncio.sleep(0)
        return "later"

    async def main() -> None:
        bench, gate = Bench(), asyncio.Event()
        task = await bench.task(work(gate))
        assert task.get_name() == "work"
        gate.set()
        assert await task == "later"

    run(main)


def test_an_exception_of_the_first_step_is_raised_and_a_later_one_is_in_the_task(
    run: Run,
) -> None:
    async def fail(*, later: bool) -> None:
        if later:
            await asyncio.sleep(0)
        raise ValueError("no")

    async def main() -> None:
        bench = Bench()
        with pytest.raises(ValueError, match="no"):
            await bench.result(fail(later=False))
        with pytest.raises(ValueError, match="no"):
            await (await bench.task(fail(later=True)))

    run(main)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_the_end_of_the_program_passes_through(run: Run, kind: type[BaseException]) -> None:
    async def leave() -> None:
        raise kind

    async def main() -> None:
        bench, seen = Bench(), []

        def start() -> None:
            try:
                bench.now(leave())
            except kind as error:
                seen.append(type(error))

        # The task of a callback that ends the program reports its exception, as any task does.
        bench.loop.set_exception_handler(lambda *_: None)
        await bench.outside(start)
        assert seen == [kind]
        gc.collect()
        assert await bench.result(quick()) == "quick"

    run(main)


def test_inside_a_task_a_callback_starts_in_the_next_iteration(run: Run) -> None:
    """A step of one task never runs in the midst of a step of another."""

    async def main() -> None:
        task, _ = Bench().now(quick())
        assert task is not None
        assert await task == "quick"

    run(main)


def test_a_loop_with_a_task_factory_creates_the_tasks(run: Run) -> None:
    class OwnTask(asyncio.Task[Any]):
        pass

    async def current() -> object:
        return asyncio.current_task()

    async def main() -> None:
        bench = Bench()
        bench.loop.set_task_factory(lambda loop, work, **more: OwnTask(work, loop=loop, **more))
        task = await bench.task(current())
        assert await task is task
        assert type(task) is OwnTask

    run(main)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.12 introduced this factory")
def test_a_loop_that_starts_all_tasks_eagerly_starts_callbacks_at_once() -> None:
    async def main() -> None:
        bench = Bench()
        factory: Any = asyncio.eager_task_factory  # type: ignore[attr-defined, unused-ignore]
        bench.loop.set_task_factory(factory)
        assert await bench.result(quick()) == "quick"

    run_plainly(main)


def test_a_loop_that_other_code_has_changed_stays_as_it_is(run: Run) -> None:
    async def main() -> None:
        bench = Bench()
        loop: Any = bench.loop
        original = loop.call_soon
        loop.call_soon = replaced = lambda *arguments, **more: original(*arguments, **more)
        try:
            task, result = await bench.outside(lambda: bench.now(quick()))
            assert (result if task is None else await task) == "quick"
            assert loop.call_soon is replaced
        finally:
            del loop.call_soon

    run(main)


def test_a_finalizer_may_schedule_a_callback_while_a_task_is_created(run: Run) -> None:
    class Garbage:
        def __init__(self) -> None:
            self.cycle = self

        def __del__(self) -> None:
            asyncio.get_running_loop().call_soon(seen.append, "finalizer")

    def start(bench: Bench) -> tuple[object, object]:
        threshold = gc.get_threshold()
        Garbage()
        # Every allocation of a container collects garbage now, that of the task too.
        gc.set_threshold(1, 1, 1)
        try:
            return bench.now(quick())
        finally:
            gc.set_threshold(*threshold)

    async def main() -> None:
        bench = Bench()
        assert await bench.outside(lambda: start(bench)) == (None, "quick")
        await asyncio.sleep(0)
        assert seen == ["finalizer"]

    seen: list[str] = []
    run(main)


# ---------------------------------------------------------------- a task for each


def test_each_callback_has_a_task_of_its_own(run: Run) -> None:
    """Libraries keep state under the current task: it must not reach another callback."""
    state: dict[object, str] = {}

    async def work(value: str) -> str:
        task = asyncio.current_task()
        assert task is not None
        assert task.get_name() == "work"
        return state.setdefault(task, value)

    async def main() -> None:
        bench = Bench()
        assert [await bench.result(work(value)) for value in "abc"] == ["a", "b", "c"]
        assert len(state) == 3

    run(main)


def test_the_current_task_is_the_same_from_beginning_to_end(run: Run) -> None:
    """A timeout that the first step sets ends a later one; a task group finds its parent."""

    async def work() -> object:
        task = asyncio.current_task()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            child = group.create_task(quick())
        assert child.result() == "quick"
        assert asyncio.current_task() is task is not None
        return task

    async def main() -> None:
        task = await Bench().task(work())
        assert await task is task

    run(main)


@pytest.mark.parametrize("delay", [0.0, 0.01])
def test_timeouts_of_anyio_work_in_a_callback(run: Run, delay: float) -> None:
    async def work() -> str:
        with anyio.move_on_after(delay) as scope:
            await anyio.sleep(10)
        assert scope.cancelled_caught
        with pytest.raises(TimeoutError), anyio.fail_after(delay):
            await asyncio.Event().wait()
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 0)
        return "in time"

    async def main() -> None:
        bench = Bench()
        assert await (await bench.task(work())) == "in time"

    run(main)


class TimerContext:
    """A timeout as aiohttp has it: it cancels the task that was current at its beginning."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._is_expired = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._timer = asyncio.get_running_loop().call_later(self._delay, self._expire)

    def _expire(self) -> None:
        self._is_expired = True
        self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        if kind is asyncio.CancelledError and self._is_expired:
            self._task.uncancel()
            raise TimeoutError


def test_timeouts_that_cancel_and_uncancel_the_task_work_in_a_callback(run: Run) -> None:
    async def work() -> int:
        task = asyncio.current_task()
        assert task is not None
        for delay in (0.0, 0.01):
            with pytest.raises(TimeoutError), TimerContext(delay):
                await asyncio.Event().wait()
        return task.cancelling()

    async def main() -> None:
        assert await (await Bench().task(work())) == 0

    run(main)


def test_each_callback_has_one_context_for_all_its_steps(run: Run) -> None:
    async def work(value: str, *, waits: bool) -> list[str]:
        seen = [VALUE.get()]
        VALUE.set(value)
        if waits:
            await asyncio.sleep(0)
        return [*seen, VALUE.get()]

    async def main() -> None:
        bench = Bench()
        assert await bench.result(work("one", waits=False)) == ["outside", "one"]
        task = await bench.task(work("two", waits=True))
        given = contextvars.copy_context()
        given.run(VALUE.set, "given")
        other = await bench.task(work("three", waits=True), given)
        assert await task == ["outside", "two"]
        assert await other == ["given", "three"]
        assert (VALUE.get(), given[VALUE]) == ("outside", "three")

    run(main)


def test_several_callbacks_may_wait_for_the_same_future(run: Run) -> None:
    async def work(shared: asyncio.Future[str]) -> str:
        return await shared

    async def main() -> None:
        bench = Bench()
        shared: asyncio.Future[str] = bench.loop.create_future()
        started = await bench.outside(lambda: [bench.now(work(shared))[0] for _ in range(3)])
        tasks = [task for task in started if task is not None]
        other = asyncio.ensure_future(work(shared))
        shared.set_result("shared")
        assert await asyncio.gather(*tasks, other) == ["shared"] * 4

    run(main)


# ---------------------------------------------------------------- cancelling


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_cancelling_reaches_the_callback_however_early(rounds: int, run: Run) -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main() -> None:
        task = await Bench().task(work())
        for _ in range(rounds):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main)
    assert seen == ["cancelled"]


def test_a_callback_that_is_cancelled_in_the_iteration_it_started_cleans_up(run: Run) -> None:
    """What it waits for is cancelled with it."""
    seen: list[str] = []

    async def inner() -> None:
        try:
            await for_ever()
        finally:
            seen.append("inner")

    async def main() -> None:
        bench = Bench()
        waiting = asyncio.ensure_future(inner())
        await asyncio.sleep(0)

        async def work() -> None:
            try:
                await waiting
            finally:
                await asyncio.sleep(0)
                seen.append("outer")

        def start() -> asyncio.Task[Any]:
            task, _ = bench.now(work())
            assert task is not None
            task.cancel()
            return task

        with pytest.raises(asyncio.CancelledError):
            await (await bench.outside(start))

    run(main)
    assert seen == ["inner", "outer"]


def test_a_callback_may_survive_being_cancelled(run: Run) -> None:
    async def work() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "survived"

    async def main() -> None:
        task = await Bench().task(work())
        task.cancel()
        assert await task == "survived"

    run(main)


@pytest.mark.parametrize("waits", [True, False])
def test_a_callback_that_cancels_itself_is_cancelled_and_no_other(waits: bool, run: Run) -> None:
    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if waits:
            await asyncio.sleep(60)

    async def main() -> None:
        bench = Bench()
        if waits:
            task = await bench.task(work())
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            seen: list[type[BaseException]] = []

            def start() -> None:
                try:
                    bench.now(work())
                except asyncio.CancelledError as error:
                    seen.append(type(error))

            await bench.outside(start)
            assert seen == [asyncio.CancelledError]
        assert await bench.result(quick()) == "quick"
        assert await (await bench.task(asyncio.sleep(0, "slept"))) == "slept"

    run(main)


# ---------------------------------------------------------------- work that always starts


def noting(log: list[str], *waits: Callable[[], Awaitable[object]]) -> StartedCoroutine[str]:
    async def work() -> str:
        log.append("started")
        try:
            for wait in waits:
                await wait()
                log.append("waited")
        finally:
            await asyncio.sleep(0)
            log.append("cleaned up")
        return "done"

    return StartedCoroutine(work())


WAITS: dict[str, Callable[[], Awaitable[object]]] = {
    "a future": for_ever,
    "an iteration": lambda: asyncio.sleep(0),
    "a time": lambda: asyncio.sleep(60),
    "tasks": lambda: asyncio.wait([asyncio.ensure_future(for_ever())]),
}


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("steps", [0, 1])
def test_work_starts_and_cleans_up_however_early_it_is_cancelled(wait: str, steps: int) -> None:
    log: list[str] = []

    async def main() -> None:
        task = asyncio.create_task(noting(log, WAITS[wait]))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_plainly(main)
    assert log == ["started", "cleaned up"]


def test_work_that_is_not_cancelled_runs_as_usual() -> None:
    log: list[str] = []

    async def main() -> None:
        wait = WAITS["an iteration"]
        task = asyncio.create_task(noting(log, wait, wait))
        assert "noting.<locals>.work" in repr(task)
        assert await task == "done"
        assert await noting(log) == "done"

    run_plainly(main)
    assert log == ["started", "waited", "waited", "cleaned up", "started", "cleaned up"]


def test_work_that_does_not_wait_is_done_before_it_is_cancelled() -> None:
    async def main() -> None:
        task = asyncio.create_task(StartedCoroutine(quick()))
        task.cancel()
        assert await task == "quick"

    run_plainly(main)


def test_work_that_never_runs_is_closed_without_a_warning() -> None:
    async def never() -> None:
        raise AssertionError

    StartedCoroutine(never()).close()
