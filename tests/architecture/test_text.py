"""The repository speaks of Bridle alone: no machine, no registry, no key, no unfinished mark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SKIPPED = {
    ".clis",
    ".drift",
    ".git",
    ".venv",
    ".hypothesis",
    "__pycache__",
    "build",
    "dist",
    "htmlcov",
    "site",
}
BINARY = {".pyc", ".png", ".gz", ".coverage"}

# Spelled in two halves, so that this file does not contain what it looks for.
FOREIGN = {
    "home directory": "/ro" "ot/|/ho" "me/(?!user/|me/)[a-z]|/Us" "ers/(?!me/)[a-z]",
    "registry": r"py" r"pi\.|python" r"hosted|npm" r"js|index" r"-url|find" r"-links",
    "key": "sk-" "ant-",
}  # fmt: skip
UNFINISHED = "TO" "DO|FIX" "ME|XX" "X|NotImplemented" "Error"  # fmt: skip


def lines_of(top: Path) -> Iterator[tuple[str, str]]:
    """Every line of every text file below `top`, with where it stands."""
    for path in sorted(top.rglob("*")):
        inside = path.relative_to(top)
        hidden = any(part in SKIPPED or part.endswith("_cache") for part in inside.parts)
        if path.is_file() and not hidden and path.suffix not in BINARY:
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
                yield f"{inside.as_posix()}:{number}", line


@pytest.mark.parametrize("what", FOREIGN)
def test_no_file_names(what: str, repository: Path) -> None:
    pattern = re.compile(FOREIGN[what])
    assert [where for where, line in lines_of(repository) if pattern.search(line)] == []


def test_no_file_names_this_checkout(repository: Path) -> None:
    here = str(repository)
    assert [where for where, line in lines_of(repository) if here in line] == []


def test_the_source_has_no_unfinished_mark(repository: Path) -> None:
    pattern = re.compile(rf"\b({UNFINISHED})\b")
    caught = re.compile(r"^\s*except ")  # an object of the user may raise it
    lines = lines_of(repository / "src")
    assert [one for one, line in lines if pattern.search(line) and not caught.match(line)] == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("home directory", "see /ho" "me/ann/notes"),
        ("registry", "https://py" "pi.org/simple"),
        ("key", "ANTHROPIC_API_KEY=sk-" "ant-api03-x"),
    ],
)  # fmt: skip
def test_the_patterns_find_what_they_are_for(what: str, line: str) -> None:
    assert re.search(FOREIGN[what], line)
