"""The server side of MCP for tools: what is answered at once, what is called, what comes of it."""

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

from bridle._core.permissions import Answer
from bridle._core.toolserver import (
    PROTOCOL_VERSIONS,
    ToolCall,
    answer_failure,
    answer_result,
    encode_exception,
    encode_failure,
    encode_result,
    handle,
)
from bridle._core.wire import Unencodable, encode_json, encode_success
from bridle.content import (
    Block,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ToolUseBlock,
    UnknownBlock,
)
from bridle.errors import ToolFailure
from bridle.events import WarningKind
from bridle.tools import ToolContext, ToolServer, tool


@tool
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@tool
async def who(ctx: ToolContext) -> ToolContext:
    """Say who calls."""
    return ctx


SERVER = ToolServer([add, who], version="3", instructions="Count.")


def request(method: object, params: object = None, **members: object) -> dict[str, object]:
    message: dict[str, object] = {"jsonrpc": "2.0", "id": 7, "method": method, **members}
    return message if params is None else {**message, "params": params}


def answer_to(message: dict[str, object], server: ToolServer = SERVER) -> dict[str, object]:
    answer = handle("calc", server, message)
    assert isinstance(answer, dict)
    return answer


def called(**params: object) -> ToolCall:
    call = handle("calc", SERVER, request("tools/call", params))
    assert isinstance(call, ToolCall)
    return call


# ------------------------------------------------------------------------- answered at once


@pytest.mark.parametrize(
    ("asked", "granted"),
    [*((known, known) for known in PROTOCOL_VERSIONS), ("2031-01-01", "2025-11-25"), (3, None)],
)
@pytest.mark.requirement("S073")
def test_a_known_version_of_the_protocol_is_granted(asked: object, granted: str | None) -> None:
    """C46: the server introduces itself by the name it is registered under."""
    assert answer_to(request("initialize", {"protocolVersion": asked})) == {
        "jsonrpc": "2.0",
        "id": 7,
        "result": {
            "protocolVersion": granted or PROTOCOL_VERSIONS[0],
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": "calc", "version": "3"},
            "instructions": "Count.",
        },
    }


def test_a_server_without_instructions_gives_none() -> None:
    result: Any = answer_to(request("initialize"), ToolServer([]))["result"]
    assert "instructions" not in result


@pytest.mark.parametrize("id", [0, 7, "7", None], ids=repr)
def test_an_answer_carries_the_id_as_it_was_spelled(id: object) -> None:
    """R323, R331, C46."""
    assert answer_to(request("ping", id=id)) == {"jsonrpc": "2.0", "id": id, "result": {}}


def test_the_tools_are_listed() -> None:
    """C46."""
    listed = {"tools": [add.definition(), who.definition()]}
    assert answer_to(request("tools/list")) == {"jsonrpc": "2.0", "id": 7, "result": listed}
    assert answer_to(request("tools/list"), ToolServer([]))["result"] == {"tools": []}


@pytest.mark.parametrize(
    "method", ["notifications/initialized", "notifications/cancelled", "notifications/new"]
)
@pytest.mark.requirement("S074")
def test_a_notification_is_acknowledged(method: str) -> None:
    assert answer_to({"jsonrpc": "2.0", "method": method}) == {"jsonrpc": "2.0", "result": {}}


@pytest.mark.parametrize(
    ("message", "code", "id"),
    [
        (request("resources/list"), -32601, 7),
        (request("tools/call", [1]), -32602, 7),
        (request("tools/call", "x"), -32602, 7),
        (request("tools/call", {}), -32602, 7),
        (request("tools/call", {"name": 3}), -32602, 7),
        (request(3), -32600, 7),
        ({"jsonrpc": "2.0", "id": "x", "result": {}}, -32600, "x"),
        ({}, -32600, None),
    ],
)
@pytest.mark.requirement("S074")
def test_what_a_client_got_wrong_is_a_json_rpc_error(
    message: dict[str, object], code: int, id: object
) -> None:
    """R332, S034."""
    answer = answer_to(message)
    error: Any = answer["error"]
    assert (answer["id"], error["code"]) == (id, code)
    assert error["message"]


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"name": "sub"}, "Unknown tool 'sub'. The tools are: add, who."),
        (
            {"name": "add", "arguments": {"a": 1, "b": "2"}},
            "Invalid arguments for add: b: Expected `float`, got `str`.",
        ),
        (
            {"name": "add"},
            "Invalid arguments for add: missing required field `a`. The arguments are: a, b.",
        ),
        (
            {"name": "add", "arguments": {"a": 1, "b": 2, "c": 3}},
            "Invalid arguments for add: contains unknown field `c`. The arguments are: a, b.",
        ),
        ({"name": "add", "arguments": [1]}, "Invalid arguments for add: they are not an object."),
    ],
)
def test_what_the_model_can_mend_is_a_result_it_reads(params: object, text: str) -> None:
    assert answer_to(request("tools/call", params)) == {
        "jsonrpc": "2.0",
        "id": 7,
        "result": {"content": [{"type": "text", "text": text}], "isError": True},
    }


