"""Implement the part of an MCP server that tools need: answer JSON-RPC messages or return calls.

Nothing here runs a tool or reads its arguments. :func:`handle` answers other messages at once and
turns a ``tools/call`` into a :class:`ToolCall` for the shell.

There are two kinds of errors. Errors that the model can correct (an unknown tool, invalid
arguments, a tool that failed) are results with ``isError``, which the model reads. Errors of the
client are JSON-RPC errors.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bridle._engine.incoming.answers import Answer
from bridle._engine.incoming.mcp.messages_of_servers import (
    METHOD_NOT_FOUND,
    acknowledge,
    error_response,
    is_notification,
)
from bridle._engine.wire.codec import Unencodable, encode_json, utf8
from bridle._records.raw_line import JsonObject
from bridle.permissions import bind_raw
from bridle.tools import NotBound, Tool, ToolContext, ToolServer

INVALID_REQUEST = -32600
INVALID_PARAMS = -32602

PROTOCOL_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Supported versions of MCP, which agree on everything used here. The first is the default."""

_TOOL_USE_ID = "claudecode/toolUseId"


class ToolCall(Struct, frozen=True):
    """A call of a tool. The shell validates the arguments and runs the function."""

    tool: Tool[..., Any]
    context: ToolContext


def handle(name: str, server: ToolServer, message: JsonObject) -> ToolCall | dict[str, object]:
    """Return the call to make or the answer to a message for the server ``name``."""
    method = message.get("method")
    if not isinstance(method, str):
        return error_response(message, INVALID_REQUEST, "the message has no method")
    if is_notification(message):
        return acknowledge()
    params = _object(message.get("params"))
    if params is None:
        return error_response(message, INVALID_PARAMS, "params is not an object")
    match method:
        case "initialize":
            asked = params.get("protocolVersion")
            version = asked if asked in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0]
            return result_response(message, _introduction(name, server, version))
        case "ping":
            return result_response(message, {})
        case "tools/list":
            return result_response(message, {"tools": server.definitions()})
        case "tools/call":
            return _call(name, server, message, params)
        case _:
            return error_response(message, METHOD_NOT_FOUND, f"no method {method!r:.80}")


def manifest(name: str, server: ToolServer) -> JsonObject:
    """Return what the CLI would learn about the server in an MCP handshake.

    A CLI that takes manifests in its initialize request skips the handshake. It accepts only the
    MCP version that it uses itself; with any other version it makes the handshake.
    """
    return {
        "initializeResult": _introduction(name, server, PROTOCOL_VERSIONS[0]),
        "toolsListResult": {"tools": server.definitions()},
    }


def result_response(message: JsonObject, result: object) -> dict[str, object]:
    """Return the JSON-RPC answer to ``message``, with its id unchanged."""
    return {"jsonrpc": "2.0", "id": message.get("id"), "result": result}


def _object(value: Any) -> JsonObject | None:
    """Return a JSON object: an empty one for None, and None for any other value."""
    if value is None:
        return {}
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]  # JSON: keys are text


def _introduction(name: str, server: ToolServer, version: str) -> JsonObject:
    result: JsonObject = {
        "protocolVersion": version,
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": name, "version": server.version},
    }
    if server.instructions is not None:
        result["instructions"] = server.instructions
    return result


def _call(
    name: str, server: ToolServer, message: JsonObject, params: JsonObject
) -> ToolCall | dict[str, object]:
    asked = params.get("name")
    if not isinstance(asked, str):
        return error_response(message, INVALID_PARAMS, "tools/call does not name a tool")
    tool = server.tools.get(asked)
    if tool is None:
        text = f"Unknown tool {asked!r:.80}. The tools are: {', '.join(server.tools) or 'none'}."
        return result_response(message, encode_failure(text))
    if arguments_of(params) is None:
        text = f"Invalid arguments for {asked}: they are not an object."
        return result_response(message, encode_failure(text))
    return ToolCall(tool, _context(name, asked, message, params))


def arguments_of(params: JsonObject) -> JsonObject | None:
    """Return the arguments of a ``tools/call``; None if they are not an object."""
    return _object(params.get("arguments"))


def _context(server: str, tool: str, message: JsonObject, params: JsonObject) -> ToolContext:
    tool_use = tool_use_of(params)
    context = ToolContext(name=tool, server=server, tool_use_id=tool_use, session=NotBound)
    bind_raw(context, dict(message))
    return context


def tool_use_of(params: JsonObject) -> str | None:
    """Return the id of the tool use that a call belongs to, if the CLI sends it."""
    meta = _object(params.get("_meta")) or {}
    tool_use_id = meta.get(_TOOL_USE_ID)
    return tool_use_id if isinstance(tool_use_id, str) else None


# ---------------------------------------------------------------- failures


def answer_failure(message: JsonObject, kind: str, detail: str, told: str) -> Answer:
    """Return the answer to a failed call. The model reads ``told``, the application ``detail``."""
    response = result_response(message, encode_failure(f"Error: {utf8(told)}"))
    try:
        body = encode_json({"mcp_response": response})
    except Unencodable:  # its id cannot be written
        body = encode_json({"mcp_response": {**response, "id": None}})
    return Answer(body, ((kind, detail),))


def encode_failure(text: str) -> JsonObject:
    """Return the result of a call that failed. The model reads ``text``."""
    return {"content": [{"type": "text", "text": text}], "isError": True}
