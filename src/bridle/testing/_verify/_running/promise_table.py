"""The result of a verification as text for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap

from bridle.testing.verifications import Promise, State, Verification

WIDTH = 100
"""Columns of the table."""

_MARKS: Mapping[State, str] = {"held": "✓", "broken": "✗", "unsupported": "!"}
_COLOURS: Mapping[State, str] = {"held": "32", "broken": "31", "unsupported": "33"}
_STATES = 13
"""Columns of the longest mark with its word."""


def page(verification: Verification, *, colour: bool = False) -> str:
    """Return the table, what was observed where a promise did not hold, and a summary."""
    promises = verification.promises
    names = max((len(promise.id) for promise in promises), default=0)
    lines = [f"CLI {verification.cli_version or 'of unknown version'}: {verification.cli_path}", ""]
    for promise in promises:
        lines += _row(promise, names, colour=colour)
    for promise in verification.failed:
        lines += ["", *_details(promise)]
    return "\n".join([*lines, "", summary(verification)])


def _row(promise: Promise, names: int, *, colour: bool) -> Iterator[str]:
    state = f"{_MARKS[promise.state]} {promise.state}"
    shown = f"{state:{_STATES}}"
    if colour:
        shown = f"\x1b[{_COLOURS[promise.state]}m{shown}\x1b[0m"
    first, *more = wrap(promise.sentence, WIDTH - _STATES - names - 4)
    yield f"{shown}  {promise.id:{names}}  {first}"
    yield from (f"{'':{_STATES + names + 4}}{line}" for line in more)


def _details(promise: Promise) -> list[str]:
    told = [f"{_MARKS[promise.state]} {promise.id}: {promise.sentence}"]
    told += [f"observed: {promise.observed}", f"depends on it: {promise.depends}"]
    lines: list[str] = []
    for number, text in enumerate(told):
        indent = "  " if number else ""
        lines += wrap(text, WIDTH, initial_indent=indent, subsequent_indent="    ")
    return lines


def summary(verification: Verification) -> str:
    """Return one line: how many promises hold, and how many do not."""
    count = Counter(promise.state for promise in verification.promises)
    text = f"{count['held']} of {len(verification.promises)} promises hold"
    rest: Sequence[State] = ("broken", "unsupported")
    others = [f"{count[state]} {state}" for state in rest if count[state]]
    version = verification.cli_version or "of unknown version"
    return ", ".join([text, *others]) + f" (CLI {version}, {verification.seconds:.0f} s)."
