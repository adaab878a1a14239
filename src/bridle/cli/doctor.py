"""``bridle doctor``: check whether sessions can run here, and explain failures.

It starts the CLI twice, for its version and for a handshake. It does so without settings files,
hooks and MCP servers, because the CLI would run the commands that they name. It sends no prompt,
and the CLI cannot reach the network. ``--live`` also sends one prompt, with the settings of the
user. The doctor never reads or prints the value of a credential.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version as version_of_package
from typing import Any, cast

import msgspec

from bridle import ResolvedOptions, Session, run
from bridle._spi import Version, candidates, config_directory, find_cli, version_of
from bridle.cli._screens.printable import printable
from bridle.cli.diagnosis import (
    Answer,
    Directory,
    Facts,
    Finding,
    Handshake,
    NoVersion,
    Place,
    Problem,
    diagnose,
    exit_code,
    misconfigured,
    verdict,
)
from bridle.cli.exits import ExitCode
from bridle.cli.settling import settle
from bridle.errors import BridleError, OptionsError
from bridle.errors._redaction import Redactor, secret_variables
from bridle.messages import AssistantMessage
from bridle.options import CliOptions, Limits, SdkOptions

_NOWHERE = "http://127.0.0.1:9"
_SILENT = {
    "ANTHROPIC_BASE_URL": _NOWHERE,
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
    **dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), _NOWHERE),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), ""),
}
"""Variables that keep the CLI from sending network requests."""

_CREDENTIALS = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
)
_HELPERS = ("apiKeyHelper", "awsAuthRefresh", "awsCredentialExport", "gcpAuthRefresh")
_LIVE_SECONDS = 60.0
_MARKS = {"ok": "✓", "note": "·", "warning": "!", "problem": "✗"}
_COLOURS = {"ok": "32", "note": "2", "warning": "33", "problem": "31"}
_WIDTH = 13

_EPILOG = "exit codes:\n    0  healthy\n" + "\n".join(
    f"  {problem:>3}  {problem.meaning}" for problem in Problem
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("--json", action="store_true", help="Print the report as one JSON object.")
    parser.add_argument("--cli", metavar="PATH", help="The CLI to check.")
    parser.add_argument("--cwd", metavar="DIR", help="The working directory of the session.")
    parser.add_argument(
        "--permission-mode", metavar="MODE", help="The permission mode of the session."
    )
    parser.add_argument("--config", metavar="FILE", help="Read options from this TOML file.")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=20.0,
        help="Timeout of the handshake, in seconds (default: 20).",
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="Also send one short prompt to the model. This costs a little money.",
    )


def main(options: argparse.Namespace) -> int:
    """Run the checks and print the report. Return the code of the problem to fix first, or 0."""
    named = {
        "cli_path": options.cli,
        "cwd": options.cwd,
        "permission_mode": options.permission_mode,
    }
    places = [Place(one.path, one.origin, one.is_usable) for one in candidates()]
    try:
        cli = CliOptions(**{name: value for name, value in named.items() if value is not None})
        sdk = SdkOptions() if options.config is None else SdkOptions(config_file=options.config)
        settled = settle(cli, sdk)
    except OptionsError as error:
        findings = misconfigured(error)
    else:
        facts = asyncio.run(
            _facts(settled, cli, sdk, places, options.timeout, is_live=options.live)
        )
        findings = diagnose(facts)
    print(_json(findings, places) if options.json else _page(findings))
    return exit_code(findings)


# ---------------------------------------------------------------- collecting facts


async def _facts(
    settled: ResolvedOptions,
    cli: CliOptions,
    sdk: SdkOptions,
    places: Sequence[Place],
    timeout: float,
    *,
    is_live: bool,
) -> Facts:
    from bridle.testing.verifications import stored_verification  # loads the test kit

    environ = {**os.environ, **(settled.cli.env or {})}
    named_by = None
    if settled.cli.cli_path is not None:
        named_by = {"argument": "--cli", "config": "the configuration file"}.get(
            settled.origin["cli.cli_path"], "BRIDLE_CLI"
        )
    elif os.environ.get("BRIDLE_CLI"):
        named_by = "BRIDLE_CLI"
    path = _find(settled.cli)
    version = None
    handshake: Handshake | BridleError | None = None
    answer: Answer | BridleError | None = None
    written = list(_settings(environ, settled.cli))
    if isinstance(path, str):
        asked = await version_of(path, timeout=min(timeout, 10.0))
        given = secret_variables(settled.cli.env or {}, given=True)
        known = Redactor([*secret_variables(os.environ, given=False), *given])
        version = asked if isinstance(asked, Version) else NoVersion(*asked.shown(known.excerpt))
        if not (isinstance(version, Version) and version < Version.MINIMUM):
            handshake = await _handshake(cli, sdk, settled, timeout)
        if is_live and isinstance(handshake, Handshake):
            answer = await _ask(cli, sdk, settled, known)
    return Facts(
        bridle=version_of_package("bridle"),
        platform=f"Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        cli=path,
        named_by=named_by,
        places=places,
        version=version,
        verification=stored_verification(path) if isinstance(path, str) else None,
        now=time.time(),
        directories=list(_directories(environ)),
        is_root=os.geteuid() == 0,
        is_sandbox=environ.get("IS_SANDBOX", "") not in ("", "0"),
        permission_mode=settled.cli.permission_mode or _mode(written),
        handshake=handshake,
        credentials=list(credentials(environ)),
        helpers=list(_helpers(written)),
        answer=answer,
        sdk=settled.sdk,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        ignored=list(map(str, settled.ignored)),
    )


def _find(cli: CliOptions) -> str | BridleError:
    try:
        return find_cli(None if cli.cli_path is None else os.fspath(cli.cli_path))
    except BridleError as error:
        return error


async def _handshake(
    cli: CliOptions, sdk: SdkOptions, settled: ResolvedOptions, timeout: float
) -> Handshake | BridleError:
    """Start a session as a program here would, but without network requests, and shut it down.

    The files that the CLI leaves in its temporary directory are deleted with it.
    """
    with contextlib.ExitStack() as stack:
        silent = dict(_SILENT)
        with contextlib.suppress(OSError):  # the check of the directory reports it
            own = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="bridle-", ignore_cleanup_errors=True)
            )
            silent |= dict.fromkeys(("TMPDIR", "CLAUDE_CODE_TMPDIR"), own)
        return await _greet(cli, sdk, settled, silent, timeout)


async def _greet(
    cli: CliOptions,
    sdk: SdkOptions,
    settled: ResolvedOptions,
    silent: Mapping[str, str],
    timeout: float,
) -> Handshake | BridleError:
    quiet: dict[str, Any] = {
        "env": silent,
        "setting_sources": [],
        "mcp_config": {"mcpServers": {}},
        "strict_mcp_config": True,
        "no_session_persistence": True,
    }
    if _takes_settings(settled.cli):
        quiet["settings"] = {"disableAllHooks": True, "env": dict(silent)}
    begun = time.monotonic()
    try:
        session = Session(
            cli.replace(**quiet), sdk.replace(init_timeout=timeout, skip_version_check=True)
        )
        await session.connect()
    except BridleError as error:
        return error
    duration = time.monotonic() - begun
    info = dict(session.server_info or {})
    await session.stop()
    return Handshake(duration, info)


async def _ask(
    cli: CliOptions, sdk: SdkOptions, settled: ResolvedOptions, known: Redactor
) -> Answer | BridleError:
    """Send one prompt, with the settings of the user, without tools, hooks and MCP servers."""
    alone: dict[str, Any] = {
        "setting_sources": ["user"],
        "mcp_config": {"mcpServers": {}},
        "strict_mcp_config": True,
        "no_session_persistence": True,
        "tools": [],
        "max_turns": 1,
    }
    if _takes_settings(settled.cli):
        alone["settings"] = {"disableAllHooks": True}
    try:
        outcome = await run(
            "Reply with OK.",
            cli=cli.replace(**alone),
            sdk=sdk.replace(skip_version_check=True, limits=Limits(total=_LIVE_SECONDS)),
            keep_messages=True,
        )
    except BridleError as error:
        return error
    said = [one for one in outcome.messages or () if isinstance(one, AssistantMessage)]
    return Answer(
        reason=outcome.reason,
        duration=outcome.duration,
        detail=known.excerpt(outcome.detail),
        model=(said[-1].message.model if said else None) or "",
        cost_usd=outcome.cost_usd,
    )


def _takes_settings(cli: CliOptions) -> bool:
    """Return whether settings can be merged with those of the configuration."""
    return cli.settings is None or isinstance(cli.settings, Mapping)


def _settings(
    environ: Mapping[str, str], cli: CliOptions
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield path and content of the settings files that a session would read, strongest first."""
    project = os.path.join(os.getcwd() if cli.cwd is None else cli.cwd, ".claude")
    for directory, name in (
        (project, "settings.local.json"),
        (project, "settings.json"),
        (config_directory(environ), "settings.json"),
    ):
        path = os.path.join(directory, name)
        try:
            with open(path, "rb") as file:
                yield path, msgspec.json.decode(file.read(), type=dict[str, Any])
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            continue  # the CLI ignores an invalid file, too


