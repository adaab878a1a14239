"""The server side of MCP for tools: what is answered at once, what is called, what comes of it."""

from __future__ import annotations

import gc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridle._engine.incoming.answers import Answer
from bridle._engine.incoming.mcp.tool_server import (
    PROTOCOL_VERSIONS,
    ToolCall,
    answer_failure,
    encode_failure,
    handle,
    manifest,
)
from bridle._engine.wire.codec import encode_json, encode_success
from bridle.events import WarningKind
from bridle.tools import ToolContext, ToolServer, bind_session, tool


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


@pytest.mark.parametrize("server", [SERVER, ToolServer([])])
def test_a_manifest_says_what_a_handshake_would(server: ToolServer) -> None:
    hello = request("initialize", {"protocolVersion": "2025-11-25"})
    assert manifest("calc", server) == {
        "initializeResult": answer_to(hello, server)["result"],
        "toolsListResult": answer_to(request("tools/list"), server)["result"],
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


def test_a_call_names_the_agent_that_it_comes_from() -> None:
    params = {"name": "who", "_meta": {"claudecode/toolUseId": "toolu_1", "progressToken": 2}}
    call = called(**params)
    bind_session(call.context, None)
    assert call.context == ToolContext(name="who", server="calc", tool_use_id="toolu_1")
    assert call.context.raw == request("tools/call", params)


def test_the_garbage_collector_follows_the_context_of_a_call() -> None:
    """Otherwise a context that refers to its session keeps the session for ever."""
    context = called(name="who").context
    bind_session(context, [])
    assert gc.is_tracked(context)


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


# ------------------------------------------------------------------------- failures


def sent(answer: Answer) -> Any:
    """The JSON-RPC message in an answer, as the CLI reads it."""
    frame = msgspec.json.decode(encode_success("r", answer.body))
    return frame["response"]["response"]["mcp_response"]


def test_the_application_gets_the_detail_and_the_model_another_text() -> None:
    detail = "tool add: ValueError: secret"
    answer = answer_failure({"id": 1}, WarningKind.MCP_FAILED, detail, "ValueError")
    assert answer.warnings == ((WarningKind.MCP_FAILED, detail),)
    assert sent(answer)["result"] == encode_failure("Error: ValueError")
