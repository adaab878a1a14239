"""Bring tests/requirements.toml up to date with what the tests claim.

Usage::

    python tools/requirement_claims.py

A test claims a requirement by naming its id in its docstring or in `@pytest.mark.requirement`;
`R062 to R067` names all of them. The lists of tests are made of these claims and of nothing else:
an id somebody claims is pending no more, one whose last test is gone becomes pending. The tests of
a retired id prove what was decided instead. Titles, reasons and comments stay.
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
_ID = r"[RS]\d{3}|C\d{2}"
CLAIM = re.compile(rf"\b({_ID})(?: to ({_ID}))?\b")

# The last of each series: the requirements, how contradictions among them were settled, and what
# the one-way stream adds.
LAST = ("R472", "C58", "S034")


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
        yield from id_range(first, last or first)


def id_range(first: str, last: str) -> Iterator[str]:
    """The ids of a series from one to another, both included."""
    series, digits = first[0], len(first) - 1
    for number in range(int(first[1:]), int(last[1:]) + 1):
        yield f"{series}{number:0{digits}}"


def every_id() -> list[str]:
    """Every id there is, in the order of the manifest."""
    return [id for last in LAST for id in id_range(f"{last[0]}{1:0{len(last) - 1}}", last)]


def updated(entry: Entry, id: str, claims: Mapping[str, set[str]]) -> Entry:
    """The entry as the claims want it; a retired one stays retired."""
    tests = sorted(node for node, ids in claims.items() if id in ids)
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
