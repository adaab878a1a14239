"""The codec: every line becomes a value, and values become one line each."""

from __future__ import annotations

import json
import math
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from bridle._engine.wire.codec import (
    Unencodable,
    decode_all,
    decode_line,
    encode_error,
    encode_json,
    encode_request,
    encode_success,
    encode_user_message,
)
from bridle._engine.wire.framing import OversizedLine
from bridle.content import Block, ImageBlock, TextBlock, ToolResultBlock, UnknownBlock
from bridle.controls import (
    CanUseToolRequest,
    ControlFailure,
    ControlRequest,
    ControlResponse,
    ControlSuccess,
    UnknownControlRequest,
)
from bridle.messages import (
    AssistantMessage,
    InitMessage,
    KeepAlive,
    MalformedLine,
    Message,
    ResultMessage,
    UnknownMessage,
    UserMessage,
)

# ---------------------------------------------------------------- decoding


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "not JSON: "),
        (b"   ", "not JSON: "),
        (b"hello", "not JSON: "),
        (b'{"type":"user"', "not JSON: "),
        (b'{"type":"user"}{}', "not JSON: "),
        (b'{"type":"user","x":NaN}', "not JSON: "),
        (b'{"type":"\\q"}', "not JSON: "),
        (
            b'{"type":"user","message":{"content":"\xff"}}',
            "not UTF-8: invalid start byte at byte 37",
        ),
        (b'{"type":"omen","x":"\xff"}', "not UTF-8: "),
        (b"null", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b'{"type":"user","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"x":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
    ],
    ids=lambda value: value[:24] if isinstance(value, bytes) else None,
)
def test_a_value_that_is_not_a_message_is_malformed_and_says_why(line: bytes, reason: str) -> None:
    malformed = decode_line(line)
    assert isinstance(malformed, MalformedLine)
    assert malformed.reason.startswith(reason)
    assert malformed.line == line


@pytest.mark.parametrize("ending", [b"", b"\r", b"\n", b"\r\n", b" "])
def test_the_line_ending_does_not_matter(ending: bytes) -> None:
    assert decode_line(b' {"type":"keep_alive"}' + ending) == KeepAlive()


def test_the_type_may_stand_anywhere() -> None:
    """R214."""
    line = b'{"num_turns":3,"is_error":true,"type":"result","subtype":"success"}'
    assert decode_line(line) == ResultMessage(subtype="success", is_error=True, num_turns=3)


def test_of_a_repeated_member_the_last_one_counts() -> None:
    assert decode_line(b'{"type":"user","type":"keep_alive"}') == KeepAlive()
    assert decode_line(b'{"type":"keep_alive","uuid":"a","uuid":"b"}') == KeepAlive(uuid="b")


def test_half_an_emoji_does_not_cost_the_message() -> None:
    line = rb'{"type":"result","subtype":"success","is_error":false,"result":"cut \ud83d"}'
    message = decode_line(line)
    assert message == ResultMessage(subtype="success", is_error=False, result="cut \ufffd")
    assert isinstance(message, Message)
    assert message.misfits == ()
    assert message.raw["result"] == "cut \ufffd"


def test_invalid_bytes_are_accepted_in_fields_that_are_not_read() -> None:
    message = decode_line(b'{"type":"keep_alive","new":"\xff"}')
    assert isinstance(message, KeepAlive)
    assert message.raw == {"type": "keep_alive", "new": "\ufffd"}


@pytest.mark.parametrize(
    ("number", "turns", "misfits"),
    [
        (b"9" * 30, int("9" * 30), ()),
        (b"9" * 5000, 0, ("num_turns",)),
        (b"1e999", 0, ("num_turns",)),
        (b"2.5", 0, ("num_turns",)),
        (b"true", 0, ("num_turns",)),
    ],
    ids=["30 digits", "5000 digits", "1e999", "2.5", "true"],
)
def test_odd_numbers_fit_or_are_named(number: bytes, turns: int, misfits: tuple[str, ...]) -> None:
    head = b'{"type":"result","subtype":"success","is_error":false,"num_turns":'
    message = decode_line(head + number + b"}")
    assert isinstance(message, ResultMessage)
    assert (message.num_turns, message.misfits) == (turns, misfits)


def test_a_number_beyond_every_range_reads_as_infinity() -> None:
    message = decode_line(b'{"type":"keep_alive","a":-1e999,"b":' + b"9" * 5000 + b"}")
    assert isinstance(message, KeepAlive)
    assert message.raw == {"type": "keep_alive", "a": -math.inf, "b": math.inf}


