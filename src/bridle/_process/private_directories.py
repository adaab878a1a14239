"""Directories with private files that are removed however the program ends."""

from __future__ import annotations

import os

from bridle._process import reaper, watchdog
from bridle._process.tree import Tree, remove_directory


def make_private_directory() -> str:
    """Return a new directory. The watchdog removes it if this process is killed."""
    from tempfile import mkdtemp  # slow to import, and not every session has one

    directory = mkdtemp(prefix="bridle-")
    watchdog.shared.guard(_name(directory), directory)
    return directory


def remove_private_directory(directory: str) -> None:
    """Remove the directory and everything in it. Ignore an empty path."""
    if directory:
        remove_directory(directory)
        reaper.shared.release(_name(directory))


def _name(directory: str) -> Tree:
    """Return a tree without processes that stands for the directory in the watchdog's list."""
    return Tree(os.path.basename(directory))
