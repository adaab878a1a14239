"""``bridle record``: what `bridle run` does, with everything that passes taken down."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator

from bridle.cli import run
from bridle.cli.exits import ExitCode
from bridle.cli.printable import one_line
from bridle.cli.shown import counted, joined
from bridle.errors import OptionsError
from bridle.testing.recording import Recorder

_EPILOG = """\
  bridle record session.ndjson "What does this project do?"
  bridle replay session.ndjson --html session.html

The prompt is given as to `bridle run`: the arguments after the file, or standard input.

All that passes between Bridle and the CLI goes into the file, each line as it comes: prompts,
answers, tools, permissions. Keys, tokens and passwords are masked: those the session knows of, and
what has the name or the look of one. That is no proof that none is left, so look before you share.

A program of yours is recorded by its options:

  from bridle.testing.recording import Recorder
  bridle.SdkOptions(recorder=Recorder("session.ndjson"))

Exit codes are those of `bridle run`.
"""

_SIDES = {"in": "to the CLI", "out": "from it", "err": "of its stderr", "meta": "about its process"}
_WAYS = {"value": "known", "name": "by name", "look": "by look"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments: the file, and those of `bridle run`."""
    parser.add_argument("out", metavar="OUT", help="The file to write, such as session.ndjson.")
    run.arguments(parser)
    parser.add_argument("--overwrite", action="store_true", help="Replace OUT if it exists.")
    parser.epilog = _EPILOG


def main(options: argparse.Namespace) -> int:
    """Run the prompt and record it; the exit code follows the outcome.

    Raises:
        OptionsError: the file exists, or cannot be written; nothing is started.
        BridleError: as `bridle run`.
    """
    _check(options)
    is_new = not os.path.lexists(options.out)
    made: list[Recorder] = []

    def open_recorder() -> Recorder:
        made.append(_recorder(options.out))
        return made[0]

    options.open_recorder = open_recorder
    try:
        code = run.main(options)
    except OptionsError as error:
        if error.field == "prompt" and not options.prompt:
            error.fix = _usage(options.out)
        raise
    finally:
        for recorder in made:
            recorder.close()
            _tell(recorder, options, is_new=is_new)
    is_broken = any(recorder.failure is not None for recorder in made)
    return ExitCode.FAILED if is_broken and code == ExitCode.OK else code


def _check(options: argparse.Namespace) -> None:
    """Refuse what would lose a file, or make one by mistake."""
    out: str = options.out
    if not options.prompt and re.search(r"\s", out) and not re.search(r"\.\w+$", out):
        raise OptionsError("OUT", f"{one_line(out)!r} looks like a prompt", fix=_usage(out))
    if os.path.lexists(out) and not options.overwrite:
        raise OptionsError("OUT", f"{out} exists", fix="Name another file, or give --overwrite.")


def _usage(prompt: str) -> str:
    asked = prompt if re.search(r"\s", prompt) else "What does this project do?"
    command = f'bridle record session.ndjson "{one_line(asked)}"'
    return f"First the file, then the prompt: {command}\nOr pipe the prompt in."


def _recorder(path: str) -> Recorder:
    try:
        return Recorder(path)
    except OSError as error:
        raise OptionsError("OUT", f"{path} cannot be written: {error.strerror}") from None


def _tell(recorder: Recorder, options: argparse.Namespace, *, is_new: bool) -> None:
    """Say what was recorded; leave no file if nothing was."""
    was_used = any(recorder.written.values()) or recorder.failure is not None
    if is_new and not was_used:
        os.unlink(options.out)
    elif was_used and (recorder.failure is not None or not options.quiet):
        print("\n".join(_told(recorder, options.out)), file=sys.stderr)


def _told(recorder: Recorder, path: str) -> Iterator[str]:
    """What was recorded, and what was not."""
    written = {_SIDES[side]: number for side, number in recorder.written.items() if number}
    sides = ", ".join(f"{number} {side}" for side, number in written.items()) or "nothing"
    yield f"\nRecorded {counted(sum(written.values()), 'frame')} in {path}: {sides}."
    masked = {_WAYS[way]: number for way, number in recorder.masked.items() if number}
    ways = joined(f"{number} {way}" for way, number in masked.items())
    yield f"Masked {counted(sum(masked.values()), 'secret')}" + (f": {ways}." if ways else ".")
    if recorder.failure is not None:
        yield f"The recording broke off: {recorder.failure}."
    page = f"{os.path.splitext(path)[0]}.html"
    again = " --overwrite" if os.path.lexists(page) else ""
    yield f"Look at it: bridle replay {path} --html {page}{again}"
