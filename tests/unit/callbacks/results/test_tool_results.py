"""What tools and raw MCP handlers return, serialised."""

from __future__ import annotations

import base64
import dataclasses
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from bridle._callbacks.results.serialise import invoke, serialise
from bridle._callbacks.results.tool_results import encode_result
from bridle._engine.actions import Call, CallKind
from bridle._engine.incoming.answers import Answer, InvalidResult, InvalidReturn
from bridle._engine.incoming.mcp.messages_of_servers import McpMessage
from bridle._engine.wire.codec import encode_success
from bridle.content import (
    Block,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ToolUseBlock,
    UnknownBlock,
)
from bridle.errors import ToolFailure
from bridle.tools import McpError, McpResponse, Tool, ToolContext, tool


@tool
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@tool
def who(ctx: ToolContext) -> str:
    """Say which tool this is."""
    return ctx.name


def subject_of(message: dict[str, Any]) -> McpMessage:
    return McpMessage("r", "calc", message)


def reported(kind: CallKind, result: object, message: dict[str, Any]) -> object:
    """Return what the engine is told of a result."""
    return serialise(Call(1, kind, None, None, "call", subject=subject_of(message)), result)


def sent(answer: object) -> Any:
    """Return the JSON-RPC message in an answer, as the CLI reads it."""
    assert isinstance(answer, Answer)
    assert answer.warnings == ()
    frame = msgspec.json.decode(encode_success("r", answer.body))
    return frame["response"]["response"]["mcp_response"]


def tool_answer(result: object) -> object:
    return reported(CallKind.TOOL, result, {"id": 1})


# ------------------------------------------------------------------------- results

PNG = b"\x89PNG\r\n\x1a\n123"
PNG64 = base64.b64encode(PNG).decode()
IMAGE = {"type": "image", "data": PNG64, "mimeType": "image/png"}


@dataclasses.dataclass
class Point:
    x: int


class Leaf(msgspec.Struct):
    name: str


class Model(BaseModel):
    y: int


class Name(str):
    __slots__ = ()


def text(said: str) -> dict[str, object]:
    return {"type": "text", "text": said}


def document(**members: Any) -> DocumentBlock:
    return DocumentBlock(members.pop("source"), **members)


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("hi", [text("hi")]),
        ("", [text("")]),
        (Name("hi"), [text("hi")]),
        ([Name("hi")], [text('["hi"]')]),
        (3, [text("3")]),
        (1.5, [text("1.5")]),
        (True, [text("true")]),
        (None, [text("null")]),
        ([1, "a"], [text('[1,"a"]')]),
        (("a", "b"), [text('["a","b"]')]),
        ([], [text("[]")]),
        ([Point(1), Model(y=2)], [text('[{"x":1},{"y":2}]')]),
        (PNG, [IMAGE]),
        (bytearray(PNG), [IMAGE]),
        (memoryview(PNG), [IMAGE]),
        (b"\xff\xd8\xff\xe0", [{"type": "image", "data": "/9j/4A==", "mimeType": "image/jpeg"}]),
        (b"GIF89a", [{"type": "image", "data": "R0lGODlh", "mimeType": "image/gif"}]),
        (
            b"RIFF1234WEBP",
            [{"type": "image", "data": "UklGRjEyMzRXRUJQ", "mimeType": "image/webp"}],
        ),
        (TextBlock("hi"), [text("hi")]),
        (["see", PNG, {"a": 1}], [text("see"), IMAGE, text('{"a":1}')]),
        (
            ImageBlock({"type": "base64", "media_type": "image/png", "data": PNG64}),
            [IMAGE],
        ),
        (
            ImageBlock({"type": "url", "url": "https://x.test/a.png"}),
            [{"type": "resource_link", "uri": "https://x.test/a.png", "name": "image"}],
        ),
        (
            document(source={"type": "text", "media_type": "text/plain", "data": "hi"}, title="T"),
            [
                {
                    "type": "resource",
                    "resource": {"uri": "document:T", "mimeType": "text/plain", "text": "hi"},
                }
            ],
        ),
        (
            document(source={"type": "base64", "media_type": "application/pdf", "data": "JVBE"}),
            [
                {
                    "type": "resource",
                    "resource": {
                        "uri": "document:document",
                        "mimeType": "application/pdf",
                        "blob": "JVBE",
                    },
                }
            ],
        ),
        (
            [TextBlock("a"), UnknownBlock("audio", {"type": "audio", "data": ""})],
            [text("a"), {"type": "audio", "data": ""}],
        ),
    ],
)
def test_what_a_tool_returns_becomes_content(value: object, content: list[object]) -> None:
    assert encode_result(value) == {"content": content}


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"a": [1, None]}, {"a": [1, None]}),
        ({}, {}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (Point(1), {"x": 1}),
        (Leaf("l"), {"name": "l"}),
        (Model(y=1), {"y": 1}),
        ({"content": "of a letter"}, {"content": "of a letter"}),
        ({"content": ["of", "a", "list"]}, {"content": ["of", "a", "list"]}),
        ({"content": [{"type": "novel"}]}, {"content": [{"type": "novel"}]}),
    ],
    ids=str,
)
def test_an_object_is_sent_as_text_and_as_data(value: object, data: dict[str, object]) -> None:
    said = msgspec.json.encode(data).decode()
    assert encode_result(value) == {"content": [text(said)], "structuredContent": data}


