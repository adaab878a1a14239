"""``bridle demo``: a tour on the real CLI with a scripted model.

It needs no API key and no network, and costs nothing. The tour is a program that runs live: each
scene shows a part of its source, then runs it and prints the output of the session.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bridle.cli._demo.tour import Tour
from bridle.cli._demo.tour_output import AT_ONCE, Pace, PageScreen, Stage
from bridle.cli._screens.printable import one_line
from bridle.cli._screens.screens import Screen
from bridle.cli._screens.shown import Span
from bridle.cli._screens.user_terminal import Terminal, is_attended
from bridle.cli.doctor import credentials
from bridle.cli.exits import ExitCode
from bridle.testing import ScriptFailure, forbid_real_api

_EPILOG = """\
The CLI runs with a temporary home directory, a placeholder API key and a scripted model on this
machine. It does not use your login, your settings or your files. If no CLI is found, the demo uses
a fake CLI.
"""

_TIMEOUT = 150.0
"""Timeout of the whole tour, in seconds: many times its usual duration."""

# The variables that a program needs to be found, to run and to write to a terminal.
_KEPT = {
    "COLORTERM", "COLUMNS", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LINES", "NO_COLOR", "PATH",
    "TERM", "TMPDIR", "BRIDLE_CLI",
}  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "--fast",
        action="store_true",
        help="Do not pause for reading. This is the default if stdout is not a terminal.",
    )


def main(options: argparse.Namespace) -> int:
    """Run the tour. Return 1 if a scene fails."""
    found = list(credentials(os.environ))
    pace = AT_ONCE if options.fast or not sys.stdout.isatty() else Pace()
    with (
        alone(),
        tempfile.TemporaryDirectory(prefix="bridle-", ignore_cleanup_errors=True) as work,
        _screen() as screen,
    ):
        stage = Stage(screen, pace)
        return asyncio.run(play(Tour(stage, Path(work), found), stage))


async def play(tour: Tour, stage: Stage, timeout: float = _TIMEOUT) -> int:
    """Run the tour. On a signal, shut down everything that was started, then return."""
    loop = asyncio.get_running_loop()
    playing = asyncio.ensure_future(_bounded(tour, timeout))
    said: list[int] = []

    def leave(number: int) -> None:
        said.append(number)
        playing.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, leave, number)
    try:
        return ExitCode.OK if await playing else ExitCode.FAILED
    except asyncio.CancelledError:
        if not said:
            raise
        stage.show(Span("Stopped.", "dim"))
        return 128 + said[0]
    except (ScriptFailure, TimeoutError) as problem:
        stage.tell(f"The tour failed and ends here. {one_line(str(problem), 500)}", "bad")
        return ExitCode.FAILED


async def _bounded(tour: Tour, timeout: float) -> bool:
    try:
        async with asyncio.timeout(timeout):
            return await tour.play()
    except TimeoutError:
        raise TimeoutError(f"It took more than {timeout:g} seconds.") from None


@contextmanager
def alone() -> Generator[None]:
    """Remove the other environment variables for a while, so that they do not affect the tour."""
    before = dict(os.environ)
    for name in before.keys() - _KEPT:
        del os.environ[name]
    try:
        with forbid_real_api():
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _screen() -> Screen:
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        return PageScreen()
    try:
        from bridle.cli._screens.live import LiveScreen
    except ImportError:
        return PageScreen()
    return LiveScreen(Terminal() if is_attended() else None)
