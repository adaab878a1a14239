"""tests/requirements.toml is whole and true, read in both directions.

From the manifest to the tests: every id is there, has one fate, and what it names exists. From the
tests to the manifest: a test that claims a requirement, in its docstring or by
`@pytest.mark.requirement`, is listed under it, and no other test is.
`tools/requirement_claims.py` does the listing.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from requirement_claims import (
    Entry,
    claims_in,
    every_id,
    read_claims,
    read_manifest,
    updated,
)

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
    assert list(manifest) == every_id()


def test_every_requirement_has_a_title_and_one_fate(manifest: dict[str, Entry]) -> None:
    assert [id for id, entry in manifest.items() if set(entry) not in FATES] == []
    assert [id for id, entry in manifest.items() if not all(entry.values())] == []


def test_nothing_is_pending(manifest: dict[str, Entry]) -> None:
    assert [id for id, entry in manifest.items() if "pending" in entry] == []


def test_the_tests_of_a_requirement_are_those_that_claim_it(
    manifest: dict[str, Entry], claims: dict[str, set[str]]
) -> None:
    """Run the tool when this fails."""
    claimed = {id: sorted(node for node, ids in claims.items() if id in ids) for id in manifest}
    listed = {id: entry.get("tests", []) for id, entry in manifest.items()}
    assert {id: claimed[id] for id in manifest if claimed[id] != listed[id]} == {}
    assert set[str]().union(*claims.values()) <= manifest.keys()


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
        "R001, and R005 to R007, C08 to C10; not C123 nor XR001."

@pytest.mark.requirement("R003", "S034")
def test_marked(): ...

def test_silent(): ...
"""
    )
    assert list(claims_in(tree)) == [
        ("TestGroup::test_inner", {"R001", "R005", "R006", "R007", "C08", "C09", "C10"}),
        ("test_marked", {"R003", "S034"}),
        ("test_silent", set()),
    ]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"pending": "x"}, {"tests": ["f::test_new"]}),
        ({"tests": ["f::test_gone", "f::test_by_hand"]}, {"tests": ["f::test_new"]}),
        (
            {"retired": "x", "adr": "0001"},
            {"retired": "x", "adr": "0001", "tests": ["f::test_new"]},
        ),
    ],
    ids=["pending", "tests", "retired"],
)
def test_the_tool_lists_what_is_claimed_and_nothing_else(
    entry: dict[str, Any], expected: dict[str, Any]
) -> None:
    claims = {"f::test_new": {"R001"}, "f::test_by_hand": set[str]()}
    titled: Any = {"title": "t", **entry}
    assert updated(titled, "R001", claims) == {"title": "t", **expected}


def test_every_series_is_counted_to_its_end() -> None:
    ids = every_id()
    assert len(ids) == len(set(ids)) == 472 + 58 + 34
    ends = [ids[0], ids[471], ids[472], ids[529], ids[530], ids[-1]]
    assert ends == ["R001", "R472", "C01", "C58", "S001", "S034"]


def test_the_tool_makes_an_id_without_a_test_pending() -> None:
    entry: Entry = {"title": "t", "tests": ["f::test_gone"]}
    assert updated(entry, "R001", {}) == {"title": "t", "pending": "needs a test"}
