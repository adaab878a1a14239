"""``bridle run``: one prompt, shown while it is worked on."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec

from bridle._shell.locate import find_cli, version_of
from bridle.cli import exits
from bridle.cli.drive import Drive, Job
from bridle.cli.endings import failure
from bridle.cli.gatekeeper import Otherwise
from bridle.cli.path_patterns import Place
from bridle.cli.policy import Policy, parse_policy
from bridle.cli.screens import JsonScreen, PlainScreen, Screen
from bridle.cli.settling import settle
from bridle.cli.terminal import Terminal, is_attended
from bridle.errors import BridleError, CliExitedDuringInit, OptionsError, StartError
from bridle.options import CliOptions, Limits, PermissionMode, SdkOptions

_STDIN = "-"
_TUI = "For the live view: pip install rich"

_EPILOG = f"""\
The prompt is the arguments, joined; {_STDIN} among them stands for standard input, which is also
read when there is no prompt at all:  git diff | bridle run "Review this:" {_STDIN}

On a terminal you are asked for permission. Where nobody can be asked, it is denied, unless --yes
or a policy says otherwise. A policy is a TOML file; its first rule that fits decides. A rule that
denies or asks holds even for what the CLI would let pass unasked, and so does default = "deny":

  default = "ask"              # where none fits: ask and allow answer what the CLI asks about
  [[rule]]
  tool = "Bash"                # * and ? are wildcards; a list of names will do as well
  input.command = "git diff *" # every member named here must fit
  decision = "allow"           # allow, deny or ask
  reason = "..."               # told to the model when denied

A rule that allows is read narrowly: paths are resolved, a command must be one simple command with
literal words, and a * in it stands for operands in the working directory, not for options. Rules
that would allow more than they show, such as "git *", are refused.

Ctrl-C interrupts the turn; a second one ends the program.

A pipe gets the answer alone, just as the model wrote it; everything else is on stderr.

