"""Tests wait for events: in one place, with a limit, and not for a time that is usually enough."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

WAITING = "tests/support/processes.py"
"""Where `until`, `until_on_trio` and `wait_until` are."""


def polls(source: str) -> Iterator[int]:
    """Yield the lines of loops that do nothing but sleep until a condition holds."""
    for node in ast.walk(ast.parse(source)) if "while" in source and "sleep" in source else ():
        if isinstance(node, ast.While) and len(node.body) == 1:
            step = ast.unparse(node.body[0]).removeprefix("await ")
            if step.partition("(")[0] in {"asyncio.sleep", "anyio.sleep", "time.sleep", "sleep"}:
                yield node.lineno


def test_loops_that_only_sleep_are_found() -> None:
    source = "while not done():\n    {}\nwhile True:\n    work()\n    await asyncio.sleep(1)"
    assert list(polls(source.format("await asyncio.sleep(0)"))) == [1]
    assert list(polls(source.format("time.sleep(0.1)"))) == [1]
    assert list(polls(source.format("look()"))) == []


def test_tests_wait_for_conditions_in_one_place(repository: Path) -> None:
    found = [
        f"{path.relative_to(repository).as_posix()}:{line}"
        for path in sorted((repository / "tests").rglob("*.py"))
        for line in polls(path.read_text("utf-8"))
    ]
    assert [one for one in found if not one.startswith(WAITING)] == []
    assert len(found) == 1, "the loop of until_on_trio"
