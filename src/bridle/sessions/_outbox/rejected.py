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

from bridle._records.session_store import JOURNAL, Entry, SessionKey
from bridle.sessions._stores.entries import Probe

_Append: TypeAlias = Callable[[SessionKey, Sequence[Entry]], Awaitable[str]]


class Appended(NamedTuple):
    """What a store did with entries that were appended one by one."""

    #: Those that it took.
    taken: list[Entry]
    #: Those that it rejected.
    rejected: list[Entry]
    #: Those that follow, because the store takes nothing at the moment.
    left: list[Entry]
    #: Why it rejected the last one.
    reason: str = ""


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
) -> Appended:
    """Append entries one by one, in order, and leave out those that the store rejects.

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
    taken: list[Entry] = []
    rejected: list[Entry] = []
    reason = ""
    for number, entry in enumerate(entries):
        if await append(key, [entry]):
            if await append(journal, [probe]):
                return Appended(taken, rejected, list(entries[number:]), reason)
            if problem := await append(key, [entry]):
                rejected.append(entry)
                reason = problem
                continue
        taken.append(entry)
    return Appended(taken, rejected, [], reason)


async def _append_without_probe(
    key: SessionKey, entries: Sequence[Entry], append: _Append
) -> Appended:
    taken: list[Entry] = []
    rejected: list[Entry] = []
    # Entries that the store did not take, and why. It has taken no entry after them.
    failed: list[tuple[Entry, str]] = []
    reason = ""
    for entry in entries:
        if problem := await append(key, [entry]):
            failed.append((entry, problem))
            continue
        taken.append(entry)
        if failed:  # another attempt would put them after this entry
            rejected += [one for one, _ in failed]
            reason = failed[-1][1]
            failed.clear()
    if not taken:
        return Appended([], [], list(entries))
    for entry, _ in failed:
        if problem := await append(key, [entry]):
            rejected.append(entry)
            reason = problem
        else:
            taken.append(entry)
    return Appended(taken, rejected, [], reason)
