"""The ``bridle`` command: a table of commands, and what is common to all of them.

A command is a module that is imported when it is used, with two functions::

    def arguments(parser: argparse.ArgumentParser) -> None    declares its arguments
    def main(options: argparse.Namespace) -> int              does it; returns the exit code

What a command raises on purpose is an error of Bridle's; here it becomes a message on stderr and
an exit code (see :mod:`bridle.cli.exits`).
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

from bridle.cli.exits import BROKEN_PIPE, ExitCode, exit_code_of
from bridle.cli.printable import printable
from bridle.errors import BridleError

COMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "demo": ("bridle.cli.demo", "A tour on the real CLI: offline, without a key."),
        "run": ("bridle.cli.run", "Run a prompt and watch the work."),
        "doctor": ("bridle.cli.doctor", "Find out whether sessions can run here, and if not, why."),
        "record": ("bridle.cli.record", "Record what a CLI and its client say to each other."),
        "replay": ("bridle.cli.replay", "Play a recording again."),
    }
)
"""Name → (module, one line about it)."""

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
        _give_up_output()  # whoever read it has left
        return BROKEN_PIPE
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _give_up_output()
        _complain(f"{program}: the output cannot be written: {error.strerror}")
        return ExitCode.FAILED
    return code


_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""What a file says that takes no more."""


def _settle_streams() -> None:
    """Make every standard stream one that can be used, even if whoever started us closed it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It gets the number that is free, which no file of ours may have.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # stays
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A mark the terminal cannot show must not be the end of the program.
            stream.reconfigure(errors="replace")


def _give_up_output() -> None:
    """Write nothing to stdout any more, not even what is flushed at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(text: str) -> None:
    with suppress(OSError):  # then there is nobody to tell
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
    import argparse  # here, as commands are: Ctrl-C while they are loaded ends it in silence
    import logging

    # What a session logs, the commands tell in their own way.
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
    # Options may stand anywhere among the words of a prompt.
    code: int = command.main(parser.parse_intermixed_args(words))
    return code


def _help() -> str:
    width = max(map(len, COMMANDS))
    listed = [f"  {name:{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            _USAGE,
            "",
            "Full-duplex control of the Claude Code CLI.",
            "",
            "commands:",
            *listed,
            "",
            "`bridle COMMAND --help` says more; `bridle --version` tells the versions.",
        ]
    )


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    lines = [f"bridle: there is no command {printable(name)!r}."]
    near = get_close_matches(name, COMMANDS, n=1)
    if near:
        lines.append(f"Did you mean `bridle {near[0]}`?")
    elif " " in name:
        lines.append('To run a prompt: bridle run "…"')
    return "\n".join([*lines, "", f"Commands are {', '.join(COMMANDS)}; see `bridle --help`."])


def _versions() -> str:
    """Bridle's version, Python's, and that of the CLI a session would start."""
    import asyncio
    import platform
    from importlib.metadata import version

    from bridle._shell.locate import Version, find_cli, version_of

    lines = [f"bridle {version('bridle')} (Python {platform.python_version()})"]
    try:
        path = find_cli()
    except BridleError:
        return "\n".join(
            [*lines, "claude: not found; `bridle doctor` tells where it was looked for"]
        )
    answer = asyncio.run(version_of(path))
    found = str(answer) if isinstance(answer, Version) else "of unknown version"
    return "\n".join([*lines, f"claude {found} ({path})"])
