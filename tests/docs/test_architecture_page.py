"""The walks on the architecture page name functions that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs/explanation/architecture.md"
SOURCE = REPOSITORY / "src/bridle"


def walks() -> str:
    """The section with the walks."""
    page = PAGE.read_text("utf-8")
    return page.split("## Four walks through the code\n")[1].split("\n## ")[0]


def defined() -> tuple[set[str], set[str]]:
    """The names of functions and classes, and the methods with their classes."""
    names: set[str] = set()
    methods: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            if isinstance(node, ast.ClassDef):
                parts = [each for each in node.body if isinstance(each, _FUNCTIONS)]
                methods |= {f"{node.name}.{each.name}" for each in parts}
            if isinstance(node, ast.Module):
                parts = [each for each in node.body if isinstance(each, _FUNCTIONS)]
                methods |= {f"{path.stem}.{each.name}" for each in parts}
    return names, methods


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def test_the_walks_name_functions_that_exist() -> None:
    names, methods = defined()
    named = re.findall(r"`([A-Za-z_]+\.[A-Za-z_]+)`", walks())
    assert len(named) > 25
    assert [name for name in named if name not in methods] == []
    single = re.findall(r"`([A-Za-z_]+)`", walks())
    ours = [name for name in single if name not in {"initialize", "interrupt", "interrupted"}]
    assert [name for name in ours if name not in names] == []


@pytest.mark.parametrize(
    "module",
    ["_process/pipes", "_session/actor", "_session/readers/queues", "_callbacks/callbacks"],
)
def test_the_picture_names_modules_that_exist(module: str) -> None:
    assert f"{module}.py" in walks()
    assert (SOURCE / f"{module}.py").exists()
