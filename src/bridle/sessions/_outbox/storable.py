"""Find the entries that can be stored: those that can be redacted and written as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from bridle._records.session_store import Entry
from bridle.errors import StoreError
from bridle.sessions._backlog import Batch
from bridle.sessions._stores.entries import to_rows


class Unstorable(Struct, frozen=True):
    """A batch with entries that can never be stored. ``storable`` are the others."""

    batch: Batch
    storable: list[Entry]
    reason: str


def split_storable(
    entries: Sequence[Entry], redact: Callable[[Entry], Entry] | None
) -> tuple[list[Entry], list[str], str]:
    """Return the entries that can be redacted and written as JSON, their JSON, and a problem.

    The problem is empty if all entries can be stored. It has no part of an entry.
    """
    storable: list[Entry] = []
    bodies: list[str] = []
    problem = ""
    for entry in entries:
        try:
            bodies += [row.body for row in to_rows("spool", [entry], redact)]
        except StoreError as error:
            problem = error.reason
        else:
            storable.append(entry)
    return storable, bodies, problem
