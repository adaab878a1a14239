"""Resolve the options of a command from all their sources, and check them before the start."""

from __future__ import annotations

import os

from bridle import ResolvedOptions
from bridle._spi import settle_options
from bridle.errors import OptionsError
from bridle.options import CliOptions, SdkOptions


def settle(cli: CliOptions, sdk: SdkOptions) -> ResolvedOptions:
    """Return the resolved options.

    Raises:
        OptionsError: an option is invalid, or the working directory does not exist.
    """
    settled = settle_options(cli, sdk, None)
    place = settled.cli.cwd
    if place is not None and not os.path.isdir(place):
        origin = settled.origin["cli.cwd"]
        raise OptionsError(
            "--cwd" if origin == "argument" else f"cwd ({origin})",
            f"names {os.fspath(place)}, which is not a directory",
            fix="Name a directory that exists.",
        )
    return settled
