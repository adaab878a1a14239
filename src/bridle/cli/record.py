"""``bridle record``: run a prompt like `bridle run`, and record the session in a file."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator

from bridle.cli import run
from bridle.cli._screens.printable import one_line
from bridle.cli._screens.shown import counted, joined
from bridle.cli.exits import ExitCode
from bridle.errors import OptionsError
from bridle.testing.recording import Recorder

_EPILOG = """\
  bridle record session.ndjson "What does this project do?"
  bridle replay session.ndjson --html session.html

Give the prompt as for `bridle run`: as the arguments after the file, or on standard input.

The file contains every line that Bridle and the CLI send to each other: prompts, answers, tool
calls, permission requests. Keys, tokens and passwords are masked: those that the session knows,
and values that have the name or the format of a secret. Other secrets may remain in the file, so
read it before you share it.

To record your own program, set an option:

  from bridle.testing.recording import Recorder
  bridle.SdkOptions(recorder=Recorder("session.ndjson"))

The exit codes are those of `bridle run`.
"""

_SIDES = {
    "in": "to the CLI",
    "out": "from the CLI",
    "err": "from its stderr",
    "meta": "about its process",
}
_WAYS = {"value": "known", "name": "by name", "look": "by look"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments: the file, and those of `bridle run`."""
    parser.add_argument("out", metavar="OUT", help="The file to write, such as session.ndjson.")
    run.arguments(parser)
    parser.add_argument("--overwrite", action="store_true", help="Replace OUT if it exists.")
    parser.epilog = _EPILOG


def main(options: argparse.Namespace) -> int:
    """Run the prompt and record it. Return the exit code of the outcome.

    Raises:
        OptionsError: the file exists, or cannot be written. Nothing is started.
        BridleError: the same errors as `bridle run`.
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
    """Reject arguments that would overwrite a file, or create one by mistake."""
    out: str = options.out
    if not options.prompt and re.search(r"\s", out) and not re.search(r"\.\w+$", out):
        problem = f"is {one_line(out)!r}, which looks like a prompt"
        raise OptionsError("OUT", problem, fix=_usage(out))
    if os.path.lexists(out) and not options.overwrite:
        fix = "Name another file, or pass --overwrite."
        raise OptionsError("OUT", f"names {out}, which already exists", fix=fix)


def _usage(prompt: str) -> str:
    asked = prompt if re.search(r"\s", prompt) else "What does this project do?"
    command = f'bridle record session.ndjson "{one_line(asked)}"'
    return f"Give the file first, then the prompt: {command}\nOr pipe the prompt in."


def _recorder(path: str) -> Recorder:
    try:
        return Recorder(path)
    except OSError as error:
        problem = f"names {path}, which cannot be written: {error.strerror}"
        raise OptionsError("OUT", problem) from None


def _tell(recorder: Recorder, options: argparse.Namespace, *, is_new: bool) -> None:
    """Print what was recorded. If nothing was recorded, delete the new file."""
    was_used = any(recorder.written.values()) or recorder.failure is not None
    if is_new and not was_used:
        os.unlink(options.out)
    elif was_used and (recorder.failure is not None or not options.quiet):
        print("\n".join(_told(recorder, options.out)), file=sys.stderr)


def _told(recorder: Recorder, path: str) -> Iterator[str]:
    """Yield the lines about what was recorded and masked."""
    written = {_SIDES[side]: number for side, number in recorder.written.items() if number}
    sides = ", ".join(f"{number} {side}" for side, number in written.items()) or "nothing"
    yield f"\nRecorded {counted(sum(written.values()), 'frame')} in {path}: {sides}."
    masked = {_WAYS[way]: number for way, number in recorder.masked.items() if number}
    ways = joined(f"{number} {way}" for way, number in masked.items())
    yield f"Masked {counted(sum(masked.values()), 'secret')}" + (f": {ways}." if ways else ".")
    if recorder.failure is not None:
        yield f"The recording is incomplete: {recorder.failure}."
    page = f"{os.path.splitext(path)[0]}.html"
    again = " --overwrite" if os.path.lexists(page) else ""
    yield f"To view it: bridle replay {path} --html {page}{again}"
