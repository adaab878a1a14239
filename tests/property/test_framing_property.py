"""Framing and the shallow scan for arbitrary bytes, cut anywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from bridle._engine.wire.framing import Item, LineFramer, LongLine, OversizedLine, PartialLine
from bridle._engine.wire.oversized import LineIdentity, ShallowScan

FUZZ_TARGET = Path(__file__).parents[1] / "fuzz" / "fuzz_framing.py"

IDENTIFIERS = ("type", "subtype", "request_id", "uuid", "user_message_uuid", "parent_tool_use_id")
CONTROL = ("control_request", "control_response", "control_cancel_request")
KEYS = (*IDENTIFIERS, "request", "response", "message")

# Newlines and returns must be frequent, or nothing ever meets them.
streams = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n", b"{", b'"type":"t"', b"}", b"\xff", b"xyz"])
    | st.binary(max_size=12)
).map(b"".join)
limits = st.integers(1, 64)


@st.composite
def cuts(draw: st.DrawFn, whole: bytes) -> list[bytes]:
    """`whole` in pieces, some of them empty."""
    places = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=20)))
    return [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]


def run(framer: LineFramer, chunks: Sequence[bytes]) -> list[Item]:
    items = [item for chunk in chunks for item in framer.feed(chunk)]
    return [*items, *framer.finish()]


def without_progress(items: Sequence[Item]) -> list[Item]:
    """How much had come when a warning was due is the one thing that chunking may decide."""
    return [LongLine(0) if isinstance(item, LongLine) else item for item in items]


def identify(line: bytes, pieces: Sequence[bytes] | None = None) -> LineIdentity:
    scan = ShallowScan()
    for piece in pieces or [line]:
        scan.feed(piece)
    return scan.identity()


def reference(stream: bytes, max_line: int, warn_at: int) -> list[Item]:
    """The contract of `LineFramer`, said the slow way."""
    items: list[Item] = []
    *ended, last = stream.split(b"\n")
    for number, line in enumerate([*ended, last]):
        content = line.removesuffix(b"\r")
        if warn_at < max_line and len(content) > warn_at:
            items.append(LongLine(0))
        if len(content) > max_line:
            items.append(OversizedLine(len(content), **identity_fields(identify(content))))
        elif content:
            items.append(line + b"\n" if number < len(ended) else PartialLine(content))
    return items


def identity_fields(identity: LineIdentity) -> dict[str, str | None]:
    return {name: getattr(identity, name) for name in IDENTIFIERS}


@given(st.data(), streams)
def test_any_chunking_gives_the_same_items_as_one_chunk(data: st.DataObject, stream: bytes) -> None:
    """R170, R171, R172, S010."""
    chunks = data.draw(cuts(stream))
    assert run(LineFramer(), chunks) == run(LineFramer(), [stream])


whole_lines = st.binary(min_size=1, max_size=12).filter(
    lambda line: b"\n" not in line and not line.endswith(b"\r")
)
endings = st.sampled_from([(b"\n", b""), (b"\r\n", b""), (b"\n", b"\r\n\n")])
"""Of a line, and the empty ones after it."""


@given(st.data(), st.lists(st.tuples(whole_lines, endings)))
def test_nothing_is_lost_added_or_moved(
    data: st.DataObject, written: list[tuple[bytes, tuple[bytes, bytes]]]
) -> None:
    """R169, R172, S010: the lines are those that were written."""
    stream = b"".join(line + ending + empty for line, (ending, empty) in written)
    lines = [line + ending for line, (ending, _) in written]
    assert run(LineFramer(), data.draw(cuts(stream))) == lines


@given(st.data(), streams, limits, limits)
def test_limits_hold_as_the_reference_says(
    data: st.DataObject, stream: bytes, max_line: int, warn_at: int
) -> None:
    """R174, R175."""
    chunks = data.draw(cuts(stream))
    items = run(LineFramer(max_line=max_line, warn_at=warn_at), chunks)
    assert without_progress(items) == reference(stream, max_line, warn_at)
    assert all(warn_at < item.size for item in items if isinstance(item, LongLine))


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.sampled_from([*KEYS, *CONTROL, '"', "\\", '\\"', "}{][,:"])
)
keys = st.sampled_from(KEYS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(keys, values, max_size=8)
frames = st.tuples(objects, st.sampled_from([*CONTROL, "user"])).map(
    lambda drawn: {**drawn[0], "type": drawn[1]}
)


def looked_up(value: dict[str, object]) -> LineIdentity:
    """The identity of a line that could be decoded whole."""

    def text(holder: object, key: str) -> str | None:
        value = cast("dict[str, object]", holder).get(key) if isinstance(holder, dict) else None
        return value if isinstance(value, str) else None

    found = {name: text(value, name) for name in IDENTIFIERS}
    if found["type"] == "control_request":
        found["subtype"] = text(value.get("request"), "subtype")
    elif found["type"] == "control_response":
        body = value.get("response")
        found["subtype"] = text(body, "subtype")
        found["request_id"] = text(body, "request_id") or found["request_id"]
    return LineIdentity(**found)


@given(
    st.data(),
    objects | frames,
    st.booleans(),
    st.sampled_from([",", ", ", "\t,\r"]),
    st.sampled_from([":", ": ", " : "]),
)
def test_the_scan_finds_what_decoding_would(
    data: st.DataObject, value: dict[str, object], ascii_only: bool, comma: str, colon: str
) -> None:
    """R175: any key order, any spacing, any escapes, any chunking."""
    line = json.dumps(value, ensure_ascii=ascii_only, separators=(comma, colon)).encode()
    assert identify(line, data.draw(cuts(line))) == looked_up(value)


# Tokens in any order: nearly always malformed, seldom by much.
scraps = st.lists(
    st.sampled_from(
        ["{", "}", "[", "]", ",", ":", '"', "\\", "1", "\t", "é", '"x"', '{"type":"a"}']
    )
    | st.sampled_from([*KEYS, *CONTROL]).map(json.dumps)
).map(lambda tokens: "".join(tokens).encode())


@given(st.data(), scraps | st.binary())
def test_the_scan_of_anything_is_total_and_does_not_depend_on_chunking(
    data: st.DataObject, line: bytes
) -> None:
    """R178."""
    assert identify(line, data.draw(cuts(line))) == identify(line)


def test_the_fuzz_target_accepts_random_input() -> None:
    """R177, R178: every line decodes to a permitted outcome; the target itself works."""
    done = subprocess.run(
        [sys.executable, FUZZ_TARGET, "--check", "500"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
