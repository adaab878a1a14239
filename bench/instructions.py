"""Counting instructions: the figure that no neighbour on the machine can change.

`perf stat` costs nothing, where the processor's counters are to be had. valgrind counts anywhere,
thirty times slower, so it is only used when asked for by name. Start-up is taken out by counting
two sizes of the same case: what is reported is the slope.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

_PERF = ("perf", "stat", "--no-inherit", "--field-separator", ",", "--event", "instructions:u")
_VALGRIND = (
    "valgrind",
    "--tool=cachegrind",
    "--cache-sim=no",
    "--cachegrind-out-file=/dev/null",
)


@cache
def perf_works() -> bool:
    """True if this machine lets us count at full speed."""
    if shutil.which("perf") is None:
        return False
    done = subprocess.run([*_PERF, "true"], capture_output=True, text=True)
    return done.returncode == 0 and bool(re.search(r"^\d+,", done.stderr, re.MULTILINE))


def counter() -> str | None:
    """What counts here, if anything does."""
    if perf_works():
        return "perf"
    return "valgrind" if shutil.which("valgrind") else None


def counted(command: Sequence[str], log: Path) -> list[str]:
    """The command, with its instructions counted into a file."""
    if counter() == "perf":
        return [*_PERF, "--output", str(log), *command]
    return [*_VALGRIND, f"--log-file={log}", *command]


def count_in(log: Path) -> int:
    """What was counted."""
    pattern = r"^(\d+),.*instructions" if counter() == "perf" else r"I\s+refs:\s+([\d,]+)"
    found = re.search(pattern, log.read_text(), re.MULTILINE)
    if found is None:
        raise ValueError("nothing was counted")
    return int(found[1].replace(",", ""))
