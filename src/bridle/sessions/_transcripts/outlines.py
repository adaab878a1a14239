"""Read transcript files without keeping the content of their entries in memory.

A copy of a conversation needs all entries at once, to find its branch, and their content one by
one.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from bridle._records.raw_line import JsonObject, parse_json
from bridle.sessions._transcripts.transcript import TranscriptEntry, entry_of_line


class OutlinedEntry(TranscriptEntry, frozen=True, kw_only=True):
    """An entry whose content is in its file. ``raw_line`` is empty, and ``raw`` blocks."""

    outlines: Outlines
    path: Path
    #: The place of the line in the file.
    start: int
    size: int

    @property
    def raw(self) -> JsonObject:
        """The JSON object of the line, empty if it is damaged. Each access reads it again.

        Raises:
            OSError: the file cannot be read, or another program has changed it.
        """
        return {} if self.damage else self.outlines.read_object(self.path, self.start, self.size)


class Outlines:
    """Opens the files of outlined entries. One is open at a time. Everything here blocks.

    The CLI may append to the files meanwhile.
    """

    def __init__(self) -> None:
        self._open: tuple[Path, BinaryIO] | None = None

    def __enter__(self) -> Outlines:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open is not None:
            self._open[1].close()

    def read(self, path: Path) -> tuple[OutlinedEntry, ...]:
        """Return the entries of a file.

        Raises:
            OSError: the file cannot be read, is a link, or is not a regular file.
        """
        return tuple(self._entries(path))

    def _entries(self, path: Path) -> Iterator[OutlinedEntry]:
        # Most entries name the one before them, by an equal text that need not be kept twice.
        uuids: dict[str | None, str | None] = {}
        file = self._file(path)
        file.seek(0)
        end = 0
        for line in file:
            start, end = end, end + len(line)
            stripped = line.strip(b"\r\n")
            if not stripped.strip():
                continue
            entry = entry_of_line(stripped)
            uuids[entry.uuid] = entry.uuid
            yield OutlinedEntry(
                outlines=self,
                path=path,
                start=start,
                size=len(line),
                raw_line=b"",
                type=sys.intern(entry.type),
                uuid=entry.uuid,
                parent_uuid=uuids.get(entry.parent_uuid, entry.parent_uuid),
                logical_parent_uuid=entry.logical_parent_uuid,
                damage=entry.damage,
                is_sidechain=entry.is_sidechain,
                is_meta=entry.is_meta,
                message_id=entry.message_id,
                tool_calls=entry.tool_calls,
                tool_results=entry.tool_results,
                is_cut_off=entry.is_cut_off,
            )

    def read_object(self, path: Path, start: int, size: int) -> JsonObject:
        """Return the JSON object of a line. Raises as `OutlinedEntry.raw`."""
        line = os.pread(self._file(path).fileno(), size, start)
        try:
            return cast(JsonObject, parse_json(line))
        except ValueError:
            raise OSError(f"another program has changed the file: {path}") from None

    def _file(self, path: Path) -> BinaryIO:
        if self._open is None or self._open[0] != path:
            if self._open is not None:
                self._open[1].close()
            self._open = None  # opening may fail
            self._open = path, os.fdopen(open_regular(path, os.O_RDONLY), "rb")
        return self._open[1]


def open_regular(path: Path, flags: int) -> int:
    """Open a regular file. A link is an error, and a pipe does not block.

    Raises:
        OSError: the file cannot be opened, is a link, or is not a regular file.
    """
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"not a regular file: {path}")
    return file
