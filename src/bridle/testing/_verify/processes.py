"""Promises about processes: none of a session's processes outlives it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sys
from pathlib import Path

from bridle import OutcomeReason, SessionEnded
from bridle.testing._verify.promises import expect, promise, require
from bridle.testing._verify.stage import Model, Stage, processes_with, until
from bridle.testing.script import Block, tool_use

_PROGRAM = """
import asyncio, json, sys
import bridle

async def main():
    async with bridle.start_session(**json.load(sys.stdin), prompt="go"):
        await asyncio.Event().wait()

asyncio.run(main())
"""


def _sleeping(marker: str) -> Block:
    """Return a call of a command that does not end, and of one that left its process group."""
    command = f"setsid sleep {marker} & sleep {marker}"
    return tool_use("Bash", command=command, timeout=600_000, description="sleep")


def _marker() -> str:
    """Return seconds to sleep that no other process has."""
    return f"1000.{secrets.randbelow(10**12):012d}"


def _sleepers(marker: str) -> list[int]:
    """Return the processes of the command that sleep, without the shells around them."""
    return [pid for pid in processes_with(marker) if _is_sleep(pid)]


def _is_sleep(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8").strip() == "sleep"
    except OSError:
        return not Path("/proc/self").exists()  # a system without /proc


async def _ends(stage: Stage, how: str) -> str:
    marker = _marker()
    script = [[_sleeping(marker)]]
    async with (
        Model(script) as model,
        stage.session(model, allowed_tools=["Bash"]) as session,
    ):
        events = session.events()
        turn = await session.send_user_message("go")
        await until(lambda: len(_sleepers(marker)) >= 2, "the start of both commands", 35.0)
        before = len(processes_with(marker))
        await (session.stop() if how == "stop" else session.aclose())
        left = processes_with(marker)
        require(not left, f"{len(left)} of {before} processes were left")
        outcome = await turn
        last = [event async for event in events][-1]
    expected = OutcomeReason.STOPPED if how == "stop" else OutcomeReason.INTERRUPTED
    expect("the reason of the turn", outcome.reason, expected)
    if how == "stop":
        require(isinstance(last, SessionEnded), f"the last event was {last!r:.200}")
    return f"{before} processes, also one outside the process group, are gone"


@promise(
    "process.stop",
    "stop() ends the CLI and every process that its tools started.",
    depends="Session.stop, cancellation, limits of run",
)
async def stop(stage: Stage) -> str:
    return await _ends(stage, "stop")


@promise(
    "process.close",
    "Leaving a session in the middle of a turn ends the turn and every process.",
    depends="async with, Session.aclose",
)
async def close(stage: Stage) -> str:
    return await _ends(stage, "aclose")


@promise(
    "process.program_killed",
    "If the program is killed with SIGKILL, the CLI and its processes end as well.",
    depends="every program",
)
async def program_killed(stage: Stage) -> str:
    marker = _marker()
    async with Model([[_sleeping(marker)]]) as model:
        given = stage.options(model, allowed_tools=["Bash"])
        del given["on_warning"]
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _PROGRAM, stdin=asyncio.subprocess.PIPE, start_new_session=True
        )
        try:
            assert program.stdin is not None
            program.stdin.write(json.dumps(given).encode())
            program.stdin.close()
            await until(lambda: len(_sleepers(marker)) >= 2, "the start of both commands", 35.0)
            before = len(processes_with(marker))
        finally:
            os.kill(program.pid, signal.SIGKILL)
            await program.wait()
        work = str(stage.work)
        await until(lambda: not processes_with(marker), "the end of the commands", 15.0)
        await until(lambda: not _working_in(work), "the end of the CLI", 15.0)
    return f"the CLI and {before} processes of its tools are gone"


def _working_in(directory: str) -> list[str]:
    """Return the processes with this working directory, where the system shows it."""
    found: list[str] = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(place / "cwd") == directory:
                found.append(place.name)
        except OSError:
            continue
    return found
