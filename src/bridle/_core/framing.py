"""Framing: the CLI's bytes, as they come, to lines.

A line ends at byte 0x0A and nowhere else; one carriage return before it belongs to the ending;
empty lines are dropped. The rule of this file: what comes out depends on the bytes alone, never
on how they were cut into reads, and costs time linear in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from bridle._core.scan import LineIdentity, ShallowScan

MAX_LINE = 16 * 1024 * 1024
WARN_AT = 1024 * 1024

_SMALL_PIECE = 1024


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

    Sizes count a line without its ending. A line of `max_line` bytes passes; of a longer one only
    an `OversizedLine` remains. One `LongLine` precedes each line, or its report, that is longer
    than `warn_at`; there is none if `warn_at` is not below `max_line`, as so much is never held.
    """

    __slots__ = (
        "_max_line",
        "_pieces",
        "_returned",
        "_scan",
        "_size",
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
        if self._size + len(data) > self._unmeasured:
            return self._feed_measured(data)
        # The usual read: no line in it can pass a limit, so one split does nearly all the work.
        lines = data.split(b"\n")
        rest = lines.pop()
        if lines:
            returns = b"\r" in data
            if self._size:
                self._hold(lines[0])
                lines[0] = b"".join(self._pieces)
                returns = returns or lines[0].endswith(b"\r")
                self._start_line()
            if returns:
                lines = [line.removesuffix(b"\r") for line in lines]
            if b"" in lines:
                lines = [line for line in lines if line]
        if rest:
            self._hold(rest)
        return lines

    def finish(self) -> Sequence[Item]:
        """What is left at the end of the stream: nothing or one item. The framer is then empty."""
        item = self._end_line()
        if not item:
            return ()
        return (PartialLine(item) if isinstance(item, bytes) else item,)

    def _start_line(self) -> None:
        self._pieces: list[bytes | bytearray] = []
        self._size = 0
        self._returned = False
        self._warned = False
        self._scan: ShallowScan | None = None

    def _feed_measured(self, data: bytes) -> list[Item]:
        """`feed` for data in which some line may pass a limit."""
        items: list[Item] = []
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._grow_line(piece, items)
            item = self._end_line()
            if item:
                items.append(item)
        self._grow_line(rest, items)
        return items

    def _grow_line(self, piece: bytes, items: list[Item]) -> None:
        if not piece:
            return
        # A last carriage return does not count yet: it may be half of the line's ending.
        self._returned = piece.endswith(b"\r")
        if self._scan is not None:
            self._size += len(piece)
            self._scan.feed(piece)
            return
        self._hold(piece)
        size = self._size - self._returned
        if not self._warned and self._warn_at < min(size, self._max_line):
            self._warned = True
            items.append(LongLine(size))
        if size > self._max_line:
            self._discard()

    def _hold(self, piece: bytes) -> None:
        """Keep a piece of the line, copying only small ones: each object has its price too."""
        self._size += len(piece)
        pieces = self._pieces
        if len(piece) >= _SMALL_PIECE:
            pieces.append(piece)
        elif pieces and isinstance(pieces[-1], bytearray):
            pieces[-1] += piece
        else:
            pieces.append(bytearray(piece))

    def _discard(self) -> None:
        """From now on the line is only scanned."""
        self._scan = ShallowScan()
        for piece in self._pieces:
            self._scan.feed(piece)
        self._pieces.clear()

    def _end_line(self) -> bytes | OversizedLine:
        """The finished line without its ending (it may be empty), or the report in its place."""
        item: bytes | OversizedLine
        if self._scan is None:
            item = b"".join(self._pieces).removesuffix(b"\r")
        else:
            identity = msgspec.structs.asdict(self._scan.identity())
            item = OversizedLine(self._size - self._returned, **identity)
        self._start_line()
        return item
