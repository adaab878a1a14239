"""Borrow and return the processes of a pool many times, and check that nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from pathlib import Path
from typing import Any

from tests.soak.endings import children, descriptors, threads
from tests.support.processes import until

from bridle import Agent
from bridle.agent import Pool
from bridle.testing import FakeCli, ScriptedModel, text

AT_ONCE = 6
"""Callers at the same time, more than the pool has processes."""


async def use(pool: Pool[Any], number: int) -> None:
    """Use the pool in one of its ways."""
    match number % 5:
        case 0 | 1:
            assert (await pool.run("hi", timeout=None)).ok
        case 2:
            async with pool.session(timeout=None) as session:
                assert (await (await session.send_user_message("hi"))).ok
        case 3:
            async with pool.session(key=f"user-{number % 20}", timeout=None) as session:
                assert (await (await session.send_user_message("hi"))).ok
        case _:
            # A caller that is cancelled, at any moment.
            using = asyncio.ensure_future(pool.run("hi", timeout=None))
            await asyncio.wait([using], timeout=0.01 * (number % 7))
            using.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await using


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


def cycle(home: Path, *, uses: int, flavour: str = "2.1.325", cli: str | None = None) -> None:
    """Use a pool of three processes ``uses`` times. Raise AssertionError if anything is left."""

    async def main(path: str, environment: dict[str, str]) -> None:
        agent = Agent(cli_path=path, env=environment, inherit_env=["PATH"], cwd=str(home), tools=[])
        # What is started once for the whole program, such as the watchdog, stays.
        async with agent.pool(size=1) as pool:
            await pool.run("hi")
        before = left()
        tasks = len(asyncio.all_tasks())
        async with agent.pool(size=3, max_idle=5.0, max_uses=4) as pool:
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
