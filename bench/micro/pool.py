"""How long the first assistant line takes: in a new process, and in a ready one of a pool.

Both use the newest real CLI with a scripted model on loopback: `agent.session()`, and
`pool.session()` of `agent.pool(size=2)`. They take turns, so that other load affects both. Exits
with 1 if the median ratio is more than 45 %.
Run: python bench/micro/pool.py [ROUNDS]
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from bridle import Agent, AssistantMessage, Session
from bridle._process.locate import candidates
from bridle.agent import Pool
from bridle.testing import ScriptedModel, text

ROUNDS = 9
TARGET = 0.45
SETTLE = 2.0
"""Seconds after which a process has finished its start."""


def newest() -> str:
    """Return the CLI of the installed wheel."""
    places = (place.path for place in candidates() if place.origin == "claude-agent-sdk")
    return next(path for path in places if Path(path).exists())


def _resident_bytes(pid: int) -> int:
    """Return the physical memory of a process in bytes."""
    with open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def first_line(session: Session) -> None:
    """Send a prompt and wait for the first assistant line."""
    turn = await session.send_user_message("hi")
    async for message in turn:
        if isinstance(message, AssistantMessage):
            break


async def cold(agent: Agent[Any]) -> float:
    """Return the seconds from the call to the first line, in a new process."""
    began = perf_counter()
    async with agent.session() as session:
        await first_line(session)
        return perf_counter() - began


async def ready(pool: Pool[Any], memory: list[float]) -> float:
    """Return the same for a process that was ready. Note its memory."""
    before = pool.metrics.from_ready
    began = perf_counter()
    async with pool.session() as session:
        await first_line(session)
        seconds = perf_counter() - began
        memory.append(_resident_bytes(session.pid or 0) / (1 << 20))
    assert pool.metrics.from_ready == before + 1
    return seconds


async def measure(agent: Agent[Any], rounds: int, memory: list[float]) -> list[tuple[float, float]]:
    """Return the seconds in a new process and in a ready one, for each round."""
    pairs: list[tuple[float, float]] = []
    async with agent.pool(size=2) as pool:
        for number in range(rounds + 1):
            # The processes of the pool that replace the last one have finished their start.
            await asyncio.sleep(SETTLE)
            assert pool.metrics.ready == 2
            if number % 2:
                one = await cold(agent)
                other = await ready(pool, memory)
            else:
                other = await ready(pool, memory)
                await asyncio.sleep(SETTLE)
                one = await cold(agent)
            pairs.append((one, other))
    return pairs[1:]  # the first round fills the caches


async def main(rounds: int) -> int:
    """Print the figures. Return the exit code."""
    memory: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        async with ScriptedModel([[text("Hello.")]] * (2 * rounds + 2)) as model:
            agent: Agent[Any] = Agent(
                cli_path=newest(), env=model.env, inherit_env=["PATH"], cwd=directory
            )
            pairs = await measure(agent, rounds, memory)
    colds, readies = zip(*pairs, strict=True)
    ratio = median(other / one for one, other in pairs)
    print(f"new process    {median(colds) * 1e3:7.0f} ms (best {min(colds) * 1e3:.0f})")
    print(f"ready process  {median(readies) * 1e3:7.0f} ms (best {min(readies) * 1e3:.0f})")
    print(f"ratio          {ratio:7.0%}, target at most {TARGET:.0%}")
    print(f"memory after the first line {median(memory):.0f} MiB")
    return int(ratio > TARGET)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)))
