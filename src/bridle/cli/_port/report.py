"""The report of ``bridle port``: each use of the official SDK with its native form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bridle.cli._port.uses import Use
from bridle.cli.printable import printable
from bridle.cli.shown import counted


def report(found: Iterable[tuple[str, Sequence[Use]]]) -> str:
    """Return the report on programs, given as pairs of a path and the uses in it."""
    programs = [(path, uses) for path, uses in found if uses]
    lines = [line for path, uses in programs for line in _program(path, uses)]
    count = sum(len(uses) for _, uses in programs)
    if not programs:
        return "No use of claude_agent_sdk found.\n"
    lines.append(
        f"{counted(count, 'use')} in {counted(len(programs), 'program')}. Nothing was changed."
    )
    return "".join(f"{line}\n" for line in lines)


def _program(path: str, uses: Sequence[Use]) -> Iterator[str]:
    told: set[str] = set()
    for use in uses:
        yield f"{printable(path)}:{use.line}"
        yield from _marked("-", use.code)
        yield from _marked("+", use.native)
        for note in use.notes:
            if note not in told:
                told.add(note)
                yield f"  # {printable(note)}"
        yield ""


def _marked(mark: str, code: str) -> Iterator[str]:
    for line in code.splitlines():
        yield f"  {mark} {printable(line)}"
