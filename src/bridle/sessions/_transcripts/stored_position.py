"""Know up to which entry a session has stored its transcript, to notice entries of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bridle._records.session_store import Entry
from bridle.sessions._transcripts.transcript import is_linked


class StoredPosition:
    """The last entry of a transcript that a session has loaded from its store, or stored there."""

    def __init__(self) -> None:
        #: The uuid of that entry. None if there is none.
        self.last: str | None = None
        # What the session has sent, and the store may have after that entry. With a number, in the
        # order of sending.
        self._sent: dict[str, int] = {}
        self._count = 0
        self._number = 0

    def loaded(self, stored: Iterable[Entry]) -> None:
        """Note that the session goes on from these entries."""
        for uuid in _uuids(stored):
            self.last = uuid

    def sending(self, entries: Iterable[Entry]) -> None:
        """Note entries that are about to be sent to the store."""
        for uuid in _uuids(entries):
            if uuid not in self._sent:
                self._count += 1
                self._sent[uuid] = self._count

    def stored(self, entries: Iterable[Entry]) -> None:
        """Note that the store has entries that were sent.

        An entry may be sent again after later ones, because the store had rejected it.
        """
        for uuid in _uuids(entries):
            if self._sent.get(uuid, 0) > self._number:
                self._number = self._sent.pop(uuid)
                self.last = uuid

    def is_passed(self, stored: Iterable[Entry]) -> bool:
        """Return whether a store has entries of others after the position."""
        uuids = list(_uuids(stored))
        if self.last in uuids:
            del uuids[: len(uuids) - uuids[::-1].index(self.last)]
        return any(uuid not in self._sent for uuid in uuids)


def _uuids(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the uuids of messages. Titles and the like may be changed by others."""
    return (str(entry["uuid"]) for entry in entries if is_linked(entry))
