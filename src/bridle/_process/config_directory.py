"""Find where a CLI runs and keeps its files: its user, environment and directories."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

from bridle._process.accounts import Account, account_of
from bridle._process.launch.plan import Launch


def config_directory(environment: Mapping[str, str], cwd: str | None = None) -> str:
    """Return the absolute path of the directory with the settings, logins and transcripts of a CLI.

    Args:
        environment: the environment of the CLI.
        cwd: the directory that the CLI runs in, in which it resolves a relative path. None means
            the current directory.
    """
    home = environment.get("HOME") or os.path.expanduser("~")
    found = environment.get("CLAUDE_CONFIG_DIR") or os.path.join(home, ".claude")
    return os.path.abspath(os.path.join(os.path.realpath(cwd) if cwd else "", found))


class CliPlace(Struct, frozen=True):
    """Where a CLI runs."""

    #: The system user that it runs as. None for the user of this process.
    account: Account | None
    environment: Mapping[str, str]
    #: The configuration directory.
    config: str


def place_of(launch: Launch, environ: Mapping[str, str] | None = None) -> CliPlace:
    """Return where the CLI of a launch runs. ``environ`` is the environment of this process.

    Raises:
        OptionsError: the user of the launch does not exist.
    """
    account = account_of(launch.user)
    # As `su` does. Without it the CLI would look for its files in our home directory.
    other = {} if account is None else {**account.variables(), **launch.env}
    inherited = launch.environment(os.environ if environ is None else environ)
    environment = {**inherited, **other}
    return CliPlace(account, environment, config_directory(environment, launch.cwd))


def working_directory(launch: Launch) -> str:
    """Return the directory that the CLI of a launch runs in, without links."""
    return os.path.realpath(launch.cwd or os.getcwd())
