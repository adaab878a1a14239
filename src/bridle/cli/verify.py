"""``bridle verify``: try Bridle's promises on the CLI that is installed here.

It needs no API key and no network: a scripted model on this machine replaces the API. The CLI gets
a temporary home directory. The result is stored, and ``bridle doctor`` shows it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

import msgspec

from bridle.cli._screens.printable import printable, printable_json
from bridle.cli.exits import ExitCode
from bridle.testing._verify._running.promise_table import page
from bridle.testing._verify._running.runner import Progress, run_and_store
from bridle.testing.verifications import Promise, Verification

UNSUPPORTED = 3
"""The exit code if no promise is broken, but the CLI is too old for some."""

_EPILOG = f"""\
exit codes:
    0  every promise holds
    1  a promise is broken
    2  invalid argument
    {UNSUPPORTED}  no promise is broken, but the CLI is older than a feature that some need
    6  there is no CLI, or it cannot be executed
  130  interrupted
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("--cli", metavar="PATH", help="The CLI to try (default: as for sessions).")
    parser.add_argument("--json", action="store_true", help="Print the result as one JSON object.")


def main(options: argparse.Namespace) -> int:
    """Try all promises and print the result. Return 0 only if all of them hold."""
    with _signals():
        verification = run_and_store(options.cli, progress=_progress())
    if options.json:
        whole = {**msgspec.to_builtins(verification), "holds": verification.holds}
        print(printable_json(msgspec.json.format(msgspec.json.encode(whole)).decode()))
    else:
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        print(page(_printable(verification), colour=colour))
    return exit_code(verification)


def exit_code(verification: Verification) -> int:
    """Return the exit code for a result."""
    if verification.holds:
        return ExitCode.OK
    is_broken = any(promise.state == "broken" for promise in verification.promises)
    return ExitCode.FAILED if is_broken or not verification.promises else UNSUPPORTED


def _printable(verification: Verification) -> Verification:
    """Return the result with every character replaced that a terminal would execute."""
    shown = [
        msgspec.structs.replace(promise, observed=printable(promise.observed))
        for promise in verification.promises
    ]
    return msgspec.structs.replace(
        verification, cli_path=printable(verification.cli_path), promises=tuple(shown)
    )


def _progress() -> Progress | None:
    """Return a function that shows the progress on one line of a terminal."""
    if not sys.stderr.isatty():
        return None

    def show(promise: Promise, tried: int, count: int) -> None:
        end = "" if tried < count else "\r\x1b[K"
        print(f"\r\x1b[K{tried}/{count} {promise.id}", end=end, file=sys.stderr, flush=True)

    return show


@contextmanager
def _signals() -> Generator[None]:
    """End what was started also on SIGTERM and SIGHUP, as on SIGINT."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
