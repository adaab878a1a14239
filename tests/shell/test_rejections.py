"""Entries that a store rejects are found without a change of the order of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from bridle._records.session_store import JOURNAL, Entry, SessionKey
from bridle.sessions._outbox.rejected import Appended, append_singly

KEY = SessionKey("00000000-0000-4000-8000-000000000001", "", "-p")
ENTRIES: list[Entry] = [{"uuid": str(number)} for number in range(3)]


class Script:
    """A store that fails for the appends that the script says, and then works."""

    def __init__(self, fails: Sequence[bool]) -> None:
        self.fails: Iterator[bool] = iter(fails)
        self.entries: list[Entry] = []
        self.probes = 0

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> str:
        if next(self.fails, False):
            return "try again"
        if key.subkey == JOURNAL:
            self.probes += 1
        else:
            self.entries += entries
        return ""


def find(fails: Sequence[bool], *, has_journals: bool) -> tuple[Script, Appended]:
    store = Script(fails)
    found = asyncio.run(append_singly(KEY, ENTRIES, store.append, has_journals=has_journals))
    return store, found


@pytest.mark.parametrize("has_journals", [True, False])
def test_a_store_that_fails_at_any_time_gets_entries_in_order(*, has_journals: bool) -> None:
    """Every pattern of failures. No entry is lost, and those that are left follow the others."""
    for fails in product([False, True], repeat=9):
        store, found = find(fails, has_journals=has_journals)
        assert store.entries == found.taken, fails
        assert [entry for entry in ENTRIES if entry in found.taken] == found.taken, fails
        decided = [entry for entry in ENTRIES if entry not in found.left]
        assert [*decided, *found.left] == ENTRIES, fails
        assert [one for one in decided if one not in found.taken] == found.rejected, fails
        assert bool(found.reason) == bool(found.rejected), fails
        assert has_journals or store.probes == 0


F, T = False, True


@pytest.mark.parametrize(
    ("fails", "has_journals", "taken", "rejected", "left"),
    [
        ([], True, "012", "", ""),
        ([T, F, T], True, "12", "0", ""),
        ([T, F, F], True, "012", "", ""),
        ([T, T], True, "", "", "012"),
        ([T, F, T, F, T, T], True, "1", "0", "2"),
        ([T, T, T], False, "", "", "012"),
        ([T, F], False, "12", "0", ""),
        ([F, T, T], False, "012", "", ""),
        ([F, T, T, T], False, "02", "1", ""),
    ],
    ids=[
        "it works",
        "it rejects an entry",
        "it failed for a moment",
        "it is down",
        "it rejects an entry and is down then",
        "without journals: it is down",
        "without journals: it rejects an entry",
        "without journals: it failed for a moment",
        "without journals: it rejects a late entry",
    ],
)
def test_a_rejected_entry_is_distinguished_from_a_store_that_is_down(
    fails: list[bool], taken: str, rejected: str, left: str, *, has_journals: bool
) -> None:
    _, found = find(fails, has_journals=has_journals)
    numbers = ["".join(str(entry["uuid"]) for entry in part) for part in found[:3]]
    assert numbers == [taken, rejected, left]
