"""The drop-in makes the same messages as the official SDK, from the lines of real CLIs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk._internal.message_parser import parse_message

from bridle._engine.wire.codec import decode_line
from bridle.compat.claude_agent_sdk._parsing import parse, parse_alike
from bridle.messages import Message

GOLDEN = Path(__file__).parent / "golden"
RECORDINGS = sorted(str(path.relative_to(GOLDEN)) for path in GOLDEN.rglob("*.ndjson"))
#: Lines that the official SDK handles before it makes messages.
CONTROLS = ("control_request", "control_response", "control_cancel_request", "keep_alive")


@cache
def lines_of(recording: str) -> tuple[str, ...]:
    entries = map(json.loads, (GOLDEN / recording).read_text("utf-8").splitlines())
    lines = (entry["line"] for entry in entries if entry["dir"] == "out")
    return tuple(line for line in lines if json.loads(line)["type"] not in CONTROLS)


def shown(message: Any) -> tuple[str, dict[str, Any]] | None:
    """Return the class and the fields of a message of either package."""
    return None if message is None else (type(message).__name__, asdict(message))


def decoded(recording: str) -> Iterator[tuple[str, Message]]:
    for line in lines_of(recording):
        message = decode_line(line.encode())
        assert isinstance(message, Message)
        yield line, message


@pytest.mark.parametrize("recording", RECORDINGS)
def test_a_line_becomes_the_message_of_the_official_sdk(recording: str) -> None:
    """Also where many messages of one kind are made at once."""
    for line, message in decoded(recording):
        official = shown(parse_message(json.loads(line)))
        assert shown(parse(message)) == official
        if (alike := parse_alike([message])) is not None:
            assert [shown(one) for one in alike] == [official]