def test_an_empty_server_has_no_tools_to_name() -> None:
    result = answer_to(request("tools/call", {"name": "x"}), ToolServer([]))["result"]
    assert result == encode_failure("Unknown tool 'x'. The tools are: none.")


# ------------------------------------------------------------------------- called


def test_a_call_carries_arguments_of_the_right_types_and_runs_the_function() -> None:
    call = called(name="add", arguments={"a": 1, "b": 2})
    assert call.arguments == {"a": 1.0, "b": 2.0}
    assert call.func is add.function
    assert call(call.context) == 3


def test_a_call_knows_whom_it_comes_from() -> None:
    params = {"name": "who", "_meta": {"claudecode/toolUseId": "toolu_1", "progressToken": 2}}
    call = called(**params)
    assert call.context == ToolContext(name="who", server="calc", tool_use_id="toolu_1")
    assert call.context.raw == request("tools/call", params)


@pytest.mark.parametrize("meta", [None, {}, {"claudecode/toolUseId": 3}, "x"])
def test_a_call_without_an_id_has_none(meta: object) -> None:
    assert called(name="who", _meta=meta).context.tool_use_id is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["add", "who", "sub"]) | JSON,
        "arguments": st.dictionaries(st.sampled_from("abc"), JSON) | JSON,
        "_meta": st.dictionaries(st.sampled_from(["claudecode/toolUseId"]), JSON) | JSON,
        "protocolVersion": JSON,
    },
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "id": JSON,
        "method": st.sampled_from(["initialize", "ping", "tools/list", "tools/call"]) | JSON,
        "params": PARAMS | JSON,
    },
)


@given(MESSAGES)
def test_whatever_the_message_there_is_a_call_or_an_answer_that_can_be_sent(
    message: dict[str, object],
) -> None:
    answer = handle("calc", SERVER, message)
    if isinstance(answer, ToolCall):
        assert answer.context.name in SERVER.tools
    else:
        assert encode_success("r", encode_json({"mcp_response": answer}))
        assert "result" in answer or "error" in answer


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


def text(said: str) -> dict[str, object]:
    return {"type": "text", "text": said}


def document(**members: Any) -> DocumentBlock:
    return DocumentBlock(members.pop("source"), **members)


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("hi", [text("hi")]),
        ("", [text("")]),
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
    ("value", "problem"),
    [
        (object(), "object cannot be shown: object is no JSON type"),
        ({"a": {1, object()}}, "dict cannot be shown: object is no JSON type"),
        (b"%PDF-1.4", "the bytes are no PNG, JPEG, GIF or WebP image"),
        (b"", "the bytes are no PNG, JPEG, GIF or WebP image"),
        (ToolUseBlock("id", "name", {}), "ToolUseBlock is nothing a tool can return"),
        (UnknownBlock("new", {"type": "new"}), "UnknownBlock is nothing a tool can return"),
        (ImageBlock({"type": "base64"}), "ImageBlock: its source has no 'data'"),
        (ImageBlock({}), "ImageBlock: its source has no 'type'"),
        (
            document(source={"type": "file"}),
            "DocumentBlock: a source of type 'file' cannot be sent",
        ),
        ([TextBlock("a"), object()], "object cannot be shown"),
        (float("nan"), "nan is no number in JSON"),
        (float("-inf"), "-inf is no number in JSON"),
    ],
    ids=[
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
def test_what_no_model_could_read_is_refused(value: object, problem: str) -> None:
    with pytest.raises(Unencodable) as refusal:
        encode_result(value)
    assert str(refusal.value).startswith(problem)


def test_a_float_far_beyond_counting_keeps_its_exponent() -> None:
    assert encode_result(1e300) == {"content": [text("1e300")]}


def test_half_a_character_does_not_lose_what_a_failure_says() -> None:
    assert encode_result(ToolFailure("name-\udcff"))["content"] == [text("name-?")]


def test_a_list_that_contains_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(Unencodable, match="cannot be shown"):
        encode_result(value)


def test_a_failure_tells_the_model_what_the_tool_said() -> None:
    expected = {"content": [text("No such file.\nTry another.")], "isError": True}
    assert encode_result(ToolFailure("No such file.\nTry another.")) == expected


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        ("ValueError: bad", "Error: ValueError: bad"),
        ("ValueError: bad\n  in line 3", "Error: ValueError: bad"),
        ("", "Error: "),
        ("x" * 600, "Error: " + "x" * 490 + "..."),
    ],
)
def test_of_an_exception_the_model_is_told_one_line(detail: str, said: str) -> None:
    assert encode_exception(detail) == {"content": [text(said)], "isError": True}


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
    assert encode_success("r", answer_result({"id": 1}, value, "tool").body)


