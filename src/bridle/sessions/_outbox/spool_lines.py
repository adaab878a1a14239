"""Write and read the lines of spool files: a mark, and a batch of entries as JSON."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from bridle._records.session_store import SessionKey

WAITING, DONE, REJECTED = b"+", b"-", b"!"


class SpoolLine(Struct):
    """The JSON of one batch."""

    key: SessionKey
    entries: list[dict[str, object]]
    #: The message of the transcript before the entries, if it is known.
    after: str | None = None


_decode = msgspec.json.Decoder(SpoolLine).decode


def decode_line(line: bytes) -> SpoolLine:
    """Decode a batch. Raises `msgspec.DecodeError`."""
    try:
        return _decode(line)
    except msgspec.DecodeError:  # msgspec rejects half a surrogate pair
        try:
            return msgspec.convert(json.loads(line), SpoolLine)
        except (ValueError, RecursionError):
            raise msgspec.DecodeError("not a batch") from None


def encode_line(mark: bytes, key: SessionKey, bodies: Sequence[str], after: str | None) -> bytes:
    """Encode a batch. ``bodies`` are its entries as JSON."""
    named, after = json.dumps(msgspec.to_builtins(key)), json.dumps(after)
    return mark + f'{{"key":{named},"after":{after},"entries":[{",".join(bodies)}]}}\n'.encode()


def write_lines(descriptor: int, position: int, lines: Sequence[bytes]) -> None:
    """Write lines at a position, and wait until they are on the disk."""
    data = b"".join(lines)
    written = 0
    try:
        while written < len(data):
            written += os.pwrite(descriptor, data[written:], position + written)
        os.fsync(descriptor)
    except OSError:  # for example because the disk is full: leave no part of a line
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, position)
        raise


def mark_done(descriptor: int, position: int) -> None:
    """Mark the line at a position as done. The file keeps the time when entries were added."""
    added = os.fstat(descriptor).st_mtime_ns
    os.pwrite(descriptor, DONE, position)
    set_time(descriptor, added)


def set_time(descriptor: int, time: int) -> None:
    """Set when a file was changed, in nanoseconds."""
    os.utime(descriptor, ns=(time, time))
