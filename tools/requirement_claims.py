"""Read which requirements the tests claim to prove, and list them.

Usage::

    python tools/requirement_claims.py [ID...]

Prints the tests of each requirement. A test claims a requirement by naming its id in its
docstring, or with `pytest.mark.requirement("R173")` on the test or on one of its parameter sets.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypedDict, cast

REPOSITORY = Path(__file__).resolve().parent.parent
_ID = r"[RS]\d{3}|C\d{2}"
CLAIM = re.compile(rf"\b({_ID})(?: to ({_ID}))?\b")
MARK = "mark.requirement"


class Retirement(TypedDict):
    """Why a requirement does not hold, and the decision record that says so."""

    adr: str
    reason: str


class Requirements(NamedTuple):
    """The content of tests/requirements.toml."""

    titles: dict[str, str]
    retired: dict[str, Retirement]


def read_requirements(repository: Path) -> Requirements:
    """Return every requirement with its title, and the retired ones with their reasons."""
    content = tomllib.loads((repository / "tests/requirements.toml").read_text("utf-8"))
    return Requirements(content["requirements"], content["retired"])


class Claims(NamedTuple):
    """The ids that a test claims: in all its cases, and in single ones by their marks."""

    everywhere: set[str]
    cases: list[set[str]]

    @property
    def ids(self) -> set[str]:
        """Everything the test claims."""
        return self.everywhere.union(*self.cases)

    @property
    def of_largest_case(self) -> set[str]:
        """What the case with the most claims claims."""
        return self.everywhere | max(self.cases, key=len, default=set())


def read_claims(repository: Path) -> dict[str, Claims]:
    """Return what each test claims, by the test's node id."""
    return {
        f"{path.relative_to(repository).as_posix()}::{name}": claims
        for path in sorted((repository / "tests").rglob("test_*.py"))
        for name, claims in claims_in(ast.parse(path.read_text("utf-8")))
    }


def claims_in(
    tree: ast.Module | ast.ClassDef, tables: dict[str, ast.expr] | None = None
) -> Iterator[tuple[str, Claims]]:
    """Yield each test function's node id inside its file, and what it claims.

    `tables` are the assignments of the module: parameter sets may be in a table with a name.
    """
    tables = dict(_assignments(tree)) if tables is None else tables
    for node in tree.body:
        match node:
            case ast.ClassDef():
                for name, claims in claims_in(node, tables):
                    yield f"{node.name}::{name}", claims
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name.startswith("test_"):
                claims = Claims(set(ids_in(ast.get_docstring(node) or "")), [])
                for decorator in node.decorator_list:
                    _read_marks(decorator, tables, claims)
                yield node.name, claims
            case _:
                pass


def _assignments(tree: ast.Module | ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
            case _:
                pass


def _read_marks(node: ast.AST, tables: dict[str, ast.expr], claims: Claims) -> None:
    """Add the ids of the requirement marks in a decorator, each to its parameter set if it has."""
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        if called.endswith(MARK):
            ids = (each.value for each in node.args if isinstance(each, ast.Constant))
            claims.everywhere.update(cast("Iterator[str]", ids))
            return
        if called.endswith("pytest.param"):
            case = Claims(set(), [])
            for keyword in node.keywords:
                _read_marks(keyword.value, tables, case)
            claims.cases.append(case.everywhere)
            return
    if isinstance(node, ast.Name) and node.id in tables:
        _read_marks(tables[node.id], {}, claims)
    for child in ast.iter_child_nodes(node):
        _read_marks(child, tables, claims)


def ids_in(text: str) -> Iterator[str]:
    """Yield every id that a text names, alone or in a range such as `R062 to R067`."""
    for first, last in CLAIM.findall(text):
        series, digits = first[0], len(first) - 1
        for number in range(int(first[1:]), int((last or first)[1:]) + 1):
            yield f"{series}{number:0{digits}}"


def main(ids: list[str]) -> None:
    """Print the tests of the given requirements, or of all."""
    requirements, claims = read_requirements(REPOSITORY), read_claims(REPOSITORY)
    for id in ids or requirements.titles:
        print(f"{id}  {requirements.titles[id]}")
        if id in requirements.retired:
            print("      retired: {reason} (docs/adr/{adr})".format(**requirements.retired[id]))
        for node, claimed in claims.items():
            if id in claimed.ids:
                print(f"      {node}")


if __name__ == "__main__":
    main(sys.argv[1:])