# ------------------------------------------------------------------------- answers


def sent(answer: Answer) -> Any:
    """The JSON-RPC message in an answer, as the CLI reads it."""
    frame = msgspec.json.decode(encode_success("r", answer.body))
    return frame["response"]["response"]["mcp_response"]


@pytest.mark.requirement("S074")
def test_a_whole_call_from_message_to_answer() -> None:
    """R331, C46: the answer bears the id of the question."""
    message = request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, id="123")
    call = handle("calc", SERVER, message)
    assert isinstance(call, ToolCall)
    answer = answer_result(message, call(call.context), "tool add")
    assert answer.warnings == ()
    assert sent(answer) == {"jsonrpc": "2.0", "id": "123", "result": {"content": [text("3")]}}


def test_the_parts_of_a_whole_result_may_be_models() -> None:
    value = {"content": [text("a")], "structuredContent": Model(y=1)}
    answer = sent(answer_result({"id": 1}, value, "tool add"))
    assert answer["result"] == {"content": [text("a")], "structuredContent": {"y": 1}}


def test_data_that_has_an_empty_content_in_it_is_data() -> None:
    """An MCP result may be empty, too; then it has nothing else in it either."""
    found: dict[str, Any] = {"content": [], "total": 0}
    assert encode_result({"content": (), "total": 0}) == encode_result(found)
    result = sent(answer_result({"id": 1}, found, "tool search"))["result"]
    assert result["structuredContent"] == found
    assert msgspec.json.decode(result["content"][0]["text"]) == found
    empty = {"content": [], "isError": False}
    assert sent(answer_result({"id": 1}, empty, "tool search"))["result"] == empty


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
def test_a_result_that_cannot_be_sent_is_a_failure_both_sides_hear_of(value: object) -> None:
    answer = answer_result({"id": 1}, value, "tool add")
    [(kind, detail)] = answer.warnings
    assert kind == WarningKind.UNENCODABLE_RESULT
    assert detail.startswith("tool add: ")
    assert sent(answer)["result"]["isError"] is True


def test_an_exception_is_a_warning_for_the_application_and_a_line_for_the_model() -> None:
    detail = "tool add: ValueError: bad\nvery"
    answer = answer_failure({"id": 1}, WarningKind.MCP_FAILED, detail, "tool add")
    assert answer.warnings == ((WarningKind.MCP_FAILED, detail),)
    assert sent(answer)["result"] == encode_failure("Error: ValueError: bad")


@pytest.mark.parametrize("kind", Block.__subclasses__())
def test_every_block_is_returned_or_refused(kind: type[Block]) -> None:
    needed = [field.name for field in msgspec.structs.fields(kind) if field.required]
    objects: dict[str, object] = {"source": {"type": "url", "url": "u"}, "input": {}}
    block = kind(**{name: objects.get(name, "x") for name in needed})
    if kind in (TextBlock, ImageBlock, DocumentBlock):
        assert len(encode_result(block)["content"]) == 1
    else:
        with pytest.raises(Unencodable, match="is nothing a tool can return"):
            encode_result(block)
