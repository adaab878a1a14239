"""The pure modules stay pure, in the ways import contracts cannot see.

Contracts list what is forbidden; here stands the complete list of what is allowed, so that a
module nobody thought of is refused as well, wherever in the file it is imported.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

import pytest

from bridle._engine.state import Lifecycle

ALLOWED_IMPORTS = {
    "__future__",
    "bridle",
    "collections",
    "difflib",
    "enum",
    "functools",
    "hashlib",
    "heapq",
    "inspect",  # reads signatures; loaded with the first tool
    "json",  # writes half of a surrogate pair, which msgspec cannot
    "math",
    "msgspec",
    "operator",
    "re",
    "types",
    "typing",
    "unicodedata",
}
CORE = ("_engine/", "_observe/", "_pool/", "_process/", "_session/", "fleet/", "sessions/")
FORBIDDEN_CALLS = {
    "__import__",
    "breakpoint",
    "compile",
    "eval",
    "exec",
    "input",
    "open",
    "print",
}
ALLOWED_FROM = {
    "from datetime import datetime",  # for fromisoformat alone: see `impurities`
    "from io import BytesIO",  # bytes in memory, whatever their module is called
    "from os import PathLike",  # a type, for annotations
    "from uuid import UUID, uuid5",  # computed from a text, without chance
}
ASYNC_SYNTAX = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)


def impurities(tree: ast.Module) -> Iterator[str]:
    """What in this module waits, does I/O, runs text as code, or might."""
    for node in running_code(tree):
        if isinstance(node, ASYNC_SYNTAX):
            yield f"{node.lineno}: {type(node).__name__}"
        elif isinstance(node, ast.comprehension) and node.is_async:
            yield f"{node.target.lineno}: async comprehension"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in FORBIDDEN_CALLS:
            yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "datetime":
            if node.attr != "fromisoformat":
                yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "bridle":
                    yield f"{node.lineno}: the package imports itself from above"
                elif alias.name.partition(".")[0] not in ALLOWED_IMPORTS:
                    yield f"{node.lineno}: import {alias.name}"
        elif isinstance(node, ast.ImportFrom):
            if node.module == "bridle" and any(alias.name[0].isupper() for alias in node.names):
                yield f"{node.lineno}: the package imports itself from above"
            elif ast.unparse(node) in ALLOWED_FROM:
                continue
            elif node.level == 0 and (node.module or "").partition(".")[0] not in ALLOWED_IMPORTS:
                yield f"{node.lineno}: from {node.module} import"


def running_code(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node that exists when the program runs: not the imports only type checkers read."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        yield from running_code(node)


@pytest.mark.requirement("S115")
def test_pure_modules_do_no_io_keep_no_time_and_own_no_task(
    pure_modules: dict[str, ast.Module],
) -> None:
    """R460, R462: what is not in the shell touches nothing outside itself."""
    found = [f"{name}:{what}" for name, tree in pure_modules.items() for what in impurities(tree)]
    assert found == []


def test_the_lifecycle_depends_on_nothing_of_ours() -> None:
    """R465."""
    source = inspect.getsource(inspect.getmodule(Lifecycle))  # type: ignore[arg-type]
    imported = [
        name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (getattr(node, "module", None), *(alias.name for alias in node.names))
    ]
    assert [name for name in imported if name and name.startswith("bridle")] == []


def broad_handlers(tree: ast.Module) -> Iterator[int]:
    """The lines where this module catches every exception."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            names = "" if node.type is None else ast.unparse(node.type)
            if not names or {"Exception", "BaseException"} & set(names.strip("()").split(", ")):
                yield node.lineno


def test_the_core_runs_no_code_of_users(pure_modules: dict[str, ast.Module]) -> None:
    """Code of users may raise anything; the core has no reason to expect that."""
    core = {name: tree for name, tree in pure_modules.items() if name.startswith(CORE)}
    found = [f"{name}:{line}" for name, tree in core.items() for line in broad_handlers(tree)]
    assert found == []
    readers = {
        "bridle.tools._signatures",
        "inspect",
    }  # what validates arguments and reads functions
    used = {
        (name, node.module)
        for name, tree in core.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in readers
    }
    assert used == set()


@pytest.mark.parametrize("caught", ["", " Exception", " BaseException", " (OSError, Exception)"])
def test_a_broad_handler_is_found(caught: str) -> None:
    assert list(broad_handlers(ast.parse(f"try: f()\nexcept{caught}: pass"))) == [2]


def test_there_are_pure_modules_to_look_at(pure_modules: dict[str, ast.Module]) -> None:
    assert {"errors/__init__.py", "options/__init__.py", "_engine/engine.py"} <= pure_modules.keys()


@pytest.mark.parametrize(
    "source",
    [
        "async def f(): pass",
        "def f(): return (x async for x in y)",
        "def f():\n    import time",
        "from os.path import join",
        "from datetime import datetime\ndatetime.now()",
        "from uuid import uuid4",
        "import bridle",
        "from bridle import Session",
        "print('x')",
        "with open(path) as file: pass",
        "eval('1')",
    ],
)
def test_an_impurity_is_found(source: str) -> None:
    assert list(impurities(ast.parse(source))) != []


@pytest.mark.parametrize(
    "source",
    [
        "import msgspec",
        "from collections.abc import Mapping",
        "from bridle.errors import BridleError",
        "from bridle._engine import scan",
        "if TYPE_CHECKING:\n    from os import PathLike",
        "def f(x): return x.open()",
        "from datetime import datetime\ndatetime.fromisoformat('2026-01-01')",
        "from uuid import UUID, uuid5",
        "class Block:\n    input: dict",
    ],
)
def test_pure_code_is_let_through(source: str) -> None:
    assert list(impurities(ast.parse(source))) == []
