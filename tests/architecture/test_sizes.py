"""Modules stay small and have names that say what is in them."""

from __future__ import annotations

from pathlib import Path

MAX_LINES = 700
LISTS = {"errors.py"}
"""A list of small classes, which the public contract wants in one module."""
EMPTY_NAMES = {"common", "helper", "helpers", "manager", "misc", "util", "utils"}


def test_no_module_is_over_the_limit(package: Path) -> None:
    """R439, R459: a module that needs more lines holds two ideas."""
    long = {
        path.relative_to(package).as_posix(): lines
        for path in package.rglob("*.py")
        if (lines := len(path.read_text("utf-8").splitlines())) > MAX_LINES
        and path.name not in LISTS
    }
    assert long == {}


def test_no_file_has_a_name_that_says_nothing(repository: Path) -> None:
    found = [
        path.relative_to(repository).as_posix()
        for top in ("src", "tests", "tools", "bench")
        for path in (repository / top).rglob("*.py")
        if not EMPTY_NAMES.isdisjoint({path.stem.strip("_"), *path.stem.split("_")})
        or not EMPTY_NAMES.isdisjoint(path.relative_to(repository).parts)
    ]
    assert found == []
