"""Agents on the fake CLI for tests of pools, and uses of a pool that must leave nothing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.soak.endings import children, descriptors, threads
from tests.support.processes import until
from tests.support.steps import ReplaceSteps

from bridle import Agent, Session
from bridle._pool.pool_work import PoolWork
from bridle._process.parked import ParkedCli
from bridle._process.process import CliProcess
from bridle.agent import Pool
from bridle.testing import FakeCli, ScriptedModel, text


def pool_of(
    agent: Agent[Any], *, ready: int | None = None, max_age: float | None = None, **options: Any
) -> Pool[Any]:
    """Return a pool that keeps fewer processes ready, or replaces them at an earlier age."""
    pool = agent.pool(**options)
    given = {"ready": ready, "max_age": max_age}
    limits = {name: value for name, value in given.items() if value is not None}
    plan = pool._work._plan
    pool._work._plan = structs.replace(plan, limits=structs.replace(plan.limits, **limits))
    return pool


class Lab:
    """A fake CLI that keeps transcripts, and agents that use it."""

    def __init__(self, home: Path, flavour: str) -> None:
        self.home = home
        self.work = home / "work"
        self.other = home / "other"
        self.work.mkdir()
        self.other.mkdir()
        self.cli = FakeCli.auto(flavour=flavour, transcripts=True)

    def agent(self, **options: Any) -> Agent[Any]:
        """Return an agent."""
        environment = {"HOME": str(self.home)}
        plain: dict[str, Any] = {"inherit_env": ["PATH"], "env": environment, "cwd": str(self.work)}
        return Agent(cli_path=self.cli.path, **plain | options)

    def notes(self, name: str) -> list[Any]:
        """Return what all processes noted under this name, in order of their start."""
        entries = [entry for lines in self.cli.runs for entry in lines]
        noted = [entry.members for entry in entries if entry.direction == "meta"]
        return [members[name] for members in noted if name in members]


async def ask(session: Session, prompt: str = "hi") -> str:
    """Return the answer to a prompt."""
    outcome = await (await session.send_user_message(prompt))
    return outcome.raise_for_reason().text


def parked(pool: Pool[Any]) -> list[ParkedCli]:
    """Return the ready processes of a pool."""
    work: PoolWork = pool._work
    return [one for one in work.places._held.values() if isinstance(one, ParkedCli)]


def clis() -> set[int]:
    """Return the CLI processes that run, whichever thread has started them."""
    found = set()
    for file in Path("/proc/self/task").glob("*/children"):
        for pid in file.read_text().split():
            with contextlib.suppress(OSError):
                if b"--output-format=stream-json" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.add(int(pid))
    return found


class Processes:
    """Counts the processes of each conversation whenever a CLI was started.

    A conversation can get a second process only at such a moment.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        #: The largest number of processes that a conversation and the program ever had.
        self.of_one = self.in_all = 0
        #: The conversations that had a process.
        self.seen: set[str] = set()
        self.starts = 0
        start = CliProcess.spawn

        def counted(*arguments: Any, **more: Any) -> CliProcess:
            process = start(*arguments, **more)
            self._count()
            return process

        ReplaceSteps(monkeypatch)(spawn=counted)

    def _count(self) -> None:
        found: Counter[str] = Counter()
        for pid in clis():
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_text()
                # As a set: a process that replaces itself during the read shows a part twice.
                found.update({*re.findall(r"\0--(?:session-id|resume)=([^\0]+)", command)})
        self.starts += 1
        self.seen |= set(found)
        self.of_one = max(self.of_one, 0, *found.values())
        self.in_all = max(self.in_all, found.total())


async def chat(pool: Pool[Any], users: int, rounds: int) -> dict[str, set[str]]:
    """Let users chat at the same time, each with a key. Return the conversations of each."""
    ids: dict[str, set[str]] = {}

    async def talk(key: str) -> None:
        for number in range(rounds):
            async with pool.session(key=key, timeout=None) as session:
                await ask(session, f"{key} says {number}.")
                ids.setdefault(key, set()).add(session.id or "")

    await asyncio.gather(*(talk(f"user-{number}") for number in range(users)))
    return ids


AT_ONCE = 6
"""Callers at the same time, more than the pool has processes."""


async def use(pool: Pool[Any], number: int) -> None:
    """Use the pool in one of its ways."""
    match number % 6:
        case 0 | 1:
            assert (await pool.run("hi", timeout=None)).ok
        case 2:
            async with pool.session(timeout=None) as session:
                assert (await (await session.send_user_message("hi"))).ok
        case 3:
            await _use_key(pool, number)
        case other:
            # A caller that is cancelled, at any moment.
            work = pool.run("hi", timeout=None) if other == 4 else _use_key(pool, number)
            using = asyncio.ensure_future(work)
            await asyncio.wait([using], timeout=0.01 * (number % 7))
            using.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await using


async def _use_key(pool: Pool[Any], number: int) -> None:
    async with pool.session(key=f"user-{number // 6 % 20}", timeout=None) as session:
        assert (await (await session.send_user_message("hi"))).ok


async def _use_all(pool: Pool[Any], uses: int) -> None:
    numbers = iter(range(uses))

    async def work() -> None:
        for number in numbers:
            await use(pool, number)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


def left() -> tuple[list[int], list[str], list[str]]:
    """Return the child processes, descriptors and threads of this process."""
    gc.collect()
    return children(), descriptors(), threads()


def cycle(home: Path, *, uses: int, flavour: str = "2.1.326", cli: str | None = None) -> None:
    """Use a pool of three processes ``uses`` times. Raise AssertionError if anything is left."""

    async def main(path: str, environment: dict[str, str]) -> None:
        agent = Agent(cli_path=path, env=environment, inherit_env=["PATH"], cwd=str(home), tools=[])
        # What is started once for the whole program, such as the watchdog, stays.
        async with agent.pool(size=1) as pool:
            await pool.run("hi")
        before = left()
        tasks = len(asyncio.all_tasks())
        async with pool_of(agent, size=3, max_idle=5.0, max_age=0.5) as pool:
            await _use_all(pool, uses)
            await until(lambda: pool.metrics.in_use == pool.metrics.closing == 0)
            assert (pool.metrics.waiting, pool.metrics.timeouts) == (0, 0)
        assert len(asyncio.all_tasks()) == tasks
        await until(lambda: left() == before)

    async def on_model(path: str) -> None:
        script = [[text("Hello.")]] * (uses + 1)
        model = ScriptedModel(script)
        async with model:
            await main(path, dict(model.env))

    if cli is not None:
        asyncio.run(on_model(cli))
        return
    with FakeCli.auto(flavour=flavour, transcripts=True) as fake:
        asyncio.run(main(fake.path, {"HOME": str(home)}))
