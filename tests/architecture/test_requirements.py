"""Every requirement is proven by a test that claims it, or retired by a decision record."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from requirement_claims import Requirements, claims_in, read_claims, read_requirements

SERIES = {"R": 472, "C": 58, "S": 123}


@pytest.fixture(scope="module")
def requirements(repository: Path) -> Requirements:
    return read_requirements(repository)


@pytest.fixture(scope="module")
def claimed(repository: Path) -> set[str]:
    return set[str]().union(*read_claims(repository).values())


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
def test_parametrized(): ...

def test_silent(): ...
"""
    )
    assert list(claims_in(tree)) == [
        ("TestGroup::test_inner", {"R001", "R005", "R006", "R007", "C08", "C09", "C10"}),
        ("test_marked", {"R003", "S034"}),
        ("test_parametrized", {"R009"}),
        ("test_silent", set()),
    ]
