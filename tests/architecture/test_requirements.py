"""Every requirement is proven by a test that claims it, or retired by a decision record."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from requirement_claims import Claims, Requirements, claims_in, read_claims, read_requirements

SERIES = {"R": 472, "C": 58, "S": 123}
MOST_CLAIMS = 4
"""A test that claims more than that hardly shows each of them by an assertion of its own."""


@pytest.fixture(scope="module")
def requirements(repository: Path) -> Requirements:
    return read_requirements(repository)


@pytest.fixture(scope="module")
def claims(repository: Path) -> dict[str, Claims]:
    return read_claims(repository)


@pytest.fixture(scope="module")
def claimed(claims: dict[str, Claims]) -> set[str]:
    return set[str]().union(*(each.ids for each in claims.values()))


def test_every_requirement_is_listed_once_in_order(requirements: Requirements) -> None:
    digits = {"R": 3, "C": 2, "S": 3}
    expected = [
        f"{series}{number:0{digits[series]}}"
        for series, last in SERIES.items()
        for number in range(1, last + 1)
    ]
    assert list(requirements.titles) == expected
    assert all(requirements.titles.values())


def test_every_requirement_is_claimed_by_a_test_or_retired(
    requirements: Requirements, claimed: set[str]
) -> None:
    assert requirements.titles.keys() - claimed - requirements.retired.keys() == set()


def test_tests_claim_only_requirements_that_exist(
    requirements: Requirements, claimed: set[str]
) -> None:
    assert claimed - requirements.titles.keys() == set()


def test_no_test_claims_more_than_it_can_show(claims: dict[str, Claims]) -> None:
    """The cases of a parametrized test may claim different requirements, by their marks."""
    largest = {node: each.of_largest_case for node, each in claims.items()}
    assert {node: ids for node, ids in largest.items() if len(ids) > MOST_CLAIMS} == {}


def test_no_test_claims_a_retired_requirement(
    requirements: Requirements, claims: dict[str, Claims]
) -> None:
    retired = {node: each.ids & requirements.retired.keys() for node, each in claims.items()}
    assert {node: ids for node, ids in retired.items() if ids} == {}


def test_every_retirement_has_a_reason_and_is_listed_in_its_decision_record(
    requirements: Requirements, repository: Path
) -> None:
    records = {
        path.name[:4]: path.read_text("utf-8") for path in (repository / "docs/adr").glob("0*.md")
    }
    assert requirements.retired.keys() <= requirements.titles.keys()
    assert [
        id
        for id, entry in requirements.retired.items()
        if not entry["reason"] or id not in records.get(entry["adr"], "")
    ] == []


def test_claims_are_read_from_docstrings_marks_and_parameter_sets() -> None:
    tree = ast.parse(
        """
class TestGroup:
    def test_inner(self):
        "R001, and R005 to R007, C08 to C10; not C123 nor XR001."

@pytest.mark.requirement("R003", "S034")
def test_marked(): ...

@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.requirement("R009")), 2])
@pytest.mark.requirement("R010")
def test_parametrized(): ...

ROWS: list[Any] = [
    pytest.param(1, marks=pytest.mark.requirement("R011")),
    pytest.param(2, marks=[pytest.mark.requirement("R012", "R013"), pytest.mark.other]),
]

@pytest.mark.parametrize("x", ROWS)
def test_with_a_table(): ...

def test_silent(): ...
"""
    )
    assert list(claims_in(tree)) == [
        (
            "TestGroup::test_inner",
            Claims({"R001", "R005", "R006", "R007", "C08", "C09", "C10"}, []),
        ),
        ("test_marked", Claims({"R003", "S034"}, [])),
        ("test_parametrized", Claims({"R010"}, [{"R009"}])),
        ("test_with_a_table", Claims(set(), [{"R011"}, {"R012", "R013"}])),
        ("test_silent", Claims(set(), [])),
    ]


def test_the_largest_case_is_the_one_with_the_most_claims() -> None:
    claims = Claims({"R001"}, [{"R002"}, {"R003", "R004"}])
    assert claims.of_largest_case == {"R001", "R003", "R004"}
    assert claims.ids == {"R001", "R002", "R003", "R004"}
