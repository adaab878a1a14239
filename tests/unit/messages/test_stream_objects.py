"""The API's own stream inside `stream_event` lines."""

from __future__ import annotations

import msgspec
import pytest

from bridle._engine.wire.codec import decode_line
from bridle.content import TextBlock, ToolUseBlock, UnknownBlock
from bridle.messages import (
    ApiMessage,
    CitationsDelta,
    CompactionDelta,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Delta,
    InputJsonDelta,
    MessageDelta,
    MessageStart,
    MessageStop,
    SignatureDelta,
    StopDelta,
    StreamError,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    UnknownDelta,
    UnknownStreamEvent,
    Usage,
    WireEvent,
)
from bridle.messages._stream_objects import ApiEvent


def read(event: object, **members: object) -> StreamEvent:
    message = decode_line(msgspec.json.encode({"type": "stream_event", "event": event, **members}))
    assert isinstance(message, StreamEvent)
    return message


EVENTS: list[tuple[dict[str, object], WireEvent]] = [
    (
        {"type": "message_start", "message": {"id": "m", "content": []}},
        MessageStart(ApiMessage(id="m")),
    ),
    (
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        ContentBlockStart(TextBlock(""), 1),
    ),
    (
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "a"}},
        ContentBlockDelta(TextDelta("a"), 1),
    ),
    ({"type": "content_block_stop", "index": 1}, ContentBlockStop(1)),
    (
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}},
        MessageDelta(StopDelta(stop_reason="end_turn"), Usage()),
    ),
    ({"type": "message_stop"}, MessageStop()),
    (
        {"type": "error", "error": {"type": "overloaded_error"}},
        StreamError({"type": "overloaded_error"}),
    ),
    ({"type": "ping", "n": 1}, UnknownStreamEvent("ping", {"type": "ping", "n": 1})),
]
DELTAS: list[tuple[dict[str, object], Delta]] = [
    ({"type": "text_delta", "text": "a"}, TextDelta("a")),
    ({"type": "thinking_delta", "thinking": "a"}, ThinkingDelta("a")),
    ({"type": "signature_delta", "signature": "a"}, SignatureDelta("a")),
    ({"type": "input_json_delta", "partial_json": '{"a'}, InputJsonDelta('{"a')),
    ({"type": "citations_delta", "citation": {"url": "u"}}, CitationsDelta({"url": "u"})),
    (
        {"type": "compaction_delta", "content": "a", "encrypted_content": None},
        CompactionDelta("a"),
    ),
    ({"type": "new_delta", "x": 1}, UnknownDelta("new_delta", {"type": "new_delta", "x": 1})),
]


@pytest.mark.parametrize(("wire", "event"), EVENTS)
@pytest.mark.requirement("S042")
def test_an_event_is_read_into_its_class(wire: dict[str, object], event: WireEvent) -> None:
    message = read(wire, uuid="u", api_message_id="m")
    assert (message.event, message.misfits) == (event, ())
    assert (message.uuid, message.api_message_id) == ("u", "m")
    assert message.raw["event"] == wire
    assert decode_line(msgspec.json.encode(StreamEvent(event).raw)) == StreamEvent(event)


@pytest.mark.parametrize(("wire", "delta"), DELTAS)
def test_a_delta_is_read_into_its_class(wire: dict[str, object], delta: Delta) -> None:
    message = read({"type": "content_block_delta", "index": 0, "delta": wire})
    assert isinstance(message.event, ContentBlockDelta)
    assert (message.event.delta, message.misfits) == (delta, ())


def test_the_tables_above_name_every_class() -> None:
    assert {type(event) for _, event in EVENTS} == set(ApiEvent.__subclasses__())
    assert {type(delta) for _, delta in DELTAS} == set(Delta.__subclasses__())


@pytest.mark.parametrize(
    ("event", "text", "thinking"),
    [
        (ContentBlockDelta(TextDelta("a")), "a", None),
        (ContentBlockDelta(ThinkingDelta("b")), None, "b"),
        (ContentBlockDelta(InputJsonDelta("c")), None, None),
        (ContentBlockStop(), None, None),
    ],
)
def test_the_shortcuts_give_the_added_text_or_none(
    event: WireEvent, text: str | None, thinking: str | None
) -> None:
    message = StreamEvent(event)
    assert (message.text_delta, message.thinking_delta) == (text, thinking)


def test_blocks_inside_events_know_their_place() -> None:
    block: dict[str, object] = {"type": "tool_use", "id": "t", "name": "n", "input": {}, "new": 1}
    start = read({"type": "content_block_start", "index": 0, "content_block": block}).event
    assert isinstance(start, ContentBlockStart)
    assert (start.content_block, start.content_block.raw) == (ToolUseBlock("t", "n", {}), block)
    first = read({"type": "message_start", "message": {"content": [block]}}).event
    assert isinstance(first, MessageStart)
    assert first.message.content[0].raw == block


@pytest.mark.parametrize(
    ("wire", "event", "misfits"),
    [
        (5, UnknownStreamEvent("", 5), ("event",)),
        ({}, UnknownStreamEvent("", {}), ()),
        (
            {"type": "content_block_delta", "index": "x"},
            ContentBlockDelta(UnknownDelta("", None)),
            ("event.delta", "event.index"),
        ),
        (
            {"type": "content_block_delta", "delta": {"type": "text_delta", "text": 5}},
            ContentBlockDelta(TextDelta("")),
            ("event.delta.text",),
        ),
        (
            {"type": "content_block_start", "content_block": {"type": "new"}},
            ContentBlockStart(UnknownBlock("new", {"type": "new"})),
            (),
        ),
        (
            {"type": "content_block_start", "content_block": 5},
            ContentBlockStart(UnknownBlock("", 5)),
            ("event.content_block",),
        ),
        ({"type": "message_delta", "delta": 5}, MessageDelta(), ("event.delta",)),
    ],
)
def test_an_event_that_does_not_fit_keeps_its_class(
    wire: object, event: WireEvent, misfits: tuple[str, ...]
) -> None:
    message = read(wire)
    assert (message.event, message.misfits) == (event, misfits)
