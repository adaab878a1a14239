"""`bridle._spi`: the names that annexes use beside the public ones."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import house
from bridle import _spi

MOST_NAMES = 40
"""The limit of `bridle._spi`. A new name takes the place of another one, or becomes public."""

TREE = ast.parse(Path(_spi.__file__).read_text("utf-8"))


def for_type_checkers() -> dict[str, str]:
    """The names that type checkers see, with their modules."""
    return {
        alias.name: node.module or ""
        for node in ast.walk(TREE)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bridle")
        for alias in node.names
    }


def used_by_annexes() -> set[str]:
    return {
        alias.name
        for path, tree in house.modules().items()
        if house.is_annex(path)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "bridle._spi"
        for alias in node.names
    }


def test_it_has_at_most_40_names() -> None:
    assert len(for_type_checkers()) <= MOST_NAMES


def test_an_annex_uses_each_name() -> None:
    assert used_by_annexes() == for_type_checkers().keys()


@pytest.mark.parametrize("name", for_type_checkers())
def test_a_name_is_what_type_checkers_see(name: str) -> None:
    home = for_type_checkers()[name]
    module = import_module(f"{home}.{name}" if name == "actions" else home)
    assert getattr(_spi, name) is (module if name == "actions" else getattr(module, name))


def test_each_name_says_what_it_is_for() -> None:
    lines = Path(_spi.__file__).read_text("utf-8").splitlines()
    imports = [line for line in lines if line.startswith("    from bridle")]
    assert [line for line in imports if "  # " not in line] == []
    assert len(imports) == len(for_type_checkers())


def test_other_names_do_not_exist() -> None:
    with pytest.raises(AttributeError, match=r"module 'bridle\._spi' has no attribute 'Engine'"):
        getattr(_spi, "Engine")  # noqa: B009  # type checkers know that it does not exist


def test_only_annexes_import_it() -> None:
    users = {path for path, tree in house.modules().items() if "bridle._spi" in house.imports(tree)}
    assert {path for path in users if not house.is_annex(path)} == set()


@pytest.mark.parametrize("statement", ["import bridle", "from bridle import *"])
def test_importing_bridle_does_not_load_it(statement: str) -> None:
    code = f"import sys\n{statement}\nprint('bridle._spi' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"
