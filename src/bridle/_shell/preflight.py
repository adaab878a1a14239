"""What is checked about a CLI before and while it starts."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Mapping
from errno import EISDIR, ENOENT, ENOTDIR
from typing import Any, cast

from msgspec import structs

from bridle._core.launch import Launch, anchored_settings, file_to_read, named_files
from bridle._core.precedence import ResolvedOptions, resolve_options
from bridle._shell.known_secrets import clean_answer
from bridle._shell.locate import (
    MINIMUM,
    VARIABLE,
    VERSION_TIMEOUT,
    Version,
    VersionAnswer,
    version_of,
)
from bridle.errors import OptionsError, UnsupportedCliVersionError, UsageError
from bridle.events import SdkWarning, WarningKind
from bridle.options import BidirOptions, CliOptions, SdkOptions, StrPath

CONFIG_VARIABLE = "BRIDLE_CONFIG"
"""The variable that names the configuration file, where ``SdkOptions.config_file`` does not."""

FORBID_REAL_API = "BRIDLE_FORBID_REAL_API"
"""Set to 1 in the environment of this process, no CLI is started whose API is not on loopback."""

_BASE_URL = "ANTHROPIC_BASE_URL"
# Each of these sends requests to a place of its own, whatever the base URL says.
_ELSEWHERE = (
    "ANTHROPIC_UNIX_SOCKET",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_VERTEX",
)


def settle_options(
    cli: CliOptions | None,
    sdk: SdkOptions | None,
    bidir: BidirOptions | None,
    environ: Mapping[str, str] = os.environ,
) -> ResolvedOptions:
    """The final options: what was given, then the environment, then the configuration file.

    Whoever starts something with them reports :func:`option_warnings`.

    Raises:
        OptionsError: an option is wrong, in whichever source, or a file cannot be read: that one,
            or one that the CLI would not start without.
    """
    named = sdk.config_file if isinstance(sdk, SdkOptions) else None
    options = resolve_options(
        cli,
        sdk,
        bidir,
        environ=environ,
        config=_config(named, environ),
        config_variable=CONFIG_VARIABLE if named is None else None,
    )
    if options.origin["cli.cli_path"] == "config" and environ.get(VARIABLE):
        # BRIDLE_CLI is the environment's word for it, and outranks the file as any other does.
        options = structs.replace(options, cli=options.cli.replace(cli_path=environ[VARIABLE]))
    if options.bidir.transport_factory is None and options.sdk.runner is None:
        _look_for_files(options)
    return options


def option_warnings(options: ResolvedOptions) -> list[SdkWarning]:
    """What is to be reported about the options before anything is started with them."""
    return [SdkWarning(WarningKind.SETTING_IGNORED, str(setting)) for setting in options.ignored]


def _look_for_files(options: ResolvedOptions) -> None:
    """Refuse files that a CLI would be started with only to die of them.

    None is read: it may be large, and to say what is wrong inside is the CLI's business.
    """
    place = options.cli.cwd
    if place is not None and not os.path.isdir(place):
        return  # that is what is wrong, and whoever goes there says so
    for name, path in named_files(options.cli).items():
        try:
            mode = os.stat(path).st_mode
            # Permissions alone do not tell; but whoever writes to a pipe would think it was read.
            if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                open(path, "rb").close()
        except (OSError, ValueError) as error:  # no file has a name that cannot be encoded
            is_argument = options.origin[f"cli.{name}"] == "argument"
            blame = name if is_argument else f"config: cli.{name}"
            fix = "Name a file that exists and can be read, or give what it says instead."
            if not os.path.isabs(path):
                fix = f"{fix} It counts from the working directory, and ~ is not expanded."
            raise unreadable(blame, path, error, fix=fix) from None


def unreadable(blame: str, path: str, error: OSError | ValueError, *, fix: str) -> OptionsError:
    """The error about a file that was named, and could not be opened."""
    if not isinstance(error, OSError) or error.errno in (ENOENT, ENOTDIR, EISDIR):
        return OptionsError(blame, f"is no file: {path}", fix=fix)
    return OptionsError(blame, f"{path} cannot be read: {error.strerror}", fix=fix)


def _config(named: StrPath | None, environ: Mapping[str, str]) -> Mapping[str, object] | None:
    """The configuration file, parsed; None where none is named."""
    blame, path = "config_file", named
    if path is None:
        blame, path = CONFIG_VARIABLE, environ.get(CONFIG_VARIABLE) or None
    if path is None:
        return None
    import tomllib  # for those who have such a file

    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        fix = "Name an existing TOML file, or none."
        raise OptionsError(blame, f"{name} cannot be read: {error.strerror}", fix=fix) from None
    except ValueError as error:  # neither TOML nor UTF-8 is what it is
        fix = "Mend the file; its tables are [cli], [sdk] and [bidir]."
        raise OptionsError(blame, f"{name} is not TOML: {error}", fix=fix) from None


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop everything will run on.

    Raises:
        UsageError: there is none, or it is not asyncio's.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError(
            "Bridle needs a running asyncio event loop, and there is none here.",
            fix="In plain code, or under another async framework such as trio, use bridle.sync.",
        ) from None


CALLS_NOBODY: set[str] = set()
"""Paths of CLIs that cannot call any API, because they are fakes."""


def refuse_real_api(
    path: str, environ: Mapping[str, str], cli_environ: Mapping[str, str], settings: object
) -> None:
    """Where real calls are forbidden, refuse a CLI that would make one.

    ``settings`` are those of the options: their ``env`` beats the environment, as it does in the
    CLI. Settings files are not read.

    Raises:
        OptionsError: it would.
    """
    if environ.get(FORBID_REAL_API, "") in ("", "0") or path in CALLS_NOBODY:
        return
    told: Mapping[str, Any] = {}
    if isinstance(settings, Mapping):
        told = cast("Mapping[str, Any]", settings)
    why = _beyond_loopback({**cli_environ, **(told.get("env") or {})})
    if why is not None:
        raise OptionsError(
            "env",
            f"{why}, and {FORBID_REAL_API} forbids real API calls",
            fix="Give CliOptions(env=model.env) of a ScriptedModel, or lift the ban.",
        )


def _beyond_loopback(cli_environ: Mapping[str, str]) -> str | None:
    for name in _ELSEWHERE:
        if cli_environ.get(name):
            return f"{name} is set"
    url = cli_environ.get(_BASE_URL, "")
    if not url:
        return f"{_BASE_URL} is not set"
    from ipaddress import ip_address  # neither is loaded by asyncio, and tests can wait
    from urllib.parse import urlsplit

    try:
        host = urlsplit(url).hostname or ""
        here = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        here = False
    return None if here else f"{_BASE_URL} is not on loopback"


async def check_version(
    path: str,
    launch: Launch,
    *,
    redact: Callable[[str], str],
    describe: Callable[..., None],
    strict: bool = False,
) -> SdkWarning | None:
    """Ask the CLI at ``path`` for its version, and judge the answer.

    ``describe`` is told the version, as the field ``cli_version`` of ``ProcessInfo``.

    Returns:
        A warning if the version is not known.

    Raises:
        UnsupportedCliVersionError: the CLI is too old or, if ``strict``, its version is not known.
    """
    answer = clean_answer(await version_of(path, launch, timeout=VERSION_TIMEOUT), redact)
    if isinstance(answer, Version):
        describe(cli_version=str(answer))
    doubt = judge_version(answer, strict=strict)
    return None if doubt is None else SdkWarning(WarningKind.VERSION_INCONCLUSIVE, doubt)


def judge_version(answer: VersionAnswer, *, strict: bool = False) -> str | None:
    """Refuse a CLI that is known to be too old and, if strict, one whose version is not known.

    Returns:
        Why the version is not known, in words; None if it is.

    Raises:
        UnsupportedCliVersionError: it is refused.
    """
    if isinstance(answer, Version):
        if answer < MINIMUM:
            raise UnsupportedCliVersionError(str(answer), str(MINIMUM))
        return None
    if strict:
        error = UnsupportedCliVersionError(None, str(MINIMUM))
        error.fix = (
            f"When asked, {answer}. Update the CLI, or set "
            "SdkOptions.permissive_version_check to go on with a warning."
        )
        raise error
    return str(answer)


def settings_text(
    cli: CliOptions, bidir: BidirOptions | None = None, *, hooks: object = None
) -> bytes | None:
    """Return the content of the settings file that planning needs, if it needs one.

    `bidir` and `hooks` are those of the session, if it is one.

    Raises:
        OptionsError: it cannot be read.
    """
    path = file_to_read(cli, bidir, hooks=hooks)
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return anchored_settings(file.read(), os.path.dirname(os.path.abspath(path)))
    except OSError as error:
        fix = "Give an existing file, or the settings themselves."
        raise unreadable("settings", path, error, fix=fix) from None
