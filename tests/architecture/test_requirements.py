"""tests/requirements.toml is whole and true, read in both directions.

From the manifest to the tests: every id is there, has one fate, and what it names exists. From the
tests to the manifest: a test that claims a requirement, in its docstring or by
`@pytest.mark.requirement`, is listed under it. `tools/requirement_claims.py` does the listing.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from requirement_claims import Entry, claims_in, read_claims, read_manifest, updated

KNOWN = [f"R{number:03}" for number in range(1, 473)]

# First and last id of each group that is a matter of the pure core: none of them may be pending.
PURE_GROUPS = {
    "options": (33, 94),
    "precedence": (95, 106),
    "command line": (107, 130),
    "framing and control frames": (169, 228),
    "lifecycle, hooks, permissions, servers, operations, stop, messages, errors": (229, 398),
    "file checkpointing": (399, 403),
    "architecture": (456, 472),
}
# Ids of these groups that only something else can prove.
NOT_PURE = {
    "a task": {"R292"},
    "a public door": {"R312", "R334", "R370", "R371", "R396", "R467"},
    "a real CLI": {"R127", "R128", "R350", "R351", "R403"},
    "a page of documentation": {"R105", "R383", "R470"},
}
PURE = {
    f"R{number:03}" for first, last in PURE_GROUPS.values() for number in range(first, last + 1)
}.difference(*NOT_PURE.values())


FATES = [
    {"title", "tests"},
    {"title", "pending"},
    {"title", "retired", "adr"},
    {"title", "retired", "adr", "tests"},
]


@pytest.fixture(scope="module")
def manifest(repository: Path) -> dict[str, Entry]:
    return read_manifest(repository)


@pytest.fixture(scope="module")
def claims(repository: Path) -> dict[str, set[str]]:
    return read_claims(repository)


def test_every_requirement_is_in_the_manifest_in_order(manifest: dict[str, Entry]) -> None:
    assert list(manifest) == KNOWN


def test_every_requirement_has_a_title_and_one_fate(manifest: dict[str, Entry]) -> None:
    assert [id for id, entry in manifest.items() if set(entry) not in FATES] == []
    assert [id for id, entry in manifest.items() if not all(entry.values())] == []


def test_no_requirement_of_the_pure_core_is_pending(manifest: dict[str, Entry]) -> None:
    assert [id for id, entry in manifest.items() if id in PURE and "pending" in entry] == []


def test_every_test_named_in_the_manifest_exists(
    manifest: dict[str, Entry], claims: dict[str, set[str]]
) -> None:
    named = {(id, node) for id, entry in manifest.items() for node in entry.get("tests", [])}
    assert sorted((id, node) for id, node in named if node not in claims) == []


def test_no_test_is_named_twice_for_one_requirement(manifest: dict[str, Entry]) -> None:
    lists = {id: entry.get("tests", []) for id, entry in manifest.items()}
    assert [id for id, nodes in lists.items() if len(nodes) != len(set(nodes))] == []


def test_every_requirement_a_test_claims_lists_that_test(
    manifest: dict[str, Entry], claims: dict[str, set[str]]
) -> None:
    unlisted = [
        (id, node)
        for node, ids in claims.items()
        for id in sorted(ids)
        if id not in manifest or node not in manifest[id].get("tests", [])
    ]
    assert unlisted == []


def test_every_retired_requirement_names_a_decision_that_lists_it(
    manifest: dict[str, Entry], repository: Path
) -> None:
    """The record exists and says which requirements it retired."""
    records = {
        path.name[:4]: path.read_text("utf-8") for path in (repository / "docs/adr").glob("0*.md")
    }
    retired = {id: entry["adr"] for id, entry in manifest.items() if "adr" in entry}
    assert [(id, adr) for id, adr in retired.items() if id not in records.get(adr, "")] == []


def test_claims_are_read_from_docstrings_and_marks() -> None:
    tree = ast.parse(
        """
class TestGroup:
    def test_inner(self):
        "R001, and R005 to R007."

@pytest.mark.requirement("R003")
def test_marked(): ...

def test_silent(): ...
"""
    )
    assert list(claims_in(tree)) == [
        ("TestGroup::test_inner", {"R001", "R005", "R006", "R007"}),
        ("test_marked", {"R003"}),
        ("test_silent", set()),
    ]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"pending": "x"}, {"tests": ["f::test_new"]}),
        (
            {"tests": ["f::test_gone", "f::test_by_hand"]},
            {"tests": ["f::test_by_hand", "f::test_new"]},
        ),
        (
            {"retired": "x", "adr": "0001"},
            {"retired": "x", "adr": "0001", "tests": ["f::test_new"]},
        ),
    ],
    ids=["pending", "tests", "retired"],
)
def test_the_tool_lists_claims_and_forgets_what_is_gone(
    entry: dict[str, Any], expected: dict[str, Any]
) -> None:
    claims = {"f::test_new": {"R001"}, "f::test_by_hand": set[str]()}
    titled: Any = {"title": "t", **entry}
    assert updated(titled, "R001", claims) == {"title": "t", **expected}


def test_the_tool_makes_an_id_without_a_test_pending() -> None:
    entry: Entry = {"title": "t", "tests": ["f::test_gone"]}
    assert updated(entry, "R001", {}) == {"title": "t", "pending": "needs a test"}
