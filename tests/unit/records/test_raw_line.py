"""The wire behind a value: raw, paths, misfits, copies."""

from __future__ import annotations

import copy
import gc
import json
import math
import pickle
import sys
from collections.abc import Callable
from types import FrameType

import msgspec
import pytest

from bridle._engine.wire.codec import decode_line
from bridle._records.raw_line import (
    line_size,
    lines_of,
    parse_json,
    repair_json,
    spell_path,
    to_wire,
)
from bridle.content import TextBlock, ToolResultBlock, UnknownBlock
from bridle.messages import (
    AssistantMessage,
    ContentBlockStart,
    KeepAlive,
    Message,
    ResultMessage,
    StreamEvent,
    UserMessage,
)

LINE = b'{"type":"user","message":{"role":"user","content":[{"type":"text","text":"a","new":1}]}}'


def read(line: bytes) -> Message:
    message = decode_line(line)
    assert isinstance(message, Message)
    return message


def test_raw_is_what_the_line_says_unknown_members_included() -> None:
    assert read(b'{"type":"keep_alive","new":[1]}').raw == {"type": "keep_alive", "new": [1]}


def test_raw_is_made_from_the_fields_of_a_value_built_by_hand() -> None:
    assert KeepAlive(uuid="u").raw == {"type": "keep_alive", "uuid": "u"}


def test_a_replaced_message_no_longer_claims_to_be_the_wires() -> None:
    message = read(b'{"type":"keep_alive","uuid":"u","new":1}')
    assert msgspec.structs.replace(message, uuid="v").raw == {"type": "keep_alive", "uuid": "v"}


def test_equality_and_repr_ignore_the_source() -> None:
    message = read(b'{"type":"keep_alive","uuid":"u","new":1}')
    assert message == KeepAlive(uuid="u")
    assert repr(message) == "KeepAlive(uuid='u')"


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n"], ids=repr)
def test_raw_line_is_the_line_as_received_without_its_ending(ending: bytes) -> None:
    line = b'{"type":"keep_alive"}'
    message = read(line + ending)
    assert (message.raw_line, line_size(message)) == (line, len(line + ending))
    assert (KeepAlive().raw_line, line_size(KeepAlive())) == (b"", 0)


def test_the_lines_of_many_values_are_given_whatever_was_read_of_them() -> None:
    lines = [LINE, b'{"type":"result"}', LINE]
    messages = [read(line) for line in lines]
    assert isinstance(messages[0], UserMessage)
    assert lines_of(messages[2:]) == [LINE]
    assert messages[0].content
    assert lines_of(messages) == lines
    assert lines_of([]) == []


def test_the_garbage_collector_does_not_track_what_was_read() -> None:
    message = read(LINE)
    assert isinstance(message, UserMessage)
    assert not any(map(gc.is_tracked, (message, message.message, message.content[0])))


def test_values_are_frozen() -> None:
    with pytest.raises(AttributeError):
        setattr(KeepAlive(), "uuid", "u")  # noqa: B010  # the type checkers know it as well
    with pytest.raises(AttributeError):
        setattr(TextBlock("a"), "text", "b")  # noqa: B010


def through_pickle(message: Message) -> Message:
    twin = pickle.loads(pickle.dumps(message))
    assert isinstance(twin, Message)
    return twin


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, through_pickle])
def test_copies_and_pickles_keep_the_wire(clone: Callable[[Message], Message]) -> None:
    message = read(b'{"type":"result","num_turns":"x","new":1}')
    twin = clone(message)
    misfits = ("subtype", "is_error", "num_turns")
    assert (twin, twin.raw, twin.misfits) == (message, message.raw, misfits)


def test_a_pickled_block_keeps_its_position() -> None:
    message = read(LINE)
    assert isinstance(message, UserMessage)
    assert isinstance(message.content, list)
    block = pickle.loads(pickle.dumps(message.content[0]))
    assert block.raw == {"type": "text", "text": "a", "new": 1}


@pytest.mark.parametrize("place", [0, 1])
def test_a_block_added_by_hand_claims_no_place_in_the_line(place: int) -> None:
    message = read(LINE)
    assert isinstance(message, UserMessage)
    assert isinstance(message.content, list)
    message.content.insert(place, TextBlock("mine"))
    given, mine = {"type": "text", "text": "a", "new": 1}, {"type": "text", "text": "mine"}
    raw = [block.raw for block in message.content]
    assert raw == ([mine, given] if place == 0 else [given, mine])


def calls_of(read: Callable[[], object]) -> dict[str, list[str]]:
    """Return what reading calls: functions written in Python ("call") and in C ("c_call")."""
    called: dict[str, list[str]] = {"call": [], "c_call": []}

    def note(frame: FrameType, event: str, function: object) -> None:
        if event == "call":
            called[event].append(frame.f_code.co_name)
        elif event == "c_call":
            called[event].append(getattr(function, "__name__", ""))

    sys.setprofile(note)
    try:
        read()
    finally:
        sys.setprofile(None)
    assert called["call"].pop(0) == "<lambda>"
    assert called["c_call"].pop() == "setprofile"
    return called


def test_reading_the_blocks_of_a_message_takes_two_calls() -> None:
    # Calls are what reading costs. Decoding is one call into msgspec, so a few more would cost
    # more than decoding; bench/micro/reading.py has the figures.
    block = b'{"type":"text","text":"a"}'
    message = read(b'{"type":"assistant","message":{"content":[' + block + b"]}}")
    assert isinstance(message, AssistantMessage)
    assert calls_of(lambda: message.content)["call"] == ["content", "bind_blocks"]


