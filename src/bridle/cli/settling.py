"""The options of a command, settled from all their sources and looked at before anything starts."""

from __future__ import annotations

import os

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