def test_decoding_the_same_line_twice_gives_equal_values() -> None:
    line = b'{"type":"assistant","message":{"content":[{"type":"new"},{"type":"text"}]}}'
    assert decode_line(line) == decode_line(line)


def test_a_system_line_takes_its_second_pass() -> None:
    assert decode_line(b'{"subtype":"init","cwd":"/w","type":"system"}') == InitMessage(cwd="/w")


def test_every_line_of_one_unknown_block_is_still_an_assistant_message() -> None:
    line = b'{"type":"assistant","message":{"content":[{"type":"new","a":1}]},"uuid":"u"}'
    message = decode_line(line)
    assert isinstance(message, AssistantMessage)
    assert message.content == [UnknownBlock("new", {"type": "new", "a": 1})]
    assert (message.uuid, message.misfits) == ("u", ())


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_input": {"a": 1}},
        {"input": {"a": 1}, "title": 7},
        {"input": {"a": 1}, "tool_input": {"b": 2}, "title": 7},
    ],
    ids=["other name", "usual name", "both names"],
)
def test_the_input_of_a_tool_is_read_under_either_name(fields: dict[str, object]) -> None:
    """Some implementations of the protocol send `tool_input`. The usual name comes first."""
    body = {"subtype": "can_use_tool", "tool_name": "Bash", **fields}
    frame = decode_line(
        msgspec.json.encode({"type": "control_request", "request_id": "r", "request": body})
    )
    assert isinstance(frame, ControlRequest)
    assert isinstance(frame.request, CanUseToolRequest)
    assert frame.request.input == {"a": 1}


def test_an_unknown_message_needs_only_be_an_object() -> None:
    assert decode_line(b"{}") == UnknownMessage("")


# ---------------------------------------------------------------- encoding


def parsed(line: bytes) -> dict[str, Any]:
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    value: dict[str, Any] = json.loads(line)
    return value


def test_a_request_carries_its_fields_beside_the_subtype() -> None:
    """R179."""
    assert parsed(encode_request("r", "set_model", {"model": None})) == {
        "type": "control_request",
        "request_id": "r",
        "request": {"subtype": "set_model", "model": None},
    }


@pytest.mark.parametrize(
    ("line", "response"),
    [
        (encode_success("r", b'{"a":[1]}'), ControlSuccess("r", {"a": [1]})),
        (encode_success("\n", b"{}"), ControlSuccess("\n", {})),
        (encode_error("r", "no\nway"), ControlFailure("no\nway", "r")),
    ],
)
def test_an_answer_survives_the_way_there_and_back(
    line: bytes, response: ControlSuccess | ControlFailure
) -> None:
    """R182, R210, R211, R417."""
    frame = decode_line(line)
    assert isinstance(frame, ControlResponse)
    assert (frame.response, frame.misfits) == (response, ())


@pytest.mark.parametrize(
    ("subtype", "fields"),
    [
        ("initialize", {"hooks": {"Stop": [{"matcher": None, "hookCallbackIds": ["hook_0"]}]}}),
        ("interrupt", {}),
        ("set_permission_mode", {"mode": "plan"}),
        ("set_model", {"model": None}),
        ("rewind_files", {"user_message_id": "u", "dry_run": True}),
        ("of_tomorrow", {"a": [1, {"b": None}]}),
    ],
)
def test_a_request_survives_the_way_there_and_back(subtype: str, fields: dict[str, object]) -> None:
    """R211, R417: each of ours, read as the CLI would read it."""
    request = UnknownControlRequest(subtype, {"subtype": subtype, **fields})
    assert decode_line(encode_request("r", subtype, fields)) == ControlRequest(request, "r")


def test_a_prompt_is_nested_and_names_its_uuid() -> None:
    """R190, R416, C15."""
    assert parsed(encode_user_message("hi\n\u2028", "u")) == {
        "type": "user",
        "message": {"role": "user", "content": "hi\n\u2028"},
        "parent_tool_use_id": None,
        "session_id": "",
        "uuid": "u",
    }


def test_a_prompt_may_say_more() -> None:
    line = encode_user_message(
        "hi",
        "u",
        session_id="s",
        parent_tool_use_id="t",
        priority="now",
        is_synthetic=True,
        client_composed=True,
    )
    assert parsed(line) == {
        "type": "user",
        "message": {"role": "user", "content": "hi"},
        "parent_tool_use_id": "t",
        "session_id": "s",
        "uuid": "u",
        "priority": "now",
        "isSynthetic": True,
        "client_composed": True,
    }


