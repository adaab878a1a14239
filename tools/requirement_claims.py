"""Bring tests/requirements.toml up to date with what the tests claim.

Usage::

    python tools/requirement_claims.py

A test claims a requirement by naming its id in its docstring or in `@pytest.mark.requirement`;
`R062 to R067` names all of them. Every claimed id gets the claiming tests listed, and is pending no
more; tests that are gone leave the list, and an id whose last test is gone becomes pending. The
tests of a retired id prove what was decided instead. Titles and tests listed by hand stay.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NotRequired, TypedDict

REPOSITORY = Path(__file__).resolve().parent.parent
MANIFEST = Path("tests/requirements.toml")
MARK = re.compile(r"\bmark\.requirement\(")
CLAIM = re.compile(r"\bR(\d{3})(?: to R(\d{3}))?\b")


class Entry(TypedDict):
    """What the manifest may say about a requirement."""

    title: str
    tests: NotRequired[list[str]]
    retired: NotRequired[str]
    adr: NotRequired[str]
    pending: NotRequired[str]


def read_manifest(repository: Path) -> dict[str, Entry]:
    """The manifest, in its own order."""
    parsed: dict[str, Entry] = tomllib.loads((repository / MANIFEST).read_text("utf-8"))
    return parsed


def read_claims(repository: Path) -> dict[str, set[str]]:
    """Every test of the repository, by node id, with the requirements it says it proves."""
    return {
        f"{path.relative_to(repository).as_posix()}::{name}": ids
        for path in sorted((repository / "tests").rglob("test_*.py"))
        for name, ids in claims_in(ast.parse(path.read_text("utf-8")))
    }


def claims_in(tree: ast.Module | ast.ClassDef) -> Iterator[tuple[str, set[str]]]:
    """Node id inside the file, and claimed ids, of each test function."""
    for node in tree.body:
        match node:
            case ast.ClassDef():
                yield from ((f"{node.name}::{name}", ids) for name, ids in claims_in(node))
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name.startswith("test_"):
                marks = filter(MARK.search, map(ast.unparse, node.decorator_list))
                claimed = " ".join([ast.get_docstring(node) or "", *marks])
                yield node.name, set(ids_in(claimed))
            case _:
                pass


def ids_in(text: str) -> Iterator[str]:
    """Every id a text names, one by one or as a range."""
    for first, last in CLAIM.findall(text):
        yield from (f"R{number:03}" for number in range(int(first), int(last or first) + 1))


def updated(entry: Entry, id: str, claims: Mapping[str, set[str]]) -> Entry:
    """The entry as the claims want it; a retired one stays retired."""
    kept = {node for node in entry.get("tests", []) if node in claims}
    tests = sorted(kept | {node for node, ids in claims.items() if id in ids})
    fresh: Entry = {"title": entry["title"]}
    if "retired" in entry and "adr" in entry:
        fresh = {**fresh, "retired": entry["retired"], "adr": entry["adr"]}
    elif not tests:
        fresh["pending"] = entry.get("pending", "needs a test")
    if tests:
        fresh["tests"] = tests
    return fresh


def as_toml(id: str, entry: Entry) -> str:
    """One entry as it is written in the manifest; JSON strings are TOML strings too."""
    lines = [f"[{id}]"]
    for key, value in entry.items():
        if isinstance(value, list):
            nodes = "".join(f"    {json.dumps(node)},\n" for node in value)
            lines.append(f"{key} = [\n{nodes}]")
        else:
            lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Rewrite the manifest in place, keeping its comments between entries."""
    claims = read_claims(REPOSITORY)
    text = (REPOSITORY / MANIFEST).read_text("utf-8")
    for id, entry in read_manifest(REPOSITORY).items():
        [old] = re.findall(rf"^\[{id}\]\n(?:.+\n)*", text, flags=re.MULTILINE)
        text = text.replace(old, as_toml(id, updated(entry, id, claims)))
    (REPOSITORY / MANIFEST).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
