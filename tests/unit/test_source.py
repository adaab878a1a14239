"""The wire behind a value: raw, paths, misfits, copies."""

from __future__ import annotations

import copy
import gc
import json
import math
import pickle
from collections.abc import Callable

import msgspec
import pytest

from bridle._core.wire import decode_line
from bridle._source import line_of, line_size, parse_json, repair_json, spell_path, to_wire
from bridle.content import TextBlock, ToolResultBlock, UnknownBlock
from bridle.messages import AssistantMessage, KeepAlive, Message, ResultMessage, UserMessage

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


def test_the_source_is_no_part_of_equality_or_repr() -> None:
    message = read(b'{"type":"keep_alive","uuid":"u","new":1}')
    assert message == KeepAlive(uuid="u")
    assert repr(message) == "KeepAlive(uuid='u')"


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n"], ids=repr)
def test_the_line_of_a_value_is_given_without_its_ending(ending: bytes) -> None:
    line = b'{"type":"keep_alive"}'
    message = read(line + ending)
    assert (line_of(message), line_size(message)) == (line, len(line + ending))
    assert (line_of(KeepAlive()), line_size(KeepAlive())) == (b"", 0)


def test_what_was_read_is_no_work_for_the_garbage_collector() -> None:
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


def test_a_pickled_block_still_knows_its_place() -> None:
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
def test_what_is_no_json_is_refused(line: bytes) -> None:
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
