"""What the text of the repository must not contain, and which words the names of tests avoid."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SKIPPED = {
    ".clis",
    ".drift",
    ".git",
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

# A test name says which thing does what. These words leave the thing or the action out.
AVOIDED = (
    "nobodys?|somebody|someone|whoever|not_even|none_of|(?<!_there_)(is|are|was|were)_no"
    "|told|owes|owed|patience|departure|rung|crowd|nonsense|news|wish|deaf|blamed|at_hand"
    "|such_an?|all_the_same|pieces?|gone|cross_talk|lends|held_against"
)


@functools.cache
def files_below(top: Path) -> list[Path]:
    """Every text file below `top`."""
    found: list[Path] = []
    for directory, inner, names in os.walk(top):
        inner[:] = [one for one in inner if not is_skipped(one)]
        found += [Path(directory, one) for one in names if not is_skipped(one)]
    return sorted(one for one in found if one.suffix not in BINARY)


def is_skipped(name: str) -> bool:
    """Whether a file or directory of this name is made by a tool."""
    return name in SKIPPED or name.startswith(".venv") or name.endswith("_cache")


def lines_with(pattern: re.Pattern[str], top: Path) -> Iterator[tuple[str, str]]:
    """Every line of every text file below `top` with this pattern, and where it stands."""
    for path in files_below(top):
        text = path.read_text("utf-8")
        if pattern.search(text) is None:  # most files: much faster than line by line
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                yield f"{path.relative_to(top).as_posix()}:{number}", line


@pytest.mark.parametrize("what", FOREIGN)
def test_no_file_names(what: str, repository: Path) -> None:
    assert list(lines_with(re.compile(FOREIGN[what]), repository)) == []


def test_no_file_names_this_checkout(repository: Path) -> None:
    assert list(lines_with(re.compile(re.escape(str(repository))), repository)) == []


def test_lines_with_a_pattern_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo words\nthree\n")
    (tmp_path / "b.txt").write_text("four\n")
    assert list(lines_with(re.compile("words"), tmp_path)) == [("a.txt:2", "two words")]


def test_the_source_has_no_unfinished_mark(repository: Path) -> None:
    pattern = re.compile(rf"\b({UNFINISHED})\b")
    caught = re.compile(r"^\s*except ")  # an object of the user may raise it
    lines = lines_with(pattern, repository / "src")
    assert [one for one, line in lines if not caught.match(line)] == []


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


def test_names_of_tests_avoid_words_that_hide_who_acts(repository: Path) -> None:
    name = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
    avoided = re.compile(rf"_({AVOIDED})(?=_|$)")
    names = [
        found
        for path in sorted((repository / "tests").rglob("*.py"))
        for found in name.findall(path.read_text("utf-8"))
    ]
    assert [found for found in names if avoided.search(found)] == []
