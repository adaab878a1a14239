"""Replies of real CLIs to control requests fit their classes, and nothing in them is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bridle._engine.outgoing.operations import OPERATIONS
from bridle._engine.wire.codec import decode_reply
from bridle._records.raw_line import Sourced
from bridle.controls import Reply

RECORDINGS = sorted((Path(__file__).parent / "golden").rglob("control_operations.ndjson"))


def replies(recording: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the subtype and the payload of every successful request."""
    asked: dict[str, str] = {}
    for entry in map(json.loads, recording.read_text("utf-8").splitlines()):
        if entry["dir"] not in ("in", "out"):
            continue
        frame = json.loads(entry["line"])
        if entry["dir"] == "in" and frame["type"] == "control_request":
            asked[frame["request_id"]] = frame["request"]["subtype"]
        elif entry["dir"] == "out" and frame["type"] == "control_response":
            response = frame["response"]
            if response["subtype"] == "success":
                yield asked[response["request_id"]], response.get("response") or {}


CASES = [
    pytest.param(subtype, payload, id=f"{recording.parent.name} {subtype}")
    for recording in RECORDINGS
    for subtype, payload in replies(recording)
    if subtype in OPERATIONS and issubclass(OPERATIONS[subtype].reply, Reply)
]


def parts(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[Any, Sourced]]:
    """Yield a reply and all its parts, each with its path in the JSON."""
    if isinstance(value, Sourced):
        yield path, value
    if isinstance(value, msgspec.Struct):
        for info in msgspec.structs.fields(value):
            yield from parts(getattr(value, info.name), (*path, info.encode_name))
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from parts(item, (*path, index))


def test_there_are_recordings_of_every_version() -> None:
    assert [path.parent.name for path in RECORDINGS] == ["2.1.197", "2.1.325", "2.1.326"]


@pytest.mark.parametrize(("subtype", "payload"), CASES)
def test_a_recorded_reply_fits_its_class_and_keeps_everything(
    subtype: str, payload: dict[str, Any]
) -> None:
    reply = decode_reply(OPERATIONS[subtype].reply, payload)
    assert isinstance(reply, Reply)
    assert reply.misfits == ()
    for path, part in parts(reply):
        expected: Any = payload
        for step in path:
            expected = expected[step] if not isinstance(expected, dict) else expected.get(step)
        if expected is not None:  # otherwise the part is a default
            assert part.raw == expected
