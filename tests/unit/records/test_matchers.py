"""Matchers of hooks, compiled with the rules of the CLI."""

from __future__ import annotations

import re

import pytest

from bridle._records.matchers import compile_matcher


@pytest.mark.parametrize("matcher", [None, "", "*"])
def test_a_matcher_of_everything_compiles_to_nothing(matcher: str | None) -> None:
    """R288."""
    assert compile_matcher(matcher) is None


@pytest.mark.parametrize(
    ("matcher", "names"),
    [
        ("Bash", {"Bash"}),
        ("Write|Edit", {"Write", "Edit"}),
        ("Bash,Read", {"Bash", "Read"}),
        ("Bash | Write", {"Bash", "Write"}),
        (" Bash ", {"Bash"}),
        ("Bash|", {"Bash"}),
        ("mcp__calc__add", {"mcp__calc__add"}),
        ("general-purpose", {"general-purpose"}),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "names",
)
def test_names_compile_to_a_set(matcher: str, names: set[str]) -> None:
    """R283."""
    assert compile_matcher(matcher) == names


@pytest.mark.parametrize("matcher", ["^W.*", ".*", "Bash(echo:*)", "p:hello", "^(?!Bash).*"])
def test_any_other_text_compiles_to_a_pattern(matcher: str) -> None:
    """R283."""
    assert compile_matcher(matcher) == re.compile(matcher)


@pytest.mark.parametrize(
    ("matcher", "problem"),
    [
        ("[", r"'\[' is not a valid regular expression"),
        (" | ", r"' \| ' contains no name"),
        (",", "',' contains no name"),
    ],
    ids=["broken", "blank names", "no names"],
)
def test_a_matcher_that_could_match_nothing_is_refused(matcher: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        compile_matcher(matcher)
