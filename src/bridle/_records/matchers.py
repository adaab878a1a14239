"""Check and compile the matchers of hooks, with the rules of the CLI."""

from __future__ import annotations

import re
from typing import TypeAlias

from bridle.errors import OptionsError

Matcher: TypeAlias = re.Pattern[str] | frozenset[str] | None
"""A compiled matcher: a pattern to search for, a set of names, or None, which matches all."""

_NAMES = re.compile(r"[A-Za-z0-9_\-, |]+")

_FIX = 'Use None, a name, several names ("Write|Edit") or a regular expression.'


def compile_matcher(matcher: str | None) -> Matcher:
    """Compile a matcher with the rules of the CLI.

    None, "" and "*" match everything. Names separated by "|" or "," match exactly, and case counts.
    A text with any other character is a Python regular expression that may match anywhere in the
    name.

    Raises:
        ValueError: the matcher is invalid, or matches nothing.
    """
    if matcher is None or matcher in ("", "*"):
        return None
    if _NAMES.fullmatch(matcher) is None:
        try:
            return re.compile(matcher)
        except re.error as error:
            raise ValueError(f"{matcher!r} is not a valid regular expression: {error}") from error
    names = frozenset(name.strip() for name in re.split(r"[|,]", matcher)) - {""}
    if not names:
        raise ValueError(f"{matcher!r} contains no name")
    return names


def check_type(matcher: object) -> None:
    """Check that a matcher is a text or None.

    Raises:
        OptionsError: it is not.
    """
    if matcher is not None and not isinstance(matcher, str):
        problem = f"must be a string or None, got {type(matcher).__name__}"
        raise OptionsError("Hook.matcher", problem, fix=_FIX)


def checked_matcher(matcher: str | None) -> Matcher:
    """Compile the matcher of a hook.

    Raises:
        OptionsError: the matcher is invalid.
    """
    try:
        return compile_matcher(matcher)
    except ValueError as error:
        raise OptionsError("Hook.matcher", f"is invalid: {error}", fix=_FIX) from error
