"""The ``bridle`` command: the table of commands, and the code that they share.

Each command is a module with two functions. It is imported when the command is used::

    def arguments(parser: argparse.ArgumentParser) -> None    declares its arguments
    def main(options: argparse.Namespace) -> int              runs it; returns the exit code

If a command raises a :class:`~bridle.BridleError`, this module prints its message to stderr and
returns an exit code (see :mod:`bridle.cli.exits`).
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from types import MappingProxyType

from bridle.cli._screens.printable import printable
from bridle.cli.exits import BROKEN_PIPE, ExitCode, exit_code_of
from bridle.errors import BridleError

COMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "demo": ("bridle.cli.demo", "Show a tour on the real CLI, offline and without an API key."),
        "run": ("bridle.cli.run", "Run one prompt and show the work."),
        "doctor": ("bridle.cli.doctor", "Check whether sessions can run here. Explain problems."),
        "verify": ("bridle.cli.verify", "Try Bridle's promises on the CLI here, offline."),
        "record": ("bridle.cli.record", "Run one prompt and record the session in a file."),
        "replay": ("bridle.cli.replay", "Show a recorded session as text, JSON or a page."),
        "sessions": ("bridle.cli.sessions", "List, show, export and delete stored sessions."),
        "port": ("bridle.cli.port", "List the uses of claude_agent_sdk with Bridle's names."),
        "work": ("bridle.cli.work", "Work on the runs of a fleet."),
        "runs": ("bridle.cli.runs", "List and show the runs of a fleet, and decide about them."),
    }
)
"""Name → (module, one-line description)."""

_USAGE = "usage: bridle COMMAND [ARGUMENTS]"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (by default the program's own arguments) names."""
    words = list(sys.argv[1:] if argv is None else argv)
    name = words[0] if words else "--help"
    program = f"bridle {name}" if name in COMMANDS else "bridle"
    try:
        _settle_streams()
        code = _dispatch(name, words)
        sys.stdout.flush()
    except BridleError as error:
        _complain(f"{program}: {printable(str(error))}")
        return exit_code_of(error)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        _give_up_output()  # the reader of the pipe has closed it
        return BROKEN_PIPE
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _give_up_output()
        _complain(f"{program}: cannot write the output: {error.strerror}")
        return ExitCode.FAILED
    return code


_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""Errors of a write to a file that cannot grow."""


def _settle_streams() -> None:
    """Make all standard streams usable, even if the parent process closed them."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Opening takes the free descriptor number, so no other file of ours can get it.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # stays
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Replace characters that the encoding lacks, instead of raising an exception.
            stream.reconfigure(errors="replace")


def _give_up_output() -> None:
    """Discard all further output to stdout, including what is flushed at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(text: str) -> None:
    with suppress(OSError):  # stderr is closed too
        print(text, file=sys.stderr)


def _dispatch(name: str, words: Sequence[str]) -> int:
    if name in COMMANDS:
        return _run(name, words[1:])
    if name in ("-h", "--help", "help"):
        print(_help())
        return ExitCode.OK
    if name in ("-V", "--version"):
        print(_versions())
        return ExitCode.OK
    print(_unknown(name), file=sys.stderr)
    return ExitCode.USAGE


def _run(name: str, words: Sequence[str]) -> int:
    import argparse  # imported here, so that Ctrl-C during the import prints no traceback
    import logging

    # The commands report the events of a session themselves, so its log is not printed.
    logging.getLogger("bridle").addHandler(logging.NullHandler())
    module_name, summary = COMMANDS[name]
    command = import_module(module_name)
    parser = argparse.ArgumentParser(
        prog=f"bridle {name}",
        description=summary,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.arguments(parser)
    # Accept options before, between and after the words of the prompt.
    code: int = command.main(parser.parse_intermixed_args(words))
    return code


def _help() -> str:
    width = max(map(len, COMMANDS))
    listed = [f"  {name:{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            _USAGE,
            "",
            "Run the Claude Code CLI and control it while it works.",
            "",
            "commands:",
            *listed,
            "",
            "`bridle COMMAND --help` describes a command. `bridle --version` prints the versions.",
        ]
    )


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    lines = [f"bridle: unknown command {printable(name)!r}."]
    near = get_close_matches(name, COMMANDS, n=1)
    if near:
        lines.append(f"Did you mean `bridle {near[0]}`?")
    elif " " in name:
        lines.append('To run a prompt: bridle run "…"')
    return "\n".join([*lines, "", f"The commands are {', '.join(COMMANDS)}. See `bridle --help`."])


def _versions() -> str:
    """Return the versions of Bridle, of Python, and of the CLI that a session would start."""
    import asyncio
    import platform
    from importlib.metadata import version

    from bridle._spi import Version, find_cli, version_of

    lines = [f"bridle {version('bridle')} (Python {platform.python_version()})"]
    try:
        path = find_cli()
    except BridleError:
        return "\n".join(
            [*lines, "claude: not found (`bridle doctor` lists where Bridle searched)"]
        )
    answer = asyncio.run(version_of(path))
    found = str(answer) if isinstance(answer, Version) else "of unknown version"
    return "\n".join([*lines, f"claude {found} ({path})"])
