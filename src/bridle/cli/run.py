"""``bridle run``: run one prompt and show the work."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec

from bridle._spi import find_cli, version_of
from bridle.cli import exits
from bridle.cli._asking.gatekeeper import Otherwise
from bridle.cli._policy.path_patterns import Place
from bridle.cli._policy.policy import Policy, parse_policy
from bridle.cli._screens.endings import failure
from bridle.cli._screens.screens import JsonScreen, PlainScreen, Screen
from bridle.cli._screens.user_terminal import Terminal, is_attended
from bridle.cli.drive import Drive, Job
from bridle.cli.settling import settle
from bridle.errors import BridleError, CliExitedDuringInit, OptionsError, StartError
from bridle.options import CliOptions, Limits, PermissionMode, SdkOptions

_STDIN = "-"
_TUI = "For the live view: pip install rich"

_EPILOG = f"""\
The words of the prompt are joined with spaces. A {_STDIN} is replaced by standard input. Without a
prompt, standard input is the prompt:  git diff | bridle run "Review this:" {_STDIN}

On a terminal you are asked for permission. Without a terminal, permission requests are denied
unless --yes or a policy allows them. A policy is a TOML file. The first rule that matches decides.
A rule that denies or asks, and default = "deny", also apply to calls that the CLI would run
without asking:

  default = "ask"              # if no rule matches: allow, deny or ask
  [[rule]]
  tool = "Bash"                # a name or a list of names; * and ? are wildcards
  input.command = "git diff *" # all input keys of the rule must match
  decision = "allow"           # allow, deny or ask
  reason = "..."               # the model reads it if the call is denied

A rule that allows matches as little as possible. Paths are resolved. A command must be one simple
command with literal words. A * in a command matches operands in the working directory, but no
options. Rules that would allow more than their text suggests, such as "git *", are rejected.

Ctrl-C interrupts the turn. A second Ctrl-C ends the program.

In a pipe, stdout gets only the answer, unchanged. Everything else goes to stderr.

exit codes:
{exits.table()}
"""


def _path(text: str) -> str:
    """Make a path absolute. It is relative to the shell's directory, not to --cwd."""
    return os.path.abspath(os.path.expanduser(text))


class _Flag(msgspec.Struct, frozen=True):
    """A command-line argument that sets a field of CliOptions or SdkOptions."""

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
        help=f"When the CLI asks for permission: {', '.join(_MODES[:-1])} or {_MODES[-1]}.",
    ),
    "--allowed-tools": _Flag(
        "allowed_tools",
        metavar="RULE",
        action="append",
        help="Rule for tool calls that run without asking, such as Read or Bash(git:*). May be "
        "repeated.",
    ),
    "--max-turns": _Flag("max_turns", int, "N"),
    "--max-budget-usd": _Flag("max_budget_usd", float, "USD"),
    "--mcp-config": _Flag("mcp_config", _path, "FILE", "Use the MCP servers in this JSON file."),
    "--cwd": _Flag("cwd", _path, "DIR"),
    "--resume": _Flag("resume_session_id", metavar="ID"),
    "--continue": _Flag("continue_session", action="store_true"),
    "--cli": _Flag("cli_path", metavar="PATH"),
}
_TEXT_FLAGS: Mapping[str, _Flag] = {
    "--system-prompt-file": _Flag(
        "system_prompt", _path, "FILE", "Replace the CLI's system prompt with this text."
    ),
    "--append-system-prompt-file": _Flag(
        "append_system_prompt", _path, "FILE", "Add this text at the end of the system prompt."
    ),
}
_LIMIT_FLAGS: Mapping[str, _Flag] = {
    "--timeout": _Flag(
        "total", float, "SECONDS", "Stop the run after this time, including background tasks."
    ),
    "--idle": _Flag(
        "idle",
        float,
        "SECONDS",
        "Stop the turn if the CLI sends nothing for this time and no tool runs.",
    ),
}
_CONFIG_FLAG = "--config"
_FLAGS = {**_CLI_FLAGS, **_TEXT_FLAGS, **_LIMIT_FLAGS}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = _EPILOG
    # The default makes argparse accept a missing prompt: it may come from standard input.
    parser.add_argument(
        "prompt", nargs="*", default=[], help="The prompt. Without it, standard input is read."
    )
    permissions = parser.add_argument_group("permissions")
    asking = permissions.add_mutually_exclusive_group()
    asking.add_argument("-y", "--yes", action="store_true", help="Allow every permission request.")
    asking.add_argument("--deny", action="store_true", help="Deny every permission request.")
    permissions.add_argument("--policy", metavar="FILE", help="Decide by the rules in this file.")
    shown = parser.add_argument_group("output")
    shown.add_argument(
        "--json", action="store_true", help="Print every message and the outcome as lines of JSON."
    )
    shown.add_argument("-q", "--quiet", action="store_true", help="Print only the answer.")
    session = parser.add_argument_group("the session")
    for name, flag in _FLAGS.items():
        _add(session.add_argument, name, flag)
    session.add_argument(
        _CONFIG_FLAG, metavar="FILE", type=_path, help="Read options from this TOML file."
    )


