"""Framing: the CLI's bytes, as they come, to lines.

A line ends at byte 0x0A and nowhere else, and keeps its ending, which JSON allows: taking it off
would mean copying the line. Empty lines are dropped. The rule of this file: what comes out depends
on the bytes alone, never on how they were cut into reads, and costs time linear in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import TypeAlias

import msgspec

from bridle._core.oversized import LineIdentity, ShallowScan

MAX_LINE = 16 * 1024 * 1024
WARN_AT = 1024 * 1024

_SMALL_PIECE = 1024


def _cut(data: bytes) -> list[bytes]:
    """Cut behind each newline. A file in memory does that many times faster than `split`."""
    return BytesIO(data).readlines() if 0x0A in data else [data]


_EMPTY = (b"\n", b"\r\n")


class LongLine(msgspec.Struct, frozen=True):
    """A line has grown past the warning size; the line itself, or its report, follows.

    `size` is how much of it had come by then.
    """

    size: int


class OversizedLine(LineIdentity, frozen=True):
    """Stands for a line over the limit, which was discarded: its size and what it was."""

    size: int


class PartialLine(msgspec.Struct, frozen=True):
    """What followed the last newline at the end of the stream: a whole line or a cut one."""

    line: bytes


Item: TypeAlias = bytes | LongLine | OversizedLine | PartialLine


class LineFramer:
    """Cuts a byte stream into lines; reports stand among them where they belong.

    Sizes count a line without its ending: a newline, and a carriage return before it. A line of
    `max_line` bytes passes; of a longer one only an `OversizedLine` remains. One `LongLine`
    precedes each line, or its report, that is longer than `warn_at`; there is none if `warn_at` is
    not below `max_line`, as so much is never held.
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
        """The lines that `data` completes, as `bytes`, and any reports, in stream order."""
        if self._held + len(data) > self._unmeasured:
            return self._feed_measured(data)
        # No line in it can pass a limit, and most reads are one line, neither more nor less.
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
        """What is left at the end of the stream: nothing or one item. The framer is then empty."""
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
        """`feed` for data in which some line may pass a limit."""
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
        """Keep a piece of the line, copying only small ones: each object has its price too."""
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
        """The size of the line so far, less what is, or may yet prove to be, its ending."""
        tail = self._tail.removesuffix(b"\n").removesuffix(b"\r")
        return self._held - len(self._tail) + len(tail)

    def _discard(self) -> None:
        """From now on the line is only scanned."""
        self._scan = ShallowScan()
        for piece in self._pieces:
            self._scan.feed(piece)
        self._pieces.clear()

    def _end_line(self) -> bytes | OversizedLine:
        """The finished line (it may be empty), or the report in its place."""
        item: bytes | OversizedLine
        if self._scan is None:
            item = b"".join(self._pieces)
        else:
            identity = msgspec.structs.asdict(self._scan.identity())
            item = OversizedLine(self._content, **identity)
        self._start_line()
        return item
