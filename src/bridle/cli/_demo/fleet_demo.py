"""The fleet demo: three workers, a live table, a kill, a take-over. Offline, on a fake CLI.

``python -m bridle.cli._demo.fleet_demo`` runs it. Each worker is a `bridle work` process.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time

from bridle.cli.runs import table
from bridle.fleet import Fleet, RunStatus
from bridle.testing import FakeCli

_WORKERS = 3
_RUNS = 9
_TIMEOUT = 55.0


def main() -> int:
    """Run the demo. Return 1 if a run fails."""
    with (
        tempfile.TemporaryDirectory(prefix="bridle-fleet-") as directory,
        FakeCli.auto(transcripts=True) as cli,
    ):
        os.environ |= {
            "BRIDLE_DEMO_DIRECTORY": directory,
            "BRIDLE_DEMO_CLI": cli.path,
            "CLAUDE_CONFIG_DIR": os.path.join(directory, "config"),
            "XDG_STATE_HOME": os.path.join(directory, "state"),
        }
        fleet: Fleet = importlib.import_module("bridle.cli._demo.fleet_app").fleet
        log = open(os.path.join(directory, "log"), "ab")  # noqa: SIM115  # closed below
        command = [sys.executable, "-m", "bridle", "work", "bridle.cli._demo.fleet_app:fleet"]
        workers = [
            subprocess.Popen([*command, "--at-once", "2", "--drain", "1"], stderr=log)
            for _ in range(_WORKERS)
        ]
        try:
            return asyncio.run(_play(fleet, workers))
        finally:
            for one in workers:
                one.terminate()
            for one in workers:
                one.wait(20)
            log.close()


async def _play(fleet: Fleet, workers: list[subprocess.Popen[bytes]]) -> int:
    for number in range(_RUNS):
        await fleet.submit("SLOW 4", key=f"review-{number}")
    end = time.monotonic() + _TIMEOUT
    victim: str | None = None
    note = f"{_WORKERS} workers start, each a process of its own."
    killed_at = 0.0
    while time.monotonic() < end:
        infos = [run.listed async for run in fleet.runs() if run.listed is not None]
        start = "\x1b[H\x1b[J" if sys.stdout.isatty() else ""
        print(f"{start}{note}", *table(infos, time.time()), "", sep="\n", flush=True)
        running = [one for one in infos if one.status is RunStatus.RUNNING and one.worker]
        used = {one.worker for one in running}
        if victim is None and len(used) == _WORKERS:
            victim = running[0].worker or ""
            pid = int(victim.rsplit("-", 2)[1])
            os.kill(pid, signal.SIGKILL)
            killed_at = time.monotonic()
            note = f"kill -9 {pid}: the worker {victim} is dead."
        elif victim is not None and killed_at and victim not in used:
            seconds = time.monotonic() - killed_at
            note = f"The other workers have taken its runs over after {seconds:.1f} s."
            killed_at = 0.0
        if all(one.status.is_final for one in infos):
            again = [one.key for one in infos if one.starts > 1]
            good = sum(one.status is RunStatus.COMPLETED for one in infos)
            print(f"{good} of {_RUNS} runs completed. Taken over: {', '.join(map(str, again))}.")
            await fleet.aclose()
            return 0 if good == _RUNS and again else 1
        await asyncio.sleep(1.0)
    print(f"The runs did not end within {_TIMEOUT:g} s.", file=sys.stderr)
    await fleet.aclose()
    return 1


if __name__ == "__main__":
    sys.exit(main())
