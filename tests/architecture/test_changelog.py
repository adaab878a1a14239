"""Changelog, package metadata and the version users see agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest


@pytest.fixture
def lines(repository: Path) -> list[str]:
    return (repository / "CHANGELOG.md").read_text("utf-8").splitlines()


def versions(lines: list[str]) -> list[str]:
    return [heading[1] for line in lines if (heading := re.match(r"## \[(.+?)\]", line))]


def test_the_top_of_the_changelog_is_the_version_being_made(
    repository: Path, lines: list[str]
) -> None:
    """R442: a development version works under Unreleased, a release under its own number."""
    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    expected = "Unreleased" if ".dev" in project["version"] else project["version"]
    assert versions(lines)[0] == expected


def problems(lines: list[str]) -> list[str]:
    """What is wrong with the form of a changelog."""
    numbers = [
        tuple(map(int, version.split("."))) for version in versions(lines) if version[0].isdigit()
    ]
    wrong = [f"empty: {line!r}" for line in lines if re.fullmatch(r"\s*(-|#+)\s*", line)]
    if lines[:1] != ["# Changelog"]:
        wrong.append("no header")
    if numbers != sorted(set(numbers), reverse=True):
        wrong.append(f"versions do not descend: {numbers}")
    if "Unreleased" in versions(lines)[1:]:
        wrong.append("Unreleased is not at the top")
    return wrong


@pytest.mark.requirement("S110")
def test_the_changelog_has_a_header_descending_versions_and_no_empty_item(
    lines: list[str],
) -> None:
    assert problems(lines) == []
    old = ["## [0.2.0]", "### Added", "- One.", "## [0.1.0]", "- Two."]
    assert problems(["# Changelog", "## [Unreleased]", *old]) == []
    assert problems(["Changes", *old]) == ["no header"]
    assert problems(["# Changelog", *old[3:], *old[:3]]) == [
        "versions do not descend: [(0, 1, 0), (0, 2, 0)]"
    ]
    assert problems(["# Changelog", *old, "- ", "## [Unreleased]"]) == [
        "empty: '- '",
        "Unreleased is not at the top",
    ]