@pytest.mark.parametrize(
    "result",
    [
        {"content": []},
        {"content": [text("a"), IMAGE], "isError": True},
        {"content": [text("a")], "structuredContent": {"a": 1}, "_meta": {"x": 1}},
    ],
    ids=str,
)
def test_a_whole_result_passes_as_it_is(result: dict[str, object]) -> None:
    assert encode_result(result) == result
    assert encode_result(MappingProxyType(result)) == result


@pytest.mark.parametrize(
    ("marks", "is_error"),
    [
        ({"is_error": True}, True),
        ({"is_error": False}, False),
        ({"isError": False, "is_error": True}, True),
        ({"isError": True, "is_error": False}, True),
    ],
    ids=str,
)
@pytest.mark.parametrize("content", [[text("no")], []], ids=["text", "empty"])
def test_both_names_mark_a_result_as_an_error(
    marks: dict[str, bool],
    content: list[object],
    is_error: bool,  # the column of a table
) -> None:
    expected = {"content": content, "isError": is_error}
    assert encode_result({"content": content, **marks}) == expected


def test_data_of_its_own_may_have_a_field_is_error() -> None:
    data = {"content": "a line of a log", "is_error": True, "line": 3}
    assert encode_result(data)["structuredContent"] == data


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"content": "no", "is_error": True}, "a result that is marked as an error needs"),
        ({"content": ["no"], "isError": True}, "a result that is marked as an error needs"),
        ({"is_error": True}, "a result that is marked as an error needs"),
        ({"isError": True, "structuredContent": {}}, "a result that is marked as an error needs"),
        ({"content": [text("no")], "isError": "yes"}, "isError must be True or False"),
        (object(), "object cannot be shown: TypeError: object cannot be written as JSON"),
        ({"a": {1, object()}}, "dict cannot be shown: TypeError: object cannot be written as JSON"),
        (b"%PDF-1.4", "the bytes are not a PNG, JPEG, GIF or WebP image"),
        (b"", "the bytes are not a PNG, JPEG, GIF or WebP image"),
        (ToolUseBlock("id", "name", {}), "ToolUseBlock cannot be the result of a tool"),
        (UnknownBlock("new", {"type": "new"}), "UnknownBlock cannot be the result of a tool"),
        (ImageBlock({"type": "base64"}), "ImageBlock: its source has no 'data'"),
        (ImageBlock({}), "ImageBlock: its source has no 'type'"),
        (
            document(source={"type": "file"}),
            "DocumentBlock: a source of type 'file' cannot be sent",
        ),
        ([TextBlock("a"), object()], "object cannot be shown"),
        (float("nan"), "nan is not a number in JSON"),
        (float("-inf"), "-inf is not a number in JSON"),
    ],
    ids=[
        "error-text",
        "error-texts",
        "error-only",
        "error-data",
        "odd-mark",
        "object",
        "set",
        "pdf",
        "no-bytes",
        "tool-use",
        "unknown",
        "no-data",
        "no-type",
        "file",
        "in-a-list",
        "nan",
        "infinity",
    ],
)
def test_a_result_that_a_model_cannot_read_is_refused(value: object, problem: str) -> None:
    with pytest.raises(InvalidResult) as refusal:
        encode_result(value)
    assert str(refusal.value).startswith(problem)


def test_a_float_far_beyond_counting_keeps_its_exponent() -> None:
    assert encode_result(1e300) == {"content": [text("1e300")]}


def test_half_a_character_does_not_lose_what_a_failure_says() -> None:
    assert encode_result(ToolFailure("name-\udcff"))["content"] == [text("name-?")]


def test_a_list_that_contains_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(InvalidResult, match="cannot be shown"):
        encode_result(value)


def test_a_failure_tells_the_model_what_the_tool_said() -> None:
    expected = {"content": [text("No such file.\nTry another.")], "isError": True}
    assert encode_result(ToolFailure("No such file.\nTry another.")) == expected


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
        | st.builds(TextBlock, st.text())
    ),
    max_leaves=8,
)


@given(VALUES)
def test_whatever_a_tool_returns_there_is_an_answer_that_can_be_sent(value: object) -> None:
    answer = reported(CallKind.TOOL, value, {"id": 1})
    if isinstance(answer, InvalidReturn):
        assert answer.kind == "unencodable_result"
    else:
        assert sent(answer)["id"] == 1


# ------------------------------------------------------------------------- answers


def invoked(tool: Tool[..., Any], arguments: object, **members: object) -> Any:
    """Return the JSON-RPC answer to a call of a tool, or raise what the tool raised."""
    params = {"name": tool.name, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params, **members}
    context = ToolContext(name=tool.name)
    call = Call(1, CallKind.TOOL, tool, context, "tool", subject=subject_of(message))
    try:
        result = invoke(call)
    except ToolFailure as failure:
        result = failure
    return sent(serialise(call, result))


