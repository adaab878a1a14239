"""Run a command several times while other processes keep the machine busy.

Usage::

    python tools/steady.py [--times 3] [--load 8] -- COMMAND...

Stops at the first run that fails, with its exit code. `make steady` runs the tests in this way, so
that a test that depends on the speed of the machine fails.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator

BUSY = """
import os
while os.getppid() == {parent}:
    sum(range(100_000))
"""


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run processes that only use CPU. They end with this block, and with this process."""
    source = BUSY.format(parent=os.getpid())
    command = [sys.executable, "-I", "-S", "-c", source]
    running = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code of the first run that failed, or 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=3, help="number of runs")
    parser.add_argument("--load", type=int, default=8, help="number of busy processes")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the command, after --")
    options = parser.parse_args(arguments)
    command = options.command
    if command[:1] == ["--"]:  # a later one is a word of the command
        command = command[1:]
    if not command:
        parser.error("name a command after --")
    with busy_processes(options.load):
        for number in range(1, options.times + 1):
            began = time.monotonic()
            code = subprocess.call(command)
            took = time.monotonic() - began
            ended = "passed" if code == 0 else f"failed with exit code {code}"
            print(f"run {number} of {options.times} {ended} after {took:.0f} s", flush=True)
            if code:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
