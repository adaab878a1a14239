"""Versions of the CLI: read from text, compared by number."""

from __future__ import annotations

import pytest

from bridle._engine.versions import MINIMUM, Version, is_since, parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.1.325 (Claude Code)", Version(2, 1, 325)),
        ("v2.0.0", Version(2, 0, 0)),
        ("\n  claude version 10.20.30-beta.1+build.5\n", Version(10, 20, 30)),
        ("1.2 then 3.4.5 and 6.7.8", Version(3, 4, 5)),
        ("1.2.3.4", Version(1, 2, 3)),
        ("2.1", None),
        ("2..1.0", None),
        ("", None),
        ("no version", None),
        ("1" * 5000 + ".0.0", None),
    ],
    ids=lambda value: str(value)[:20],
)
@pytest.mark.requirement("S067")
@pytest.mark.requirement("S087")
def test_a_version_is_the_first_three_numbers(text: str, version: Version | None) -> None:
    assert parse_version(text) == version


def test_versions_compare_as_numbers() -> None:
    """R148, C21: one constant."""
    assert str(MINIMUM) == "2.0.0"
    assert Version(1, 99, 99) < MINIMUM <= Version(2, 0, 0) < Version(2, 0, 10) < Version(2, 1, 9)
    assert not Version(2, 0, 0) < MINIMUM
    assert parse_version("2.0.0-beta") == MINIMUM


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2.1.197", True),
        ("2.1.1000 (Claude Code)", True),
        ("2.1.99", False),
        ("3.0.0", True),
        ("", False),
        (None, False),
    ],
)
def test_an_unknown_version_counts_as_too_old(text: str | None, expected: bool) -> None:
    assert is_since(text, Version(2, 1, 197)) is expected
