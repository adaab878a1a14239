"""What a measured process does, whoever drives the CLI in it.

One process, one job: read from stdin, done with the driver of that side, its figures written to
stdout as JSON. CPU is what the process itself used, user and system; what its children use is
not counted. The rule of this file: no side is treated differently, and nothing is imported here
that a driver would not need anyway, or that weighs.
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
"""Seconds for what a start leaves behind to be done; it is measured where starts are."""

_CONNECTING = 16
"""Sessions that are being started at any one time."""


class Driver(Protocol):
    """One session with a CLI, as a program of that side would hold it."""

    async def open(self, job: Job, cli: str) -> None:
        """Start the CLI and wait until it is ready. `job["wants"]` names what is to be answered.

        `job["door"]` says what `read` iterates: the `messages` of the session (the default), the
        `turn`, or a `query`, which starts a CLI of its own when it is asked.
        """
        ...

    async def ask(self, prompt: str = "go") -> None:
        """Send a prompt; a query reads its first message too, so that its CLI has started."""
        ...

    async def first(self) -> None:
        """Read one message of the answer, and be ready to read more."""
        ...

    async def read(self) -> int:
        """Read the messages up to the result: their class and their text. Return how many came.

        The text is read as the documentation of each side has it: by `message.content`, block by
        block, and by `message.event`.
        """
        ...

    async def outcome(self) -> None:
        """Send a prompt and wait until it is answered, in the shortest way there is."""
        ...

    async def operate(self) -> None:
        """A control operation, up to its answer."""
        ...

    async def close(self) -> None:
        """End the session as a program does that is done."""
        ...

    async def drop(self) -> None:
        """End the session at once, whatever the CLI is doing."""
        ...


Make = Callable[[], Driver]


def cpu_seconds() -> float:
    """What this process has used so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def memory() -> float:
    """MiB this process holds now."""
    return _status("VmRSS")


def peak_memory() -> float:
    """MiB this process has held at most."""
    return _status("VmHWM")


def _status(name: str) -> float:
    # Not from getrusage: what that calls the peak began with the process that started this one.
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(name))


def pin(core: int | None) -> None:
    """Stay on one core, with all children, where the system can do that."""
    if core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[core]})


class Stopwatch:
    """CPU and wall seconds since it was made."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = cpu_seconds()

    def read(self, prefix: str = "") -> Figures:
        """Both, so far."""
        return {
            f"{prefix}cpu": cpu_seconds() - self._cpu,
            f"{prefix}wall": time.perf_counter() - self._wall,
        }


# ---------------------------------------------------------------- jobs


async def stream(make: Make, job: Job) -> Figures:
    """One session reads what the CLI writes."""
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
    """One session answers questions; how long that took is known to the CLI."""
    driver = await _settled(make, job, job["asking_cli"])
    watch = Stopwatch()
    await driver.ask()
    await driver.read()
    figures = watch.read()
    await driver.close()
    return {**figures, "cpu_us": figures["cpu"] / job["count"] * 1e6}


async def operate(make: Make, job: Job) -> Figures:
    """One session asks the CLI, one thing after the other."""
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
    """Many sessions: started, idle, then all reading at once, then closed."""
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
    """Many sessions, each of which sends a prompt and waits for its outcome."""
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
    """Many sessions are closed at once."""
    _allow_many_files()
    drivers = [make() for _ in range(job["sessions"])]
    failed = await _in_turns([driver.open(job, job["cli"]) for driver in drivers])
    await asyncio.sleep(_SETTLING)
    # Which step the garbage collector runs in is chance; how long it takes is up to the program.
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
    """The most CPU time, in nanoseconds, that one callback and one round of the loop took.

    Only time of the loop's own thread counts: what others do to the machine does not.
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
    """One session answers hooks while others stream at the pace of a model."""
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
    """A consumer reads one message, then nothing for a while."""
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
    """Many short turns on one session; memory is looked at between them."""
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
    """The steps of a short session on the real CLI."""
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
    """The usual three."""
    ordered = sorted(values)
    return {
        f"p{percent}": ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
        for percent in (50, 90, 99)
    }


async def _settled(make: Make, job: Job, cli: str) -> Driver:
    """A session that has had its first turn, and nothing left to do."""
    driver = make()
    await driver.open(job, cli)
    await driver.ask("warm up")
    await driver.read()
    await asyncio.sleep(_SETTLING)
    return driver


async def _prompted(driver: Driver) -> int:
    await driver.ask()
    return await driver.read()


async def _in_turns(works: list[Coroutine[Any, Any, None]]) -> int:
    """Do all, a few at any one time; how many failed."""
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
    """The measured program."""
    job: Job = json.load(sys.stdin)
    pin(job.get("core"))
    loop_factory = None
    if job.get("loop") == "uvloop":
        import uvloop

        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        figures = runner.run(JOBS[job["kind"]](make, job))
    json.dump(figures, sys.stdout)
