"""Read what a CLI adds to its transcript files. Everything here blocks: call it in a thread."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from bridle._records.session_store import Entry
from bridle.sessions._transcripts.files import read_file
from bridle.sessions._transcripts.transcript import objects_of_bytes


class Addition(NamedTuple):
    """Entries that were added to a transcript file."""

    entries: list[Entry]
    #: Their size in bytes.
    size: int
    #: The position in the file after them.
    end: int


class TranscriptTail:
    """A transcript file, and the position up to which it was copied.

    Reading does not change the position, so that a reading that is cancelled loses nothing.
    """

    def __init__(self, path: str, position: int = 0) -> None:
        self.path = path
        self.position = position

    def read(self) -> Addition:
        """Return the entries after the position.

        The last line is left out until it is complete. A file that cannot be read has no entries.
        """
        lines = self._lines()
        return Addition(objects_of_bytes(lines), len(lines), self.position + len(lines))

    def read_after(self, uuid: str | None) -> Addition:
        """Return the entries after the position that have a uuid and come after this uuid.

        None, or a uuid that is not there, returns all of them. Entries without a uuid are left out,
        because a store cannot tell whether it has them.
        """
        lines = self._lines()
        found = -1 if uuid is None else lines.rfind(f'"uuid":"{uuid}"'.encode())
        rest = lines[lines.find(b"\n", found) + 1 :] if found >= 0 else lines
        entries = [entry for entry in objects_of_bytes(rest) if "uuid" in entry]
        return Addition(entries, len(rest), self.position + len(lines))

    def _lines(self) -> bytes:
        try:
            data = read_file(Path(self.path), self.position)
        except OSError:
            return b""
        return data[: data.rfind(b"\n") + 1]


def size_of(path: str) -> int:
    """Return the size of a file; 0 if it does not exist."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
