"""Changelog, package metadata and the version users see agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest


@pytest.mark.requirement("S110")
def test_the_top_of_the_changelog_is_the_version_being_made(repository: Path) -> None:
    """R442: a development version works under Unreleased, a release under its own number."""
    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    headings = re.findall(
        r"^## \[(.+?)\]", (repository / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE
    )
    expected = "Unreleased" if ".dev" in project["version"] else project["version"]
    assert headings[0] == expected
    assert len(headings) == len(set(headings))
