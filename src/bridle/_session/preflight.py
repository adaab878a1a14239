"""Resolve the options, and check files, the API and the version before or while the CLI starts."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Mapping
from errno import EISDIR, ENOENT, ENOTDIR
from types import MappingProxyType
from typing import cast

from msgspec import structs

from bridle._engine.versions import MINIMUM, TESTED, Version, parse_version
from bridle._observe.known_secrets import clean_answer
from bridle._process.accounts import account_of
from bridle._process.launch.plan import Launch, anchored_settings, file_to_read, named_files
from bridle._process.locate import (
    VARIABLE,
    VERSION_TIMEOUT,
    VersionAnswer,
    version_of,
)
from bridle.errors import OptionsError, UnsupportedCliVersionError, UsageError
from bridle.events import SdkWarning, WarningKind
from bridle.options import BidirOptions, CliOptions, SdkOptions, StrPath
from bridle.options._keywords import Given, gather
from bridle.options._precedence import ResolvedOptions, resolve_options
from bridle.options._unknown_values import unknown_values

CONFIG_VARIABLE = "BRIDLE_CONFIG"
"""The environment variable with the path of the configuration file."""


def settle_options(
    cli: CliOptions | None,
    sdk: SdkOptions | None,
    bidir: BidirOptions | None,
    environ: Mapping[str, str] = os.environ,
) -> ResolvedOptions:
    """Return the final options: the arguments, then the environment, then the configuration file.

    The caller reports :func:`option_warnings`.

    Raises:
        OptionsError: an option is not valid, the user does not exist, or the configuration file or
            a file that the CLI needs at its start cannot be read.
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
        # The environment takes precedence over the configuration file, also for BRIDLE_CLI.
        options = structs.replace(options, cli=options.cli.replace(cli_path=environ[VARIABLE]))
    if options.bidir.transport_factory is None and options.sdk.runner is None:
        _look_for_files(options)
        account_of(options.cli.user)
    return options


def settle_keywords(
    cli: CliOptions | None,
    sdk: SdkOptions | None,
    bidir: BidirOptions | None,
    keywords: Mapping[str, object],
) -> ResolvedOptions:
    """Return the final options of a call that takes records and keywords.

    Raises:
        OptionsError: as :func:`settle_options`; or a keyword is unknown, or given twice.
    """
    return settle_given(gather(cli, sdk, bidir, keywords))


def settle_given(given: Given) -> ResolvedOptions:
    """Return the final options. The rules for functions are added to those of all sources.

    Raises:
        OptionsError: as :func:`settle_options`.
    """
    options = settle_options(given.cli, given.sdk, given.callbacks())
    if rules := given.allowed_tools():
        allowed = [*(options.cli.allowed_tools or ()), *rules]
        sources = options.origin["cli.allowed_tools"].split("+")
        sources = [source for source in sources if source not in ("default", "argument")]
        origin = {**options.origin, "cli.allowed_tools": "+".join([*sources, "argument"])}
        options = structs.replace(
            options,
            cli=options.cli.replace(allowed_tools=allowed),
            origin=MappingProxyType(origin),
        )
    return options


def option_warnings(options: ResolvedOptions) -> list[SdkWarning]:
    """Return the warnings about ignored settings and about values that Bridle does not know."""
    ignored = [SdkWarning(WarningKind.SETTING_IGNORED, str(setting)) for setting in options.ignored]
    unknown = unknown_values(options.cli, options.bidir)
    return [*ignored, *(SdkWarning(WarningKind.UNKNOWN_VALUE, text) for text in unknown)]


def _look_for_files(options: ResolvedOptions) -> None:
    """Reject files that the CLI could not open. With such a file the CLI would exit at its start.

    The content is not read: it may be large, and the CLI reports errors in it.
    """
    place = options.cli.cwd
    if place is not None and not os.path.isdir(place):
        return  # starting the CLI reports the missing directory
    for name, path in named_files(options.cli).items():
        try:
            mode = os.stat(path).st_mode
            # Permission bits do not tell everything, so open the file. A pipe is not opened: its
            # writer would take that for a read.
            if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                open(path, "rb").close()
        except (OSError, ValueError) as error:  # ValueError: the name cannot be encoded
            is_argument = options.origin[f"cli.{name}"] == "argument"
            blame = name if is_argument else f"config: cli.{name}"
            fix = "Name a file that exists and can be read, or pass its content instead."
            if not os.path.isabs(path):
                fix = f"{fix} The path is relative to the working directory, and ~ is not expanded."
            raise unreadable(blame, path, error, fix=fix) from None


