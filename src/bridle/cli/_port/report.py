"""The report of ``bridle port``: each use of the official SDK with the native name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bridle.cli._port.names import DIFFERENCES
from bridle.cli._port.uses import Use
from bridle.cli._screens.printable import printable
from bridle.cli._screens.shown import counted


def report(found: Iterable[tuple[str, Sequence[Use]]]) -> str:
    """Return the report on programs, given as pairs of a path and the uses in it."""
    programs = [(path, uses) for path, uses in found if uses]
    if not programs:
        return "No use of claude_agent_sdk found.\n"
    lines = [line for path, uses in programs for line in _program(path, uses)]
    count = sum(len(uses) for _, uses in programs)
    lines.append(f"{counted(count, 'use')} in {counted(len(programs), 'program')}.")
    lines += ["", "What differs beside the names:"]
    lines += [f"  {topic}: {text}" for topic, text in DIFFERENCES.items()]
    return "".join(f"{line}\n" for line in lines)


def _program(path: str, uses: Sequence[Use]) -> Iterator[str]:
    told: set[str] = set()
    for use in uses:
        native = use.native or f"({use.note})"
        yield f"{printable(path)}:{use.line}: {printable(use.official)} -> {native}"
        if use.native and use.note and use.note not in told:
            told.add(use.note)
            yield f"    {use.note}"
    yield ""
