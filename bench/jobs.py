"""The jobs of a measured process. They are the same for every driver.

A process reads one job from stdin, runs it with the driver of its side, and writes the figures to
stdout as JSON. CPU time is the user and system time of the process itself, without its children.
This module treats all sides equally, and imports only light modules that a driver needs anyway.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

Job = dict[str, Any]
Figures = dict[str, float]

_SETTLING = 0.15
"""Seconds to wait until the work after a start is done. Other cases measure the start."""

_CONNECTING = 16
"""The number of sessions that start at the same time."""


class Driver(Protocol):
    """One session with a CLI, as a program of that side would use it."""

    async def open(self, job: Job, cli: str) -> None:
        """Start the CLI and wait until it is ready. `job["wants"]` names the request to answer.

        `job["door"]` says what `read` iterates over: the `messages` of the session (the default),
        the `turn`, or a `query`, which starts its own CLI on `ask`.
        """
        ...

    async def ask(self, prompt: str = "go") -> None:
        """Send a prompt. A query also reads its first message, so that its CLI has started."""
        ...

    async def first(self) -> None:
        """Read one message of the answer. More can be read later."""
        ...

    async def read(self) -> int:
        """Read class and text of the messages up to the result. Return their number.

        The text is read as in the documentation of each side: from the blocks of
        `message.content`, and from `message.event`.
        """
        ...

    async def outcome(self) -> None:
        """Send a prompt and wait for the answer, with the shortest code."""
        ...

    async def operate(self) -> None:
        """Send a control request and wait for its response."""
        ...

    async def close(self) -> None:
        """Close the session gently."""
        ...

    async def drop(self) -> None:
        """End the session at once."""
        ...


Make = Callable[[], Driver]


def cpu_seconds() -> float:
    """Return the CPU time of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def memory() -> float:
    """Return the memory of this process in MiB."""
    return _status("VmRSS")


def peak_memory() -> float:
    """Return the peak memory of this process in MiB."""
    return _status("VmHWM")


def _status(name: str) -> float:
    # Not from getrusage: its peak includes the process that started this one.
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(name))


def pin(core: int | None) -> None:
    """Run on one core, with all child processes, if the system supports that."""
    if core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[core]})


