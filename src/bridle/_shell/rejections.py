"""Find the entries that a store rejects, for example because they are too large.

A store that fails for an entry may be down, or may not accept this entry. Bridle tells the two
apart with a probe: a small entry in the journal. A store that takes the probe, and fails for the
entry before and after it, rejects the entry. In a store without journals, another entry that it
takes serves as the probe. A store may also fail for one key only, for example
because a part of a database is down. So Bridle sends a rejected entry again when the store has
taken a later one of the same key, and at the latest when the session ends.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeAlias
from uuid import uuid4

from bridle._store import JOURNAL, Entry, SessionKey
from bridle._stores.entries import Probe

_Append: TypeAlias = Callable[[SessionKey, Sequence[Entry]], Awaitable[str]]


class Rejected(NamedTuple):
    """The entries that a store rejects, which may be none, and why it rejected the last one."""

    entries: list[Entry]
    reason: str


class SetAside:
    """The entries of one key that a store rejected, until Bridle sends them again."""

    def __init__(self) -> None:
        #: Where they are in the spool.
        self.places: list[tuple[int, int]] = []
        #: Entries of the key that the store has taken since then.
        self.later: list[Entry] = []


async def append_singly(
    key: SessionKey,
    entries: Sequence[Entry],
    append: _Append,
    *,
    has_journals: bool = True,
) -> Rejected | None:
    """Append entries one by one, in order, and leave out those that the store rejects.

    Return None if the store takes nothing: then it does not fail because of an entry.

    Args:
        key: the key of the entries.
        entries: entries that the store did not take together.
        append: appends entries to the store and returns what went wrong, or "".
        has_journals: False for a store that must not get a probe.
    """
    if not has_journals:
        return await _append_without_probe(key, entries, append)
    journal = SessionKey(key.session_id, JOURNAL, key.project)
    # Recovery ignores entries of this type.
    probe = Probe({"type": "probe", "uuid": str(uuid4()), "at": time.time()})
    rejected: list[Entry] = []
    reason = ""
    for entry in entries:
        if not await append(key, [entry]):
            continue
        if await append(journal, [probe]):
            return None
        problem = await append(key, [entry])
        if problem:
            rejected.append(entry)
            reason = problem
    return Rejected(rejected, reason)


async def _append_without_probe(
    key: SessionKey, entries: Sequence[Entry], append: _Append
) -> Rejected | None:
    failed = [entry for entry in entries if await append(key, [entry])]
    if len(failed) == len(entries):
        return None
    rejected: list[Entry] = []
    reason = ""
    for entry in failed:
        problem = await append(key, [entry])
        if problem:
            rejected.append(entry)
            reason = problem
    return Rejected(rejected, reason)
