"""``bridle work``: a worker of a fleet."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys

from bridle.cli.exits import ExitCode
from bridle.cli.fleets import load_fleet

_EPILOG = """\
  bridle work app:fleet                 work on the runs of `fleet` in app.py, 4 at a time
  bridle work app:fleet --at-once 16    16 at a time

SIGTERM or Ctrl-C ends the worker: it takes no more runs and waits until those that run have ended.
After --drain seconds, or at the next signal, it hands the rest over to other workers.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("fleet", metavar="MODULE:NAME", help="The fleet: a variable of a module.")
    parser.add_argument(
        "--at-once",
        type=int,
        default=4,
        metavar="N",
        help="Maximum number of runs at the same time. Default: 4.",
    )
    parser.add_argument(
        "--drain",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="How long the worker waits for its runs to end after SIGTERM or Ctrl-C. Default: 30.",
    )


def main(options: argparse.Namespace) -> int:
    """Work until a signal comes."""
    fleet = load_fleet(options.fleet)
    log = logging.getLogger("bridle.fleet")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)

    async def work() -> None:
        stop = asyncio.Event()
        working = asyncio.ensure_future(fleet.work(options.at_once, stop=stop, drain=options.drain))

        def end() -> None:
            if stop.is_set():
                working.cancel()
            stop.set()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)
        try:
            await asyncio.wait([working])
            if not working.cancelled():
                working.result()
        finally:
            await fleet.aclose()

    asyncio.run(work())
    return ExitCode.OK