def unreadable(blame: str, path: str, error: OSError | ValueError, *, fix: str) -> OptionsError:
    """Return the error for a file that could not be opened."""
    if not isinstance(error, OSError) or error.errno in (ENOENT, ENOTDIR, EISDIR):
        return OptionsError(blame, f"names {path}, which is not a file", fix=fix)
    return OptionsError(blame, f"names {path}, which cannot be read: {error.strerror}", fix=fix)


def _config(named: StrPath | None, environ: Mapping[str, str]) -> Mapping[str, object] | None:
    """Return the parsed configuration file, or None if no file is named."""
    blame, path = "config_file", named
    if path is None:
        blame, path = CONFIG_VARIABLE, environ.get(CONFIG_VARIABLE) or None
    if path is None:
        return None
    import tomllib  # loaded only if there is a configuration file

    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        fix = "Name an existing TOML file, or remove the setting."
        problem = f"names {name}, which cannot be read: {error.strerror}"
        raise OptionsError(blame, problem, fix=fix) from None
    except ValueError as error:  # the file is not TOML, or not UTF-8
        fix = "Correct the file. Its tables are [cli], [sdk] and [bidir]."
        problem = f"names {name}, which is not valid TOML: {error}"
        raise OptionsError(blame, problem, fix=fix) from None


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop.

    Raises:
        UsageError: no asyncio event loop is running.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError(
            "Bridle needs a running asyncio event loop, and there is none here.",
            fix="In plain code, or under another async framework such as trio, use bridle.sync.",
        ) from None


async def check_version(
    path: str,
    launch: Launch,
    *,
    redact: Callable[[str], str],
    describe: Callable[..., None],
    strict: bool = False,
) -> SdkWarning | None:
    """Ask the CLI at ``path`` for its version and judge the answer.

    ``describe`` gets the version as the keyword argument ``cli_version``.

    Returns:
        A warning if the version is not known, too old for an option, or newer than the tested ones.

    Raises:
        UnsupportedCliVersionError: the CLI is too old or, if ``strict``, its version is not known.
    """
    answer = clean_answer(await version_of(path, launch, timeout=VERSION_TIMEOUT), redact)
    if isinstance(answer, Version):
        describe(cli_version=str(answer))
    doubt = judge_version(answer, strict=strict)
    if doubt is not None:
        return SdkWarning(WarningKind.VERSION_INCONCLUSIVE, doubt)
    return _unsupported(answer, launch.needs) or _untested(answer)


_told: set[Version] = set()
"""The versions that were reported as untested, so that a process does so once."""


def _untested(answer: VersionAnswer) -> SdkWarning | None:
    """Return a warning if the CLI is newer than the newest tested one, once for each version."""
    if not isinstance(answer, Version) or answer <= TESTED or answer in _told:
        return None
    _told.add(answer)
    return SdkWarning(
        WarningKind.UNTESTED_VERSION,
        f"CLI {answer} is newer than {TESTED}, the newest that this version of Bridle was tested "
        "with; `bridle verify` tries Bridle's promises on it",
    )


def _unsupported(answer: VersionAnswer, needs: Mapping[str, str]) -> SdkWarning | None:
    """Return a warning if the CLI is too old for an option, by the version that each one needs."""
    found = [
        f"{name} needs CLI {version} or newer, and this is {answer}"
        for name, version in needs.items()
        if isinstance(answer, Version) and answer < cast("Version", parse_version(version))
    ]
    return SdkWarning(WarningKind.OPTION_UNSUPPORTED, "; ".join(found)) if found else None


def judge_version(answer: VersionAnswer, *, strict: bool = False) -> str | None:
    """Reject a CLI that is too old and, if ``strict``, a CLI whose version is not known.

    Returns:
        The reason why the version is not known; None if it is known.

    Raises:
        UnsupportedCliVersionError: the CLI is rejected.
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
    """Return the content of the settings file if planning the launch needs it, otherwise None.

    `bidir` and `hooks` are those of the session; None for a query.

    Raises:
        OptionsError: the file cannot be read.
    """
    path = file_to_read(cli, bidir, hooks=hooks)
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return anchored_settings(file.read(), os.path.dirname(os.path.abspath(path)))
    except OSError as error:
        fix = "Pass the path of an existing file, or the settings as a mapping."
        raise unreadable("settings", path, error, fix=fix) from None
