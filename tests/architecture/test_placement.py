"""Each concern has its module, and some things are in one place only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

OTHER_RUNTIMES = {"anyio", "curio", "eventlet", "gevent", "trio", "twisted", "uvloop"}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_each_concern_of_the_protocol_has_its_module(pure_modules: dict[str, ast.Module]) -> None:
    """R457, R468, R469: types, decoding, tracking, routing, servers, operations, lifecycle."""
    concerns = ("wire", "outgoing", "routing", "hooks", "mcp", "operations", "state")
    expected = {"controls.py", "hooks.py", *(f"_core/{name}.py" for name in concerns)}
    assert expected - pure_modules.keys() == set()


def test_the_lifecycle_depends_on_nothing(pure_modules: dict[str, ast.Module]) -> None:
    """R465."""
    ours = [name for name in imported(pure_modules["_core/state.py"]) if name.startswith("bridle")]
    assert ours == []


def test_every_public_exception_is_defined_in_one_module(
    pure_modules: dict[str, ast.Module],
) -> None:
    """R385: the core has signals of its own, between its modules; users never meet them."""
    strays = [
        f"{name}: {node.name}"
        for name, tree in pure_modules.items()
        if name != "errors.py" and not name.startswith("_core/")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        if any(ast.unparse(base).endswith(("Error", "Exception")) for base in node.bases)
    ]
    assert strays == []


def test_there_is_one_concurrency_runtime(package: Path) -> None:
    """R471: asyncio or nothing."""
    others = [
        f"{path.name}: {name}"
        for path in package.rglob("*.py")
        for name in imported(ast.parse(path.read_text("utf-8")))
        if name.partition(".")[0] in OTHER_RUNTIMES
    ]
    assert others == []