def _mode(written: Sequence[tuple[str, Mapping[str, Any]]]) -> str | None:
    """Return the permission mode that the settings files set."""
    permissions = (settings.get("permissions") for _, settings in written)
    modes = (_members(one).get("defaultMode") for one in permissions)
    return next((mode for mode in modes if isinstance(mode, str)), None)


def _members(value: object) -> Mapping[str, object]:
    """Return a value if it is an object of JSON, else an empty one."""
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _helpers(written: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    """Yield a sentence about each credential that settings name, without its value."""
    for path, settings in written:
        env = _members(settings.get("env"))
        names = [name for name in _HELPERS if settings.get(name)]
        names += [name for name in _CREDENTIALS if env.get(name)]
        yield from (f"{path} has {name}" for name in names)


def _directories(environ: Mapping[str, str]) -> Iterator[Directory]:
    """Yield the directories that the CLI writes to."""
    config = config_directory(environ)
    yield _looked_at(config, "config")
    if not environ.get("CLAUDE_CONFIG_DIR"):
        yield _looked_at(os.path.dirname(config), "home")
    yield _looked_at(environ.get("CLAUDE_CODE_TMPDIR") or tempfile.gettempdir(), "temporary")


def _looked_at(path: str, use: str) -> Directory:
    """Check a directory by writing a file. Permission bits alone are not enough for root."""
    place = os.path.abspath(path)
    while not os.path.lexists(place):
        place = os.path.dirname(place)  # the CLI would create the directory here
    try:
        with tempfile.TemporaryFile(dir=place):
            return Directory(path, use)
    except OSError as error:
        return Directory(path, use, error.strerror or str(error))


def credentials(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence about each place that may hold a login, without reading its value."""
    yield from (f"{name} is set" for name in _CREDENTIALS if environ.get(name))
    path = os.path.join(config_directory(environ), ".credentials.json")
    if os.path.exists(path):
        yield f"{path} exists"


# ---------------------------------------------------------------- printing


def _page(findings: Sequence[Finding]) -> str:
    paint = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    lines: list[str] = []
    advised: set[str] = set()
    for finding in findings:
        mark = _MARKS[finding.state]
        if paint:
            mark = f"\x1b[{_COLOURS[finding.state]}m{mark}\x1b[0m"
        lines.append(f"{mark} {finding.check:{_WIDTH}}{printable(finding.text)}")
        lines += [f"{'':{_WIDTH + 2}}{printable(detail)}" for detail in finding.details]
        if finding.advice and finding.advice not in advised:
            advised.add(finding.advice)
            lines.append(f"{'':{_WIDTH + 2}}→ {finding.advice}")
    return "\n".join([*lines, "", verdict(findings)])


def _json(findings: Sequence[Finding], places: Sequence[Place]) -> str:
    told = [{**msgspec.structs.asdict(finding), "advice": finding.advice} for finding in findings]
    whole = {
        "healthy": exit_code(findings) == ExitCode.OK,
        "exit_code": exit_code(findings),
        "findings": told,
        "searched": places,
    }
    return msgspec.json.format(msgspec.json.encode(whole)).decode()
