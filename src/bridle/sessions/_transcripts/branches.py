"""Decide which entries can be added to a transcript without hiding newer messages of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

from bridle._records.session_store import Entry
from bridle.sessions._transcripts.transcript import (
    TranscriptEntry,
    conversation,
    entries_of_objects,
)


class Choice(Enum):
    """Which entries of a spool file that was left behind can follow those in the store."""

    ALL = "all"
    WITHOUT_LAST_PROMPT = "without_last_prompt"
    NONE = "none"


def choose_left(stored: Sequence[Entry], left: Sequence[Entry], after: str | None = None) -> Choice:
    """Choose which of the entries ``left`` in a spool file to append to those in the store.

    Another machine may have continued the conversation since then. A ``last-prompt`` tells the CLI
    which branch to resume. It must not hide messages of the other machine.

    Args:
        stored: the entries in the store, in order.
        left: the entries in the file, in order.
        after: the uuid of the entry before them. What the store has before it was known when they
            were written, and they may hide it: the user has gone back to an earlier message. None
            if it is not known.
    """
    own = {uuid for entry in left if (uuid := entry.get("uuid")) is not None}
    uuids = [entry.get("uuid") for entry in stored]
    is_known = after is not None and after in uuids
    start = len(uuids) - uuids[::-1].index(after) if is_known else 0
    others = set(uuids[start:]) - own
    kept = {entry.uuid for entry in _conversation(stored)} & others
    known = set(uuids)
    for choice, chosen in (
        (Choice.ALL, left),
        (Choice.WITHOUT_LAST_PROMPT, without_last_prompt(left)),
    ):
        added = [entry for entry in chosen if "uuid" not in entry or entry["uuid"] not in known]
        if kept <= {entry.uuid for entry in _conversation([*stored, *added])}:
            return choice
    return Choice.NONE


def without_last_prompt(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries that do not choose the branch to resume."""
    return [entry for entry in entries if entry.get("type") != "last-prompt"]


_TITLES = ("ai-title", "custom-title", "tag")
"""Entries of which the last one counts. The CLI writes them without a time."""


def choose_again(later: Sequence[Entry], rejected: Sequence[Entry]) -> list[Entry] | None:
    """Choose which entries to send again that a store rejected before it took the ``later`` ones.

    Leave out those that a later entry replaces. Return None if they would hide later messages.
    """
    both = (*later, *rejected)
    parents = {parent for entry in both if isinstance(parent := entry.get("parentUuid"), str)}
    # Stand for messages that the store took before. Without them, branches could not be told apart.
    earlier = sorted(parents.difference(str(entry.get("uuid")) for entry in both))
    roots: list[Entry] = [{"type": "user", "uuid": uuid} for uuid in earlier]
    choice = choose_left([*roots, *later], rejected)
    if choice is Choice.NONE:
        return None
    chosen = rejected if choice is Choice.ALL else without_last_prompt(rejected)
    replaced = {entry.get("type") for entry in later}.intersection(_TITLES)
    return [entry for entry in chosen if entry.get("type") not in replaced]


class NewerTitles:
    """The titles and the tag in a store, to leave out older ones of a spool file.

    Args:
        stored: the entries in the store.
        written: when the file was changed, as ISO 8601. It is the time of a title without one, if
            no message is before it.
    """

    def __init__(self, stored: Iterable[Entry], written: str) -> None:
        self._written = written
        # The time of the last entry of each type.
        self._times: dict[object, str] = {}
        for entry, time in _timed(stored, ""):
            if entry.get("type") in _TITLES:
                self._times[entry["type"]] = time
        # The time of the last message of the file.
        self._last = ""

    def leave_out_older(self, entries: Iterable[Entry]) -> list[Entry]:
        """Return the entries of the next batch of the file, without titles that are older."""
        kept: list[Entry] = []
        for entry, time in _timed(entries, self._last):
            self._last = time
            if (time or self._written) >= self._times.get(entry.get("type"), ""):
                kept.append(entry)
        return kept


def _timed(entries: Iterable[Entry], time: str) -> Iterator[tuple[Entry, str]]:
    """Yield each entry with its time, or that of the last entry before it that has one."""
    for entry in entries:
        time = max(time, _time(entry))
        yield entry, time


def _conversation(entries: Sequence[Entry]) -> list[TranscriptEntry]:
    """Return the messages of the conversation that a CLI would resume."""
    found = conversation(entries_of_objects(entries), compacted=True)
    return [entry for entry in found if entry.type in ("user", "assistant")]


def _time(entry: Entry) -> str:
    time = entry.get("timestamp")
    return time if isinstance(time, str) else ""
