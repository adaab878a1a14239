"""``bridle demo``: a tour on the real CLI, with a scripted model: no key, no network, no bill.

Nothing is played back. A program runs, parts of it are shown before they do what they do, and what
is shown of that comes out of the session at that moment.
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

from bridle._shell.locate import VARIABLE
from bridle.cli._demo.stage import AT_ONCE, Pace, PageScreen, Stage
from bridle.cli._demo.tour import Tour
from bridle.cli.doctor import credentials
from bridle.cli.exits import ExitCode
from bridle.cli.printable import one_line
from bridle.cli.screens import Screen
from bridle.cli.shown import Span
from bridle.cli.terminal import Terminal, is_attended
from bridle.testing import ScriptFailure, forbid_real_api

_EPILOG = """\
The CLI that is started sees neither your environment nor your files: it has a home of its own, a
key that is none, and a model on this machine. Without a CLI, a fake one takes its place.
"""

_PATIENCE = 150.0
"""Seconds for all of it: many times what it takes."""

# What a program needs to be found, to run and to write on a terminal.
_KEPT = {
    "COLORTERM", "COLUMNS", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LINES", "NO_COLOR", "PATH",
    "TERM", "TMPDIR", VARIABLE,
}  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "--fast",
        action="store_true",
        help="Without pauses for reading; the default where nobody watches.",
    )


def main(options: argparse.Namespace) -> int:
    """Play the tour; fails if a scene did not go as it should."""
    found = list(credentials(os.environ))
    pace = AT_ONCE if options.fast or not sys.stdout.isatty() else Pace()
    with (
        alone(),
        tempfile.TemporaryDirectory(prefix="bridle-", ignore_cleanup_errors=True) as work,
        _screen() as screen,
    ):
        stage = Stage(screen, pace)
        return asyncio.run(play(Tour(stage, Path(work), found), stage))


async def play(tour: Tour, stage: Stage, patience: float = _PATIENCE) -> int:
    """Play, until a signal says to leave; whatever was started is then ended first."""
    loop = asyncio.get_running_loop()
    playing = asyncio.ensure_future(_bounded(tour, patience))
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
        stage.tell(f"The tour ends here. {one_line(str(problem), 500)}", "bad")
        return ExitCode.FAILED


async def _bounded(tour: Tour, patience: float) -> bool:
    try:
        async with asyncio.timeout(patience):
            return await tour.play()
    except TimeoutError:
        raise TimeoutError(f"It took more than {patience:g} seconds.") from None


@contextmanager
def alone() -> Generator[None]:
    """Forget the environment for a while, so that no variable of it changes or joins the tour."""
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
        from bridle.cli.live import LiveScreen
    except ImportError:
        return PageScreen()
    return LiveScreen(Terminal() if is_attended() else None)
