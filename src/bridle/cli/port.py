"""``bridle port``: list the uses of the official SDK, each with the native name."""

from __future__ import annotations

import argparse
import sys
import tokenize
from pathlib import Path

from bridle.cli._port.report import report
from bridle.cli._port.uses import Use, uses
from bridle.cli._screens.printable import printable
from bridle.cli.exits import ExitCode
from bridle.errors import OptionsError

_EPILOG = """\
  bridle port agent.py            the uses in one program
  bridle port src                 those in all programs below a directory

The command changes nothing. To run a program on Bridle as it is, add one line before it imports
claude_agent_sdk: `import bridle.compat; bridle.compat.install()`
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "files", metavar="FILE", nargs="+", type=Path, help="A program, or a directory of programs."
    )


def main(options: argparse.Namespace) -> int:
    """Print the list. A file that cannot be read is named at its end."""
    found: list[tuple[str, list[Use]]] = []
    problems: list[str] = []
    for path in _programs(options.files):
        try:
            with tokenize.open(path) as file:  # as Python reads it: a declared encoding, or a BOM
                found.append((str(path), uses(file.read())))
        except (OSError, SyntaxError, ValueError) as problem:
            problems.append(f"cannot read {path}: {problem}")
        except (MemoryError, RecursionError):  # raised by the parser, too
            problems.append(f"cannot read {path}: it is nested too deeply")
    if problems and not found:
        fix = "Name Python programs or directories of them."
        raise OptionsError("FILE", "; ".join(problems), fix=fix)
    print(report(found), end="")
    for line in problems:
        print(f"bridle: {printable(line)}", file=sys.stderr)
    return ExitCode.USAGE if problems else ExitCode.OK


def _programs(paths: list[Path]) -> list[Path]:
    return [
        program
        for path in paths
        for program in (sorted(path.rglob("*.py")) if path.is_dir() else [path])
    ]
