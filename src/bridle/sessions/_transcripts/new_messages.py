"""Find the messages that a conversation has got since the last look.

A program that follows a conversation reads each entry of the transcript once.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from bridle._records.session_store import Entry
from bridle.messages._message import Message
from bridle.sessions._transcripts.transcript import (
    TranscriptEntry,
    conversation,
    entries_of_objects,
    is_in_tree,
)

_SHOWN = ("user", "assistant")


class NewMessages:
    """The messages of a transcript that grows. Each is returned once.

    The content of entries whose messages were returned is not kept.
    """

    def __init__(self) -> None:
        #: How many lines could not be read.
        self.damaged = 0
        self._entries: list[TranscriptEntry] = []
        self._returned: set[str | None] = set()
        # The uuids of the conversation as far as it was returned, and the last one of them. An
        # entry that follows it directly continues the conversation.
        self._known: set[str | None] = set()
        self._end: str | None = None
        # How many entries were looked at, and where those begin that may have messages to return.
        self._looked = 0

    def add(self, objects: Iterable[Entry]) -> None:
        """Add entries of the transcript, in its order."""
        for entry in entries_of_objects(objects):
            has_message = entry.type in _SHOWN and not entry.is_meta and not entry.is_sidechain
            needs_line = has_message or entry.type == "last-prompt"
            self.damaged += bool(entry.damage)
            self._entries.append(entry if needs_line else _outline(entry))

    def take(self) -> list[Message]:
        """Return the messages of the conversation that were not returned, in order."""
        if self._looked == len(self._entries):
            return []
        added = range(self._looked, len(self._entries))
        self._looked = len(self._entries)
        chosen = self._continuation(added)
        if chosen is None:
            chosen = self._whole()
        found: list[Message] = []
        for number in chosen:
            entry = self._entries[number]
            if not entry.raw_line or entry.type not in _SHOWN or entry.uuid in self._returned:
                continue
            self._returned.add(entry.uuid)
            if (message := entry.message) is not None:
                found.append(message)
            self._entries[number] = _outline(entry)
        return found

    def _continuation(self, added: range) -> list[int] | None:
        """Return the numbers of new entries that continue the conversation one after the other.

        Return None if the branch of the conversation has to be found anew.
        """
        found: list[int] = []
        for number in added:
            entry = self._entries[number]
            if entry.type == "last-prompt":
                if entry.raw.get("leafUuid") not in self._known:
                    return None
            elif not entry.is_sidechain and is_in_tree(entry):
                if entry.parent_uuid is None or entry.parent_uuid != self._end:
                    return None
                self._end = entry.uuid
                self._known.add(entry.uuid)
                found.append(number)
        return found

    def _whole(self) -> list[int]:
        """Return the numbers of the entries of the conversation."""
        branch = conversation(self._entries)
        self._known = {entry.uuid for entry in branch}
        nodes = (one for one in reversed(self._entries) if not one.is_sidechain and is_in_tree(one))
        last = next(nodes, None)
        self._end = last.uuid if last is not None and last.uuid in self._known else None
        numbers = {id(entry): number for number, entry in enumerate(self._entries)}
        return [numbers[id(entry)] for entry in branch]


def _outline(entry: TranscriptEntry) -> TranscriptEntry:
    return structs.replace(entry, raw_line=b"", timestamp=None)
