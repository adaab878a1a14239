"""A process that tries promises, one at a time: ids on standard input, results on its output.

It is a process of its own so that a promise that blocks, crashes or changes the environment cannot
harm the others. The program that started it ends it.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
import time
from pathlib import Path

import msgspec

from bridle.testing._verify.promises import Broken, all_checks
from bridle.testing._verify.stage import Stage

_LONGEST = 400
"""Characters of an observation that are kept."""


class Order(msgspec.Struct, frozen=True):
    """A promise to try, and the seconds it may take."""

    id: str
    timeout: float


class Finding(msgspec.Struct, frozen=True):
    """Whether a promise held, and what was observed."""

    id: str
    held: bool
    observed: str
    seconds: float


async def try_one(order: Order, cli_path: str, directory: Path) -> Finding:
    """Try a promise. Every exception means that it does not hold."""
    begun = time.monotonic()
    held = False
    limit = None
    try:
        async with asyncio.timeout(order.timeout) as limit:
            observed = await all_checks()[order.id].trial(Stage(cli_path, directory))
        held = True
    except Broken as problem:
        observed = str(problem)
    except Exception as problem:
        observed = f"{type(problem).__name__}: {problem}"
        if isinstance(problem, TimeoutError) and limit is not None and limit.expired():
            observed = f"it did not end within {order.timeout:g} s"
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    shown = " ".join(observed.split())[:_LONGEST]
    return Finding(order.id, held, shown, round(time.monotonic() - begun, 3))


def main() -> None:
    """Try what is ordered until standard input ends."""
    logging.getLogger("bridle").addHandler(logging.NullHandler())
    cli_path, root = sys.argv[1:]
    all_checks()
    for number, line in enumerate(sys.stdin.buffer):
        order = msgspec.json.decode(line, type=Order)
        directory = Path(root) / f"{number}-{order.id}"
        finding = asyncio.run(try_one(order, cli_path, directory))
        sys.stdout.buffer.write(msgspec.json.encode(finding) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