@pytest.mark.requirement("S074")
def test_a_whole_call_from_message_to_answer() -> None:
    """R331, C46: the answer has the id of the request."""
    answer = invoked(add, {"a": 1, "b": 2}, id="123")
    assert answer == {"jsonrpc": "2.0", "id": "123", "result": {"content": [text("3")]}}


def test_the_context_is_given_to_a_tool_that_takes_it() -> None:
    assert invoked(who, None)["result"]["content"] == [text("who")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"a": 1, "b": "2"}, "Invalid arguments for add: b: Expected `float`, got `str`."),
        (
            None,
            "Invalid arguments for add: missing required field `a`. The arguments are: a, b.",
        ),
        (
            {"a": 1, "b": 2, "c": 3},
            "Invalid arguments for add: contains unknown field `c`. The arguments are: a, b.",
        ),
    ],
)
def test_the_model_reads_why_its_arguments_are_invalid(arguments: object, said: str) -> None:
    assert invoked(add, arguments)["result"] == {"content": [text(said)], "isError": True}


def test_the_parts_of_a_whole_result_may_be_models() -> None:
    value = {"content": [text("a")], "structuredContent": Model(y=1)}
    answer = sent(tool_answer(value))
    assert answer["result"] == {"content": [text("a")], "structuredContent": {"y": 1}}


def test_data_that_has_an_empty_content_in_it_is_data() -> None:
    """An MCP result may be empty, too; then it has nothing else in it either."""
    found: dict[str, Any] = {"content": [], "total": 0}
    assert encode_result({"content": (), "total": 0}) == encode_result(found)
    result = sent(tool_answer(found))["result"]
    assert result["structuredContent"] == found
    assert msgspec.json.decode(result["content"][0]["text"]) == found
    empty = {"content": [], "isError": False}
    assert sent(tool_answer(empty))["result"] == empty


@pytest.mark.parametrize(
    "value",
    [
        object(),
        "\ud800",
        {"content": [text("\ud800")]},
        {"content": [], "isError": object()},
        {"content": [], "isError": msgspec.Raw(b"oops")},
    ],
    ids=["object", "half an emoji", "half an emoji inside", "object inside", "no JSON inside"],
)
def test_a_result_that_cannot_be_sent_is_refused(value: object) -> None:
    record = reported(CallKind.TOOL, value, {"id": 1})
    assert isinstance(record, InvalidReturn)
    assert record.kind == "unencodable_result"


@pytest.mark.parametrize("kind", Block.__subclasses__())
def test_every_block_is_returned_or_refused(kind: type[Block]) -> None:
    needed = [field.name for field in msgspec.structs.fields(kind) if field.required]
    objects: dict[str, object] = {"source": {"type": "url", "url": "u"}, "input": {}}
    block = kind(**{name: objects.get(name, "x") for name in needed})
    if kind in (TextBlock, ImageBlock, DocumentBlock):
        assert len(encode_result(block)["content"]) == 1
    else:
        with pytest.raises(InvalidResult, match="cannot be the result of a tool"):
            encode_result(block)


# ------------------------------------------------------------------------- raw handlers

REQUEST = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
NOTIFICATION = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@pytest.mark.parametrize(
    ("message", "returned", "answer"),
    [
        (REQUEST, {"jsonrpc": "2.0", "id": 7, "result": {}, "x": 1}, None),
        (
            REQUEST,
            McpResponse(id=7, result={"a": 1}),
            {"jsonrpc": "2.0", "id": 7, "result": {"a": 1}},
        ),
        (REQUEST, McpResponse(result={"a": 1}), {"jsonrpc": "2.0", "id": 7, "result": {"a": 1}}),
        (
            REQUEST,
            McpResponse(id=7, error=McpError(-1, "bad")),
            {"jsonrpc": "2.0", "id": 7, "error": {"code": -1, "message": "bad"}},
        ),
        (NOTIFICATION, None, {"jsonrpc": "2.0", "result": {}}),
        (NOTIFICATION, "whatever", {"jsonrpc": "2.0", "result": {}}),
        (NOTIFICATION, {"mine": 1}, None),
    ],
)
def test_what_a_handler_returned_becomes_the_answer(
    message: dict[str, object], returned: object, answer: dict[str, object] | None
) -> None:
    """R314, R315, R326, C08: a mapping passes untouched, a record is spelled out."""
    answered = sent(reported(CallKind.MCP, returned, message))
    assert answered == (returned if answer is None else answer)


@pytest.mark.parametrize("returned", [None, "text", 5, [1]], ids=repr)
def test_a_request_must_be_answered_by_something_that_answers(returned: object) -> None:
    """R324."""
    record = reported(CallKind.MCP, returned, REQUEST)
    assert isinstance(record, InvalidReturn)
    assert type(returned).__name__ in record.problem