def _add(add_argument: Callable[..., object], name: str, flag: _Flag) -> None:
    row = CliOptions.fields.get(flag.field)
    text = flag.help or (row.doc if row else "")
    details: dict[str, Any] = {"help": text.replace("%", "%%")}
    if flag.action != "store_true":
        details |= {"metavar": flag.metavar, "type": flag.kind}
    add_argument(name, dest=flag.field, default=None, action=flag.action, **details)


def main(options: argparse.Namespace) -> int:
    """Run the prompt. Return the exit code of the outcome."""
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
    if open_recorder is not None:  # after all other checks, because it may replace a file
        sdk = sdk.replace(recorder=open_recorder())
    return Job(prompt=prompt, cli=cli, sdk=sdk, policy=policy, otherwise=otherwise)


def _prompt(words: list[str]) -> str:
    if not words and sys.stdin.isatty():
        fix = 'Pass a prompt: bridle run "What does this project do?"'
        raise OptionsError("prompt", "is missing", fix=fix)
    parts = [_read_stdin() if word == _STDIN else word for word in words or [_STDIN]]
    # Words are joined to one line. Text from standard input becomes a separate paragraph.
    apart = "\n\n" if _STDIN in words else " "
    prompt = apart.join(parts).strip()
    if not prompt:
        raise OptionsError("prompt", "is empty", fix="Pass a prompt, or pipe one in.")
    return prompt


def _read_stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"cannot be read from standard input, which is not UTF-8: {error}"
        raise OptionsError("prompt", problem) from None


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
    """Return the directory of the session, which paths in a policy are relative to."""
    home = (cli.env or {}).get("HOME") or os.path.expanduser("~")
    return Place(os.path.abspath(os.getcwd() if cli.cwd is None else cli.cwd), home)


def _read(name: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        problem = f"names {path}, which cannot be read: {why}"
        raise OptionsError(name, problem, fix="Name a text file.") from None


_NAMED = {flag.field: name for name, flag in _FLAGS.items()} | {"config_file": _CONFIG_FLAG}


def _in_words_of_flags(error: BridleError) -> BridleError:
    """Return the same error, with the name of the flag instead of the option."""
    error.fix = error.fix.replace("CliOptions.cli_path", "--cli")
    if isinstance(error, OptionsError) and error.field in _NAMED:
        return OptionsError(_NAMED[error.field], error.problem, fix=error.fix)
    return error


def _with_advice(error: BridleError) -> BridleError:
    """Return the same error. If a session did not start, add the advice of the doctor."""
    if isinstance(error, StartError):
        from bridle.cli.diagnosis import advice_on

        version = None
        if isinstance(error, CliExitedDuringInit) and error.cli_path is not None:
            version = asyncio.run(version_of(error.cli_path))
        known = advice_on(error, version) or error.fix
        error.fix = f"{known}\nRun `bridle doctor` to find the cause."
    return error


# ---------------------------------------------------------------- choosing a screen


def _screen(options: argparse.Namespace, terminal: Terminal | None) -> Screen:
    if options.json:
        return JsonScreen(terminal, quiet=options.quiet)
    is_dumb = os.environ.get("TERM", "dumb") in ("dumb", "unknown", "")
    if options.quiet or is_dumb or not sys.stdout.isatty():
        return PlainScreen(terminal, quiet=options.quiet)
    try:
        from bridle.cli._screens.live import LiveScreen
    except ImportError:
        print(_TUI, file=sys.stderr)
        return PlainScreen(terminal)
    return LiveScreen(terminal)
