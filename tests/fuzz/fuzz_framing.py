"""Fuzz target: arbitrary bytes in arbitrary reads, framed, and every line decoded.

    python tests/fuzz/fuzz_framing.py [libFuzzer options]   coverage-guided, needs atheris
    python tests/fuzz/fuzz_framing.py --check N             N random inputs, needs nothing

What may come of any input: the framer's own items, the same ones however the bytes are cut, and
for each line a message, a control frame or a `MalformedLine`. Anything else, exceptions above
all, is a finding.

The highest byte values of an input stand for whole `FRAGMENTS`, so that a single mutation can
make or break a frame.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import cycle

# How an input begins: the two limits of the framer, then the sizes of the reads, in turn.
LIMITS = 2
HEADER = LIMITS + 6

FRAGMENTS = [
    *(b"\n", b"\r\n", b"\r", b"\n\n", b"\\", b'"', b"\xff", b"\x00", b"\\ud800"),
    *("\u2028".encode(), "é".encode(), "😀".encode()),
    *(b"{", b"}", b"[", b"]", b",", b":", b"null", b"true", b"-1", b"1e999", b"NaN", b'""'),
    *(b'"type":', b'"subtype":', b'"request_id":', b'"request":{', b'"response":{', b'"uuid":'),
    *(b'"message":{"content":[', b'"event":{', b'"text"', b'"content":', b'"id":"x"'),
    *(b'"user"', b'"assistant"', b'"result"', b'"system"', b'"init"', b'"stream_event"'),
    *(b'"control_request"', b'"control_response"', b'"control_cancel_request"', b'"success"'),
    b'{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool"}}\n',
    b'{"type":"control_response","response":{"subtype":"error","request_id":"r","error":"e"}}\n',
    b'{"type":"assistant","message":{"content":[{"type":"text","text":"t"}]}}\n',
]
FIRST_FRAGMENT = 256 - len(FRAGMENTS)
MEANING = [*(bytes([byte]) for byte in range(FIRST_FRAGMENT)), *FRAGMENTS]


def load_target() -> Callable[[bytes], None]:
    """The target, with Bridle imported only now so that the import can be instrumented."""
    from bridle._engine.wire.codec import decode_line
    from bridle._engine.wire.framing import Item, LineFramer, LongLine, OversizedLine, PartialLine
    from bridle.controls import ControlCancel, ControlRequest, ControlResponse
    from bridle.messages import MalformedLine, Message

    permitted = (Message, ControlRequest, ControlResponse, ControlCancel, MalformedLine)

    def items(reads: Sequence[bytes], max_line: int, warn_at: int) -> list[Item]:
        framer = LineFramer(max_line=max_line, warn_at=warn_at)
        found = [item for read in reads for item in framer.feed(read)]
        return [*found, *framer.finish()]

    def target(data: bytes) -> None:
        header = data[:HEADER].ljust(HEADER, b"\x10")
        stream = b"".join(MEANING[byte] for byte in data[HEADER:])
        # Small limits are always passed, large ones never; both must be met often.
        max_line, warn_at = (16 * limit for limit in header[:LIMITS])
        found = items(reads_of(stream, header[LIMITS:]), max_line, warn_at)
        whole = items([stream], max_line, warn_at)
        # How far a long line had come when it was reported is up to the reads.
        assert [item for item in found if not isinstance(item, LongLine)] == [
            item for item in whole if not isinstance(item, LongLine)
        ], "items depend on the reads"
        for item in found:
            if isinstance(item, (LongLine, OversizedLine)):
                continue
            line = item.line if isinstance(item, PartialLine) else item
            content = line.removesuffix(b"\n").removesuffix(b"\r")
            assert len(content) <= max_line
            assert b"\n" not in content
            outcome: object = decode_line(line)
            assert isinstance(outcome, permitted), f"{outcome!r} from {line!r}"

    return target


def reads_of(stream: bytes, sizes: bytes) -> list[bytes]:
    reads: list[bytes] = []
    start = 0
    for size in cycle(sizes):
        if start >= len(stream):
            break
        reads.append(stream[start : start + size + 1])
        start += size + 1
    return reads


def check(count: int) -> None:
    """Run the target on `count` random inputs, the same ones every time."""
    target = load_target()
    source = random.Random(count)
    for _ in range(count):
        fragments = source.choices(range(FIRST_FRAGMENT, 256), k=source.randrange(60))
        target(source.randbytes(HEADER) + bytes(fragments))


def explore(arguments: list[str]) -> None:
    """Hand over to the fuzzer, which does not return."""
    atheris = import_module("atheris")
    with atheris.instrument_imports(include=["bridle"]):
        target = load_target()
    atheris.Setup(arguments, target)
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        check(int(sys.argv[2]))
    else:
        explore(sys.argv)
