"""Every block of the documentation is true: Python runs, commands exist."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from bridle.cli import COMMANDS
from doc_blocks import Block, read_blocks
from run_page import newest_cli

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")),
]
BLOCKS = {page.relative_to(REPOSITORY).as_posix(): read_blocks(page) for page in PAGES}

WITH_PYTHON = [name for name, blocks in BLOCKS.items() if any(one.is_program for one in blocks)]
FIRST_READ = {"README.md"}
"""The page that `make test` runs."""


def pages() -> Iterator[Any]:
    """Yield each page with Python blocks."""
    for page in WITH_PYTHON:
        yield pytest.param(page, marks=[] if page in FIRST_READ else [pytest.mark.longer])


LANGUAGES = {"python", "console", "text", "toml", "json", "ini", "yaml"}
LEAKS = ("ResourceWarning", "never awaited", "Exception ignored", "was destroyed but")


@pytest.mark.parametrize("page", list(pages()))
def test_every_python_block_runs(page: str) -> None:
    """In order, on the real CLI, offline; what is shown as printed is what is printed."""
    if newest_cli() is None:
        pytest.skip("no CLI is installed: `make setup` brings one")
    command = [sys.executable, "-W", "error", "tools/run_page.py", page]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": "tools"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [leak for leak in LEAKS if leak in done.stderr] == [], done.stderr


@pytest.mark.parametrize("page", BLOCKS)
def test_every_block_says_what_it_is(page: str) -> None:
    """An unmarked block would be one that nobody checks."""
    assert {block.language for block in BLOCKS[page]} <= LANGUAGES


def test_few_blocks_are_mere_text() -> None:
    """Only what is printed by a block above may go without being run."""
    loose = [
        f"{page}:{block.line}"
        for page, blocks in BLOCKS.items()
        for block in blocks
        if block.language == "text" and not block.title
    ]
    assert len(loose) <= 3, loose


# ---------------------------------------------------------------- the shell


def commands() -> list[tuple[str, str]]:
    """Every command line of the documentation, with where it stands."""
    return [
        (f"{page}:{block.line}", line.removeprefix("$ ").partition("  #")[0])
        for page, blocks in BLOCKS.items()
        for block in blocks
        if block.language == "console"
        for line in block.code.splitlines()
        if line.startswith("$ ")
    ]


def test_every_command_shown_exists() -> None:
    problems = {}
    for where, line in commands():
        problem = problem_with(shlex.split(line))
        if problem:
            problems[where] = f"{line}: {problem}"
    assert problems == {}


def problem_with(words: list[str]) -> str:
    """Why these words are no command of ours or of the tools we ask for; empty if they are."""
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    match words:
        case ["make", *rest]:
            targets = re.findall(r"^([a-z-]+):.*##", (REPOSITORY / "Makefile").read_text(), re.M)
            named = [word for word in rest if "=" not in word]
            return "" if set(named) <= set(targets) else "no such target"
        case ["bridle", *rest]:
            return problem_with_ours(rest)
        case ["python", path, *_] if "/" in path:
            return "" if (REPOSITORY / path).exists() else "no such file"
        case ["pip", "install", *packages] if any(one.startswith("bridle") for one in packages):
            return "not on a package index yet"
        case ["pip", "install", *packages]:
            project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
            extras = set(re.findall(r"\[(\w+)\]", " ".join(packages)))
            return "" if extras <= set(project["optional-dependencies"]) else "no such extra"
        case ["pytest" | "python" | "claude", *_]:
            return ""
        case _:
            return "not a command the documentation may ask for"


def problem_with_ours(words: list[str]) -> str:
    """Why these are no arguments of the `bridle` command."""
    if not words or words[0] in ("--help", "--version"):
        return ""
    if words[0] not in COMMANDS:
        return "no such command"
    parser = argparse.ArgumentParser()
    import_module(COMMANDS[words[0]][0]).arguments(parser)
    known = {spelling for action in parser._actions for spelling in action.option_strings}
    options = {word.partition("=")[0] for word in words[1:] if word.startswith("-")}
    return f"no such option: {', '.join(sorted(options - known))}" if options - known else ""


@pytest.mark.parametrize(
    ("line", "is_fine"),
    [
        ("make test", True),
        ("make unit PYTEST_ARGS=x", True),
        ("make nonsense", False),
        ("bridle doctor", True),
        ("bridle --help", True),
        ("bridle nonsense", False),
        ("bridle doctor --nonsense", False),
        ("python examples/quickstart.py", True),
        ("python examples/nonsense.py", False),
        ("pip install '.[cli]'", True),
        ("pip install '.[nonsense]'", False),
        ('pip install "bridle[cli]"', False),
        ("rm -rf build", False),
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str, is_fine: bool) -> None:
    assert (problem_with(shlex.split(line)) == "") is is_fine


# ---------------------------------------------------------------- the reader of blocks


def test_blocks_are_read_with_what_is_said_about_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n"
        '<!-- model: [[text("4")]] -->\n'
        '```python title="a.py"\n'
        "x = 1\n"
        "```\n"
        "words\n"
        "    ```text\n"
        "    y\n"
        "    ```\n"
    )
    assert read_blocks(page) == [
        Block("python", "x = 1\n", 4, title="a.py", script='[[text("4")]]'),
        Block("text", "y\n", 8),
    ]


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
        ('```python\nprint("a")\n```\n```text title="prints"\nb\n```\n', "but what is printed"),
        ('<!-- model: [[text("4")]] -->\n```python\nx = 1\n```\n', "leaves 1 replies unused"),
        ('```python title="test_x.py"\ndef test(): assert 0\n```\n', "test_x.py fails"),
    ],
    ids=["raises", "prints something else", "asks for less", "has a failing test"],
)
def test_a_page_that_is_not_true_fails(page: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(page)
    command = [sys.executable, "tools/run_page.py", str(path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert complaint in done.stderr