def test_reading_a_delta_takes_one_call() -> None:
    delta = b'{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}'
    message = read(b'{"type":"stream_event","event":' + delta + b"}")
    assert isinstance(message, StreamEvent)
    assert calls_of(lambda: message.event) == {"call": ["event"], "c_call": []}


@pytest.mark.parametrize(
    ("kind", "key"), [("stream_event", "event"), ("assistant", "message"), ("user", "message")]
)
def test_a_block_inside_a_block_has_its_place(kind: str, key: str) -> None:
    inner = {"type": "text", "text": "a", "new": 1}
    outer = {"type": "tool_result", "tool_use_id": "t", "content": [inner], "new": 2}
    part = (
        {"type": "content_block_start", "content_block": outer}
        if kind == "stream_event"
        else {"content": [outer]}
    )
    message = read(json.dumps({"type": kind, key: part}).encode())
    if isinstance(message, StreamEvent):
        assert isinstance(message.event, ContentBlockStart)
        block = message.event.content_block
    else:
        assert isinstance(message, AssistantMessage | UserMessage)
        assert isinstance(message.content, list)
        block = message.content[0]
    assert isinstance(block, ToolResultBlock)
    assert isinstance(block.content, list)
    assert (block.raw, block.content[0].raw) == (outer, inner)


def test_a_block_does_not_keep_its_message_alive() -> None:
    message = read(LINE)
    assert isinstance(message, UserMessage)
    before = sys.getrefcount(message)
    block = message.content[0]
    assert sys.getrefcount(message) == before
    del message
    assert isinstance(block, TextBlock)
    assert block.raw == {"type": "text", "text": "a", "new": 1}


def test_a_message_is_the_same_after_its_blocks_were_read() -> None:
    message = read(LINE)
    assert isinstance(message, UserMessage)
    raw, size = message.raw, line_size(message)
    assert message.content
    assert (message.raw, line_size(message), message.raw_line) == (raw, size, LINE)
    twin = through_pickle(message)
    assert isinstance(twin, UserMessage)
    assert (twin.raw, twin.content[0]) == (raw, message.content[0])


def test_misfits_are_shared_with_blocks_inside_blocks() -> None:
    outer = b'{"type":"tool_result","tool_use_id":"t","content":[{"type":"text"}]}'
    message = read(b'{"type":"user","message":{"content":[' + outer + b"]}}")
    assert isinstance(message, UserMessage)
    block = message.content[0]
    assert isinstance(block, ToolResultBlock)
    assert isinstance(block.content, list)
    assert message.misfits == ("message.content[0].content[0].text",)
    assert (block.misfits, block.content[0].misfits) == (("content[0].text",), ("text",))
    assert block.content[0].raw == {"type": "text"}


def test_a_part_has_its_own_share_of_the_misfits() -> None:
    blocks = b'[{"type":"text"},{"type":"text","text":"b"}]'
    message = read(b'{"type":"assistant","uuid":3,"message":{"content":' + blocks + b"}}")
    assert isinstance(message, AssistantMessage)
    assert message.misfits == ("message.content[0].text", "uuid")
    assert [block.misfits for block in message.content] == [("text",), ()]


@pytest.mark.parametrize(
    ("path", "spelled"),
    [((), ""), (("a",), "a"), (("a", 0, "b"), "a[0].b"), (("a", 1, 2), "a[1][2]")],
)
def test_paths_are_spelled_as_python_reads_them(path: tuple[str | int, ...], spelled: str) -> None:
    assert spell_path(path) == spelled


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (rb'"cut \ud83d"', "cut \ufffd"),
        (rb'"\udc00\ud83d\ude00\ud800"', "\ufffd\U0001f600\ufffd"),
        (rb'"\\ud83d \ud83d"', "\\ud83d \ufffd"),
        (b'"\xff"', "\ufffd"),
        (b"[1e999,-1e999]", [math.inf, -math.inf]),
        (b"[" + b"9" * 5000 + b",-" + b"9" * 5000 + b"]", [math.inf, -math.inf]),
        (b'["' + b"9" * 5000 + rb'","\ud800"]', ["9" * 5000, "\ufffd"]),
        (b"123456789012345678901234567890", 123456789012345678901234567890),
        (b'{"a":1,"a":2}', {"a": 2}),
    ],
)
def test_what_python_cannot_hold_is_replaced_and_the_rest_is_exact(
    line: bytes, value: object
) -> None:
    assert parse_json(line) == value


@pytest.mark.parametrize("line", [b"", b"{", b"NaN", b"Infinity", b'"\\q"', b'"a\nb"', b"1 2"])
def test_text_that_is_not_json_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|truncated"):
        parse_json(line)


def test_a_line_without_oddities_is_left_alone() -> None:
    line = json.dumps({"a": "\U0001f600 \\ud83d \n", "b": 12345, "c": 1.5e10}).encode()
    assert repair_json(line) == line


def test_what_was_built_by_hand_is_written_with_wire_names_and_without_nones() -> None:
    result = ToolResultBlock("t", [TextBlock("a"), UnknownBlock("x", {"type": "x", "y": None})])
    assert to_wire(result) == {
        "type": "tool_result",
        "tool_use_id": "t",
        "content": [{"type": "text", "text": "a"}, {"type": "x", "y": None}],
        "is_error": False,
    }
    assert ResultMessage(subtype="success", is_error=False).raw["modelUsage"] == {}