class Stopwatch:
    """CPU and wall time since its creation, in seconds."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = cpu_seconds()

    def read(self, prefix: str = "") -> Figures:
        """Return both times."""
        return {
            f"{prefix}cpu": cpu_seconds() - self._cpu,
            f"{prefix}wall": time.perf_counter() - self._wall,
        }


# ---------------------------------------------------------------- jobs


async def stream(make: Make, job: Job) -> Figures:
    """Read the output of the CLI with one session."""
    driver = await _settled(make, job, job["cli"])
    await driver.ask()
    watch = Stopwatch()
    messages = await driver.read()
    figures = watch.read()
    await driver.close()
    lines = job["lines"]
    assert messages > lines, f"{messages} messages came, {lines} and a few were written"
    return {
        **figures,
        "cpu_us": figures["cpu"] / lines * 1e6,
        "rate": lines / figures["wall"],
        "share": figures["cpu"] / figures["wall"] * 100,
        "peak_mib": peak_memory(),
    }


async def answer(make: Make, job: Job) -> Figures:
    """Answer incoming requests with one session. The CLI measures the times."""
    driver = await _settled(make, job, job["asking_cli"])
    watch = Stopwatch()
    await driver.ask()
    await driver.read()
    figures = watch.read()
    await driver.close()
    return {**figures, "cpu_us": figures["cpu"] / job["count"] * 1e6}


async def operate(make: Make, job: Job) -> Figures:
    """Send control requests with one session, one after the other."""
    driver = await _settled(make, job, job["cli"])
    taken: list[float] = []
    watch = Stopwatch()
    for _ in range(job["count"]):
        start = time.perf_counter()
        await driver.operate()
        taken.append(time.perf_counter() - start)
    figures = watch.read()
    await driver.close()
    return {
        **figures,
        "cpu_us": figures["cpu"] / job["count"] * 1e6,
        **percentiles([seconds * 1e6 for seconds in taken]),
    }


async def gather(make: Make, job: Job) -> Figures:
    """Start many sessions, leave them idle, read with all of them, close them."""
    _allow_many_files()
    warm = await _settled(make, job, job["cli"])
    drivers = [make() for _ in range(job["sessions"])]
    before, files_before = _settled_memory(), _open_files()
    connecting = Stopwatch()
    failed = await _in_turns([driver.open(job, job["cli"]) for driver in drivers])
    figures = connecting.read("connect_")
    idle = (_settled_memory() - before) / len(drivers)
    files = (_open_files() - files_before) / len(drivers)
    watch = Stopwatch()
    counts = await asyncio.gather(*map(_prompted, drivers), return_exceptions=True)
    figures |= watch.read()
    messages = sum(count for count in counts if isinstance(count, int))
    failed += sum(not isinstance(count, int) for count in counts)
    closing = Stopwatch()
    failed += await _in_turns([driver.close() for driver in (warm, *drivers)])
    return {
        **figures,
        **closing.read("close_"),
        "messages": messages,
        "cpu_us": figures["cpu"] / messages * 1e6,
        "rate": messages / figures["wall"],
        "idle_mib": idle,
        "descriptors": files,
        "peak_mib": peak_memory(),
        "failed": failed,
    }


async def wait(make: Make, job: Job) -> Figures:
    """Send a prompt with each of many sessions, and wait for the outcomes."""
    _allow_many_files()
    drivers = [make() for _ in range(job["sessions"])]
    before = _settled_memory()
    failed = await _in_turns([driver.open(job, job["cli"]) for driver in drivers])
    watch = Stopwatch()
    done = await asyncio.gather(*(each.outcome() for each in drivers), return_exceptions=True)
    figures = watch.read()
    failed += sum(each is not None for each in done)
    grown = _settled_memory() - before
    failed += await _in_turns([driver.close() for driver in drivers])
    return {**figures, "growth_mib": grown, "peak_mib": peak_memory(), "failed": failed}


async def closing(make: Make, job: Job) -> Figures:
    """Close many sessions at the same time."""
    _allow_many_files()
    drivers = [make() for _ in range(job["sessions"])]
    failed = await _in_turns([driver.open(job, job["cli"]) for driver in drivers])
    await asyncio.sleep(_SETTLING)
    # The garbage collector runs in a random step. Its duration depends on the program.
    gc.collect()
    gc.disable()
    watch = Stopwatch()
    with LongestSteps() as longest:
        done = await asyncio.gather(*(each.close() for each in drivers), return_exceptions=True)
    failed += sum(each is not None for each in done)
    return {
        **watch.read(),
        "step_ms": longest.step / 1e6,
        "round_ms": longest.round / 1e6,
        "failed": failed,
    }


class LongestSteps:
    """The longest CPU time, in nanoseconds, of one callback and of one event loop iteration.

    Only the CPU time of the loop's thread counts, so other load does not matter.
    """

    def __init__(self) -> None:
        self.step = self.round = 0
        self._loop: Any = asyncio.get_running_loop()

    def __enter__(self) -> LongestSteps:
        run, run_once = self._kept = asyncio.Handle._run, self._loop._run_once
        clock = time.thread_time_ns

        def timed(handle: asyncio.Handle) -> None:
            before = clock()
            run(handle)
            self.step = max(self.step, clock() - before)

        def timed_round() -> None:
            before = clock()
            run_once()
            self.round = max(self.round, clock() - before)

        handle_class: Any = asyncio.Handle
        handle_class._run = timed
        self._loop._run_once = timed_round
        return self

    def __exit__(self, *_: object) -> None:
        handle_class: Any = asyncio.Handle
        handle_class._run = self._kept[0]
        del self._loop._run_once


async def crowd(make: Make, job: Job) -> Figures:
    """Answer hooks with one session while others stream at the rate of a model."""
    asked, *others = [make() for _ in range(job["sessions"] + 1)]
    await _in_turns([driver.open(job, job["cli"]) for driver in others])
    await asked.open({**job, "wants": "hook"}, job["asking_cli"])
    watch = Stopwatch()
    reading = [asyncio.ensure_future(_prompted(driver)) for driver in others]
    await asked.ask()
    await asked.read()
    figures = watch.read()
    await asyncio.gather(*reading)
    await _in_turns([driver.close() for driver in (asked, *others)])
    return {**figures, "share": figures["cpu"] / figures["wall"] * 100}


async def sleep(make: Make, job: Job) -> Figures:
    """Read one message, then nothing for a while."""
    driver = make()
    await driver.open(job, job["cli"])
    before = _settled_memory()
    await driver.ask()
    await driver.first()
    await asyncio.sleep(job["seconds"])
    grown = peak_memory() - before
    await driver.drop()
    return {"growth_mib": grown, "peak_mib": peak_memory()}


async def turns(make: Make, job: Job) -> Figures:
    """Run many short turns on one session, and measure the memory between them."""
    driver = await _settled(make, job, job["cli"])
    levels: list[float] = []
    watch = Stopwatch()
    for number in range(job["count"] + 1):
        if number % (job["count"] // 10) == 0:
            levels.append(_settled_memory())
        await driver.ask()
        await driver.read()
    figures = watch.read()
    await driver.close()
    warm = levels[1:]
    return {
        **figures,
        "cpu_us": figures["cpu"] / job["count"] * 1e6,
        "growth_mib": max(warm) - warm[0],
        "end_growth_mib": warm[-1] - warm[0],
    }


async def live(make: Make, job: Job) -> Figures:
    """Run a short session on the real CLI, and measure its steps."""
    driver = make()
    figures: Figures = {}
    steps: list[tuple[str, Callable[[], Coroutine[Any, Any, object]]]] = [
        ("start_", lambda: driver.open(job, job["cli"])),
        ("turn_", lambda: _prompted(driver)),
        ("close_", driver.close),
    ]
    for name, step in steps:
        watch = Stopwatch()
        await step()
        figures |= watch.read(name)
    return figures


JOBS: dict[str, Callable[[Make, Job], Coroutine[Any, Any, Figures]]] = {
    job.__name__: job
    for job in (stream, answer, operate, gather, wait, closing, crowd, sleep, turns, live)
}


# ---------------------------------------------------------------- parts of jobs


def percentiles(values: list[float]) -> Figures:
    """Return the percentiles 50, 90 and 99."""
    ordered = sorted(values)
    return {
        f"p{percent}": ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
        for percent in (50, 90, 99)
    }


async def _settled(make: Make, job: Job, cli: str) -> Driver:
    """Open a session, run its first turn, and wait until it is idle."""
    driver = make()
    await driver.open(job, cli)
    await driver.ask("warm up")
    await driver.read()
    await asyncio.sleep(_SETTLING)
    # A full collection takes as long as many requests. This one collects the garbage of the start.
    gc.collect()
    return driver


async def _prompted(driver: Driver) -> int:
    await driver.ask()
    return await driver.read()


async def _in_turns(works: list[Coroutine[Any, Any, None]]) -> int:
    """Run all coroutines, a few at a time. Return how many failed."""
    room = asyncio.Semaphore(_CONNECTING)

    async def one(work: Awaitable[None]) -> None:
        async with room:
            await work

    done = await asyncio.gather(*map(one, works), return_exceptions=True)
    problems = [each for each in done if each is not None]
    if problems:
        print(f"{len(problems)} failed: {problems[0]!r}", file=sys.stderr)
    return len(problems)


def _settled_memory() -> float:
    gc.collect()
    return memory()


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _allow_many_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main(make: Make) -> None:
    """Run the measured program."""
    job: Job = json.load(sys.stdin)
    pin(job.get("core"))
    loop_factory = None
    if job.get("loop") == "uvloop":
        import uvloop

        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        figures = runner.run(JOBS[job["kind"]](make, job))
    json.dump(figures, sys.stdout)
