"""Find the configuration directory of the CLI, which holds its settings, logins and transcripts."""

from __future__ import annotations

import os
from collections.abc import Mapping


def config_directory(environment: Mapping[str, str]) -> str:
    """Return the absolute path of the directory in which a CLI with this environment keeps files.

    A relative path is resolved in the current directory.
    """
    home = environment.get("HOME") or os.path.expanduser("~")
    return os.path.abspath(environment.get("CLAUDE_CONFIG_DIR") or os.path.join(home, ".claude"))
