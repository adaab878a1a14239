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


def read_claims(repository: Path) -> dict[str, set[str]]:
    """Return the ids that each test claims, by the test's node id."""
    return {
        f"{path.relative_to(repository).as_posix()}::{name}": ids
        for path in sorted((repository / "tests").rglob("test_*.py"))
        for name, ids in claims_in(ast.parse(path.read_text("utf-8")))
    }


def claims_in(tree: ast.Module | ast.ClassDef) -> Iterator[tuple[str, set[str]]]:
    """Yield each test function's node id inside its file, and the ids it claims."""
    for node in tree.body:
        match node:
            case ast.ClassDef():
                yield from ((f"{node.name}::{name}", ids) for name, ids in claims_in(node))
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name.startswith("test_"):
                marks = (ids for each in node.decorator_list for ids in _marked(each))
                yield node.name, set(ids_in(ast.get_docstring(node) or "")).union(*marks)
            case _:
                pass


def _marked(decorator: ast.expr) -> Iterator[set[str]]:
    """Yield the ids of each requirement mark in a decorator, parameter sets included."""
    for node in ast.walk(decorator):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(MARK):
            yield {cast("str", each.value) for each in node.args if isinstance(each, ast.Constant)}


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
            if id in claimed:
                print(f"      {node}")


if __name__ == "__main__":
    main(sys.argv[1:])
