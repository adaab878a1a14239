"""The options of a command, settled from all their sources and looked at before anything starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, cast

from bridle._core.launch import named_files
from bridle._core.precedence import ResolvedOptions
from bridle._shell.preflight import settle_options
from bridle.errors import OptionsError
from bridle.options import CliOptions, SdkOptions


def settle(cli: CliOptions, sdk: SdkOptions) -> ResolvedOptions:
    """The final options.

    Raises:
        OptionsError: one is wrong, or there is no such directory to work in.
    """
    settled = settle_options(cli, sdk, None)
    place = settled.cli.cwd
    if place is not None and not os.path.isdir(place):
        origin = settled.origin["cli.cwd"]
        raise OptionsError(
            "--cwd" if origin == "argument" else f"cwd ({origin})",
            f"{os.fspath(place)} is no directory",
            fix="Name a directory that exists.",
        )
    return settled


_SWITCHES = {"CLAUDE_CODE_SIMPLE": "0"}
"""Variables that make the CLI skip hooks, and the value that does not.

Seen: 2.1.197 takes them from the settings of user, project and directory, 2.1.325 from those of
the user. Settings on the command line win over all of these, also when files change in a session.
"""


def with_hooks_on(cli: CliOptions) -> Mapping[str, Any]:
    """Return the settings of these options, with what would switch hooks off overridden.

    Raises:
        OptionsError: the settings are in a file, so nothing can be added to them.
    """
    if "settings" in named_files(cli):
        fix = "Write what the file says into the table [cli.settings] of the configuration file."
        raise OptionsError("settings", "must not be a file beside --policy", fix=fix)
    settings = cast("Mapping[str, Any]", cli.settings or {})
    return {**settings, "env": {**(settings.get("env") or {}), **_SWITCHES}}