def content_of(line: bytes) -> object:
    content: object = parsed(line)["message"]["content"]
    return content


def test_a_prompt_takes_blocks_and_mappings() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "AA=="}
    blocks: list[Block | MappingProxyType[str, object]] = [
        TextBlock("look"),
        ImageBlock(source),
        MappingProxyType({"type": "text", "text": "plain"}),
        UnknownBlock("new", {"type": "new", "a": 1}),
        ToolResultBlock("t", [UnknownBlock("new", {"type": "new", "b": 2})]),
    ]
    assert content_of(encode_user_message(blocks, "u")) == [
        {"type": "text", "text": "look"},
        {"type": "image", "source": source},
        {"type": "text", "text": "plain"},
        {"type": "new", "a": 1},
        {
            "type": "tool_result",
            "tool_use_id": "t",
            "content": [{"type": "new", "b": 2}],
            "is_error": False,
        },
    ]


def test_a_block_read_from_the_wire_is_written_as_it_was() -> None:
    wire = {"type": "text", "text": "a", "new": {"x": None}}
    message = decode_line(msgspec.json.encode({"type": "user", "content": [wire]}))
    assert isinstance(message, UserMessage)
    assert isinstance(message.content, list)
    assert content_of(encode_user_message(message.content, "u")) == [wire]


def test_infinities_and_nan_are_written_as_null() -> None:
    fields = {"a": math.nan, "b": math.inf}
    assert b'"a":null,"b":null' in encode_request("r", "x", fields)


def endless() -> list[object]:
    circle: list[object] = []
    circle.append(circle)
    return circle


@pytest.mark.parametrize(
    "value",
    [object(), 1j, "\ud83d", {"\ud83d": 1}, {(1, 2): 3}, endless(), msgspec.Raw(b'"a\n"')],
    ids=["object", "complex", "surrogate", "surrogate key", "tuple key", "circle", "raw newline"],
)
@pytest.mark.requirement("S060")
def test_what_json_cannot_say_is_refused_with_one_error(value: object) -> None:
    with pytest.raises(Unencodable, match="cannot be written as JSON"):
        encode_success("r", encode_json({"value": value}))
    with pytest.raises(Unencodable):
        encode_request("r", "x", {"value": value})
    with pytest.raises(Unencodable):
        encode_user_message([{"type": "text", "text": value}], "u")


def test_an_unencodable_error_text_is_refused_too() -> None:
    with pytest.raises(Unencodable):
        encode_error("r", "\ud83d")


ODD_LINES = [
    b'{"type":"assistant","uuid":"1","message":{"content":[]}}',
    b'{"type":"stream_event","uuid":"2","event":{"type":"message_stop"}}',
    b'{"type":"system","subtype":"init","uuid":"3"}',
    b'{"type":"system","subtype":"of tomorrow","uuid":"4"}',
    b'{"type":"of tomorrow"}',
    b'{"type":"result","num_turns":"many"}',
    b'{"type":"control_request","request_id":"5","request":{"subtype":"hook_callback"}}',
    b'{"type":"assistant"}{"type":"assistant"}',
    b'{"type":"user",',
    b'"uuid":"6"}',
    b"\xff",
    b"[" * 5000,
]


@pytest.mark.parametrize("count", [0, 1, 2, len(ODD_LINES)])
def test_many_lines_read_as_each_of_them_does(count: int) -> None:
    """Whatever stands beside it: what is halved by a line break stays halved."""
    for start in range(len(ODD_LINES)):
        lines = [*ODD_LINES[start:], *ODD_LINES[:start]][:count]
        (frames, kinds), each = decode_all(lines), [decode_line(line) for line in lines]
        assert (frames, kinds) == (each, {type(frame) for frame in each})
        assert [type(frame) for frame in frames] == [type(frame) for frame in each]
        assert [frame.raw for frame in frames if isinstance(frame, Message)] == [
            frame.raw for frame in each if isinstance(frame, Message)
        ]


def test_other_values_stay_among_the_lines() -> None:
    report = OversizedLine(size=17)
    line = ODD_LINES[0]
    frame = decode_line(line)
    assert decode_all([line, report, line]) == ([frame, report, frame], {type(frame), type(report)})
    assert decode_all([report]) == ([report], {type(report)})
