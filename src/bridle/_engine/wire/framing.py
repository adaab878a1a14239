"""Split the CLI's bytes into lines.

A line ends only at byte 0x0A. It keeps its line ending, which JSON allows, because removing it
would copy the line. Empty lines are dropped. The output depends only on the bytes, not on how they
were split into reads, and the cost is linear in the number of bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import TypeAlias

import msgspec

from bridle._engine.wire.oversized import LineIdentity, ShallowScan

MAX_LINE = 16 * 1024 * 1024
WARN_AT = 1024 * 1024

_SMALL_PIECE = 1024


def _cut(data: bytes) -> list[bytes]:
    """Split after each newline. `BytesIO.readlines` is many times faster than `split`."""
    return BytesIO(data).readlines() if 0x0A in data else [data]


_EMPTY = (b"\n", b"\r\n")


class LongLine(msgspec.Struct, frozen=True):
    """A line has grown past the warning size. The line itself, or its report, follows.

    `size` is the number of bytes received by then.
    """

    size: int


class OversizedLine(LineIdentity, frozen=True):
    """Replaces a line over the limit, which was discarded: its size and identity."""

    size: int


class PartialLine(msgspec.Struct, frozen=True):
    """The bytes after the last newline at the end of the stream: a whole line or a part of one."""

    line: bytes


Item: TypeAlias = bytes | LongLine | OversizedLine | PartialLine


class LineFramer:
    """Split a byte stream into lines. A report appears at the position of its line.

    Sizes count a line without its ending: a newline, and a carriage return before it. A line of
    `max_line` bytes passes. A longer line is replaced by an `OversizedLine`. One `LongLine`
    precedes each line, or its report, that is longer than `warn_at`. There is none if `warn_at`
    is not below `max_line`, because such a line is never held.
    """

    __slots__ = (
        "_held",
        "_max_line",
        "_pieces",
        "_scan",
        "_tail",
        "_unmeasured",
        "_warn_at",
        "_warned",
    )

    def __init__(self, max_line: int = MAX_LINE, warn_at: int = WARN_AT) -> None:
        self._max_line = max_line
        self._warn_at = warn_at
        self._unmeasured = min(max_line, warn_at)
        self._start_line()

    def feed(self, data: bytes) -> Sequence[Item]:
        """Return the lines that `data` completes, as `bytes`, and any reports, in stream order."""
        if self._held + len(data) > self._unmeasured:
            return self._feed_measured(data)
        # No line here can pass a limit, and most reads consist of exactly one line.
        if not self._held and data.find(b"\n") + 1 == len(data) > 2:
            return [data]
        lines = _cut(data)
        rest = lines.pop() if lines and not data.endswith(b"\n") else b""
        if lines and self._held:
            self._hold(lines[0])
            lines[0] = b"".join(self._pieces)
            self._start_line()
        if rest:
            self._hold(rest)
        if b"\n" in lines or b"\r\n" in lines:
            return [line for line in lines if line not in _EMPTY]
        return lines

    def finish(self) -> Sequence[Item]:
        """Return the rest at the end of the stream: no item or one. Empties the framer."""
        item = self._end_line()
        if isinstance(item, OversizedLine):
            return (item,)
        line = item.removesuffix(b"\r")
        return (PartialLine(line),) if line else ()

    def _start_line(self) -> None:
        self._pieces: list[bytes | bytearray] = []
        # Bytes of the line that has begun and not ended.
        self._held = 0
        # The last bytes, which may belong to the ending.
        self._tail = b""
        self._warned = False
        self._scan: ShallowScan | None = None

    def _feed_measured(self, data: bytes) -> list[Item]:
        """Do the work of `feed` for data in which a line may pass a limit."""
        items: list[Item] = []
        for piece in _cut(data):
            self._grow_line(piece, items)
            if piece.endswith(b"\n") and (item := self._end_line()) not in _EMPTY:
                items.append(item)
        return items

    def _grow_line(self, piece: bytes, items: list[Item]) -> None:
        if self._scan is not None:
            self._scan.feed(piece)
            self._measure(piece)
            return
        self._hold(piece)
        size = self._content
        if not self._warned and self._warn_at < min(size, self._max_line):
            self._warned = True
            items.append(LongLine(size))
        if size > self._max_line:
            self._discard()

    def _hold(self, piece: bytes) -> None:
        """Keep a piece of the line. Copy only small pieces, to limit the number of objects."""
        self._measure(piece)
        pieces = self._pieces
        if len(piece) >= _SMALL_PIECE:
            pieces.append(piece)
        elif pieces and isinstance(pieces[-1], bytearray):
            pieces[-1] += piece
        else:
            pieces.append(bytearray(piece))

    def _measure(self, piece: bytes) -> None:
        self._held += len(piece)
        self._tail = (self._tail + piece[-2:])[-2:]

    @property
    def _content(self) -> int:
        """Return the size of the line so far, without its ending or a possible part of it."""
        tail = self._tail.removesuffix(b"\n").removesuffix(b"\r")
        return self._held - len(self._tail) + len(tail)

    def _discard(self) -> None:
        """Drop the content of the line and only scan it from now on."""
        self._scan = ShallowScan()
        for piece in self._pieces:
            self._scan.feed(piece)
        self._pieces.clear()

    def _end_line(self) -> bytes | OversizedLine:
        """Return the finished line (it may be empty), or the report in its place."""
        item: bytes | OversizedLine
        if self._scan is None:
            item = b"".join(self._pieces)
        else:
            identity = msgspec.structs.asdict(self._scan.identity())
            item = OversizedLine(self._content, **identity)
        self._start_line()
        return item