exit codes:
{exits.table()}
"""


def _path(text: str) -> str:
    """A path as the shell means it: from here, whatever --cwd says."""
    return os.path.abspath(os.path.expanduser(text))


class _Flag(msgspec.Struct, frozen=True):
    """An argument that becomes an option of a record."""

    field: str
    kind: Callable[[str], object] = str
    metavar: str = ""
    help: str = ""
    action: str = "store"


_MODES = get_args(PermissionMode)
_CLI_FLAGS: Mapping[str, _Flag] = {
    "--model": _Flag("model", metavar="NAME"),
    "--permission-mode": _Flag(
        "permission_mode",
        metavar="MODE",
        help=f"{', '.join(_MODES[:-1])} or {_MODES[-1]}.",
    ),
    "--allowed-tools": _Flag(
        "allowed_tools",
        metavar="RULE",
        action="append",
        help="What runs unasked, such as Read or Bash(git:*); may be repeated.",
    ),
    "--max-turns": _Flag("max_turns", int, "N"),
    "--max-budget-usd": _Flag("max_budget_usd", float, "USD"),
    "--mcp-config": _Flag("mcp_config", _path, "FILE", "MCP servers, from a JSON file."),
    "--cwd": _Flag("cwd", _path, "DIR"),
    "--resume": _Flag("resume_session_id", metavar="ID"),
    "--continue": _Flag("continue_session", action="store_true"),
    "--cli": _Flag("cli_path", metavar="PATH"),
}
_TEXT_FLAGS: Mapping[str, _Flag] = {
    "--system-prompt-file": _Flag(
        "system_prompt", _path, "FILE", "Replaces the CLI's system prompt."
    ),
    "--append-system-prompt-file": _Flag(
        "append_system_prompt", _path, "FILE", "Added at the end of the system prompt."
    ),
}
_LIMIT_FLAGS: Mapping[str, _Flag] = {
    "--timeout": _Flag(
        "total", float, "SECONDS", "Seconds for the whole run, background work included."
    ),
    "--idle": _Flag("idle", float, "SECONDS", "Seconds between two signs of life, in the turn."),
}
_CONFIG_FLAG = "--config"
_FLAGS = {**_CLI_FLAGS, **_TEXT_FLAGS, **_LIMIT_FLAGS}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = _EPILOG
    # With a default of its own it is not listed as required: it may come from standard input.
    parser.add_argument(
        "prompt", nargs="*", default=[], help="What to do; if not said, standard input says it."
    )
    permissions = parser.add_argument_group("permissions")
    asking = permissions.add_mutually_exclusive_group()
    asking.add_argument("-y", "--yes", action="store_true", help="Allow whatever would be asked.")
    asking.add_argument("--deny", action="store_true", help="Deny whatever would be asked.")
    permissions.add_argument("--policy", metavar="FILE", help="Decide by these rules first.")
    shown = parser.add_argument_group("output")
    shown.add_argument(
        "--json", action="store_true", help="Every message as a line of JSON, then the outcome."
    )
    shown.add_argument("-q", "--quiet", action="store_true", help="The answer alone.")
    session = parser.add_argument_group("the session")
    for name, flag in _FLAGS.items():
        _add(session.add_argument, name, flag)
    session.add_argument(_CONFIG_FLAG, metavar="FILE", type=_path, help="Options from a TOML file.")


def _add(add_argument: Callable[..., object], name: str, flag: _Flag) -> None:
    row = CliOptions.fields.get(flag.field)
    text = flag.help or (row.doc if row else "")
    details: dict[str, Any] = {"help": text.replace("%", "%%")}
    if flag.action != "store_true":
        details |= {"metavar": flag.metavar, "type": flag.kind}
    add_argument(name, dest=flag.field, default=None, action=flag.action, **details)


def main(options: argparse.Namespace) -> int:
    """Run the prompt; the exit code follows the outcome."""
    screen: Screen | None = None
    try:
        terminal = Terminal() if is_attended() else None
        screen = _screen(options, terminal)
        job = _job(options, is_attended=terminal is not None)
        with screen:
            return asyncio.run(_drive(job, screen, terminal))
    except BridleError as error:
        named = _with_advice(_in_words_of_flags(error))
        if screen is not None:
            screen.finish(failure(named, exits.exit_code_of(named)))
        raise named from None


async def _drive(job: Job, screen: Screen, terminal: Terminal | None) -> int:
    return await Drive(job, screen, terminal).run()


# ---------------------------------------------------------------- from arguments to a job


def _job(options: argparse.Namespace, *, is_attended: bool) -> Job:
    otherwise: Otherwise = "ask" if is_attended else "absent"
    if options.yes or options.deny:
        otherwise = "yes" if options.yes else "deny"
    cli, sdk = _cli_options(options), _sdk_options(options)
    settled = settle(cli, sdk).cli
    policy = Policy()
    if options.policy is not None:
        policy = parse_policy(
            _read("--policy", options.policy), f"--policy {options.policy}", _place(settled)
        )
    named = settled.cli_path
    prompt = _prompt(options.prompt)
    find_cli(None if named is None else os.fspath(named))
    open_recorder = getattr(options, "open_recorder", None)  # `bridle record`
    if open_recorder is not None:  # last of all: a file may be lost by it
        sdk = sdk.replace(recorder=open_recorder())
    return Job(prompt=prompt, cli=cli, sdk=sdk, policy=policy, otherwise=otherwise)


def _prompt(words: list[str]) -> str:
    if not words and sys.stdin.isatty():
        fix = 'Give one: bridle run "What does this project do?"'
        raise OptionsError("prompt", "there is none", fix=fix)
    parts = [_read_stdin() if word == _STDIN else word for word in words or [_STDIN]]
    # Words belong to one sentence; what came through the pipe stands apart.
    apart = "\n\n" if _STDIN in words else " "
    prompt = apart.join(parts).strip()
    if not prompt:
        raise OptionsError("prompt", "is empty", fix="Give one, or pipe one in.")
    return prompt


def _read_stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise OptionsError("prompt", f"standard input is not UTF-8: {error}") from None


def _cli_options(options: argparse.Namespace) -> CliOptions:
    said: dict[str, Any] = {
        flag.field: value
        for flag in _CLI_FLAGS.values()
        if (value := getattr(options, flag.field)) is not None
    }
    said |= {
        flag.field: _read(name, path)
        for name, flag in _TEXT_FLAGS.items()
        if (path := getattr(options, flag.field)) is not None
    }
    return CliOptions(include_partial_messages=True, **said)


def _sdk_options(options: argparse.Namespace) -> SdkOptions:
    limits = {
        flag.field: value
        for flag in _LIMIT_FLAGS.values()
        if (value := getattr(options, flag.field)) is not None
    }
    said: dict[str, Any] = {"limits": Limits(**limits)} if limits else {}
    if options.config is not None:
        said["config_file"] = options.config
    return SdkOptions(**said)


def _place(cli: CliOptions) -> Place:
    """Where the session starts, which is what paths in a policy count from."""
    home = (cli.env or {}).get("HOME") or os.path.expanduser("~")
    return Place(os.path.abspath(os.getcwd() if cli.cwd is None else cli.cwd), home)


def _read(name: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise OptionsError(name, f"{path} cannot be read: {why}", fix="Name a text file.") from None


_NAMED = {flag.field: name for name, flag in _FLAGS.items()} | {"config_file": _CONFIG_FLAG}


def _in_words_of_flags(error: BridleError) -> BridleError:
    """The same error, speaking of the argument that the option came from."""
    error.fix = error.fix.replace("CliOptions.cli_path", "--cli")
    if isinstance(error, OptionsError) and error.field in _NAMED:
        return OptionsError(_NAMED[error.field], error.problem, fix=error.fix)
    return error


def _with_advice(error: BridleError) -> BridleError:
    """The same error, which says what the doctor would if a session did not start."""
    if isinstance(error, StartError):
        from bridle.cli.diagnosis import advice_on

        version = None
        if isinstance(error, CliExitedDuringInit) and error.cli_path is not None:
            version = asyncio.run(version_of(error.cli_path))
        known = advice_on(error, version) or error.fix
        error.fix = f"{known}\n`bridle doctor` looks for the cause."
    return error


# ---------------------------------------------------------------- where it is shown


def _screen(options: argparse.Namespace, terminal: Terminal | None) -> Screen:
    if options.json:
        return JsonScreen(terminal, quiet=options.quiet)
    is_dumb = os.environ.get("TERM", "dumb") in ("dumb", "unknown", "")
    if options.quiet or is_dumb or not sys.stdout.isatty():
        return PlainScreen(terminal, quiet=options.quiet)
    try:
        from bridle.cli.live import LiveScreen
    except ImportError:
        print(_TUI, file=sys.stderr)
        return PlainScreen(terminal)
    return LiveScreen(terminal)
