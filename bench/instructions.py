"""Count instructions. Other load on the machine does not change this figure.

`perf stat` has no overhead, but needs access to the processor's counters. valgrind works
everywhere, but is thirty times slower, so it runs only if selected by name. Each case is counted
with two sizes. The reported slope between them does not include the start of the program.
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
    """Return whether perf can count instructions on this machine."""
    if shutil.which("perf") is None:
        return False
    done = subprocess.run([*_PERF, "true"], capture_output=True, text=True)
    return done.returncode == 0 and bool(re.search(r"^\d+,", done.stderr, re.MULTILINE))


def counter() -> str | None:
    """Return the tool that can count here, or None."""
    if perf_works():
        return "perf"
    return "valgrind" if shutil.which("valgrind") else None


def counted(command: Sequence[str], log: Path) -> list[str]:
    """Return the command with a prefix that counts its instructions into a file."""
    if counter() == "perf":
        return [*_PERF, "--output", str(log), *command]
    return [*_VALGRIND, f"--log-file={log}", *command]


def count_in(log: Path) -> int:
    """Return the count in a file."""
    pattern = r"^(\d+),.*instructions" if counter() == "perf" else r"I\s+refs:\s+([\d,]+)"
    found = re.search(pattern, log.read_text(), re.MULTILINE)
    if found is None:
        raise ValueError("nothing was counted")
    return int(found[1].replace(",", ""))
