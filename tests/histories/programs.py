"""Programs of histories that are killed: they note what they do, and the driver kills them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.processes import wait_until

ROOT = Path(__file__).parents[2]

LIMIT = 600.0
"""Seconds after which a program that does not get on fails the test."""


def note(path: Path, **facts: object) -> None:
    """Write a line to a log, which is complete even if the program is killed right after it."""
    with open(path, "ab", buffering=0) as file:
        file.write(json.dumps(facts).encode() + b"\n")


def notes(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log. Empty if it does not exist.

    A line that a program is writing just now may be there in part, so it is left out.
    """
    return (
        [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []
    )


def run_and_kill(
    module: str,
    home: Path,
    plan: bytes,
    logs: Sequence[str],
    steps: int,
    chance: random.Random,
    *,
    cli_first: bool = False,
) -> bool:
    """Run a program, and kill it once it has made so many notes in the logs.

    The watchdog of the program kills its CLIs. If ``cli_first``, they are killed before it. The
    CLIs are those whose configuration directory is in ``home``. Returns whether the program was
    killed: it may have ended before.
    """
    path = home / "plan.json"
    path.write_bytes(plan)
    traces = [home / name for name in logs]
    before = sum(map(count, traces))
    private = home / "private"
    private.mkdir(exist_ok=True)
    program = subprocess.Popen(
        [sys.executable, "-m", module, str(path)],
        cwd=ROOT,
        env=os.environ
        | {
            "CLAUDE_CONFIG_DIR": str(home / "config"),
            "TMPDIR": str(private),
            "PYTHONFAULTHANDLER": "1",
        },
        stderr=subprocess.PIPE,
    )
    wait_until(
        lambda: sum(map(count, traces)) - before >= steps or program.poll() is not None, LIMIT
    )
    time.sleep(chance.choice((0, chance.uniform(0, 0.05))))
    is_running = program.poll() is None
    if cli_first:
        for pid in clis_in(home):
            if b"bridle-watchdog" not in _fact(pid, "cmdline"):
                kill(pid)
    kill(program.pid)
    _, errors = program.communicate()
    assert program.returncode in (0, -signal.SIGKILL), (program.returncode, errors.decode())
    wait_until(lambda: not clis_in(home), LIMIT)  # the watchdog ends them, and then itself
    assert [path.name for path in private.iterdir() if path.name.startswith("bridle-")] == []
    return is_running


def count(path: Path) -> int:
    """Return the number of lines in a log."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kill(pid: int) -> None:
    """Kill a process, if there is one."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def clis_in(home: Path) -> list[int]:
    """Return the CLIs whose configuration directory is here, and what they have started."""
    place = f"CLAUDE_CONFIG_DIR={home}/".encode()
    return [
        pid
        for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
        if place in _fact(pid, "environ") and b"tests.histories" not in _fact(pid, "cmdline")
    ]


def _fact(pid: int, name: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""
