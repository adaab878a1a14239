"""The server side of MCP, as far as tools need it: JSON-RPC in, an answer or a call out.

Nothing here runs a tool. :func:`handle` answers what can be answered at once and turns a
``tools/call`` into a :class:`ToolCall` for the shell; :func:`answer_result` and
:func:`answer_failure` say to the CLI what came of it.

Two kinds of errors are kept apart. What the model can mend (a tool that does not exist, arguments
that do not fit, a tool that failed) is a result with ``isError``, which the model reads. What only
a client can get wrong is a JSON-RPC error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import NoneType
from typing import Any, cast

import msgspec
from msgspec import Struct

from bridle._core.mcp import METHOD_NOT_FOUND, encode_answer, error_response, is_notification
from bridle._core.permissions import Answer, as_text, checked
from bridle._core.wire import Unencodable, encode_json
from bridle._fields import is_list, is_mapping
from bridle._signatures import dump
from bridle._source import JsonObject
from bridle.content import Block, DocumentBlock, ImageBlock, TextBlock, UnknownBlock
from bridle.errors import ToolFailure
from bridle.events import WarningKind
from bridle.permissions import bind_raw
from bridle.tools import Tool, ToolContext, ToolServer

INVALID_REQUEST = -32600
INVALID_PARAMS = -32602

PROTOCOL_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Versions of MCP in which what is said here means the same; the first one is offered."""

_TOOL_USE_ID = "claudecode/toolUseId"

_MAX_ERROR = 500
"""Characters of an exception the model is told: what happened, not a report."""


class ToolCall(Struct, frozen=True):
    """A call of a tool, with arguments that fit. Calling it with its context runs the function."""

    tool: Tool[..., Any]
    arguments: JsonObject
    context: ToolContext

    @property
    def func(self) -> object:
        """The function itself, which decides whether the call is awaited or given a thread."""
        return self.tool.function

    def __call__(self, context: ToolContext) -> object:
        return self.tool.run(self.arguments, context)


def handle(name: str, server: ToolServer, message: JsonObject) -> ToolCall | dict[str, object]:
    """Treat a message for the server registered as ``name``: what to call, or the answer."""
    method = message.get("method")
    if not isinstance(method, str):
        return error_response(message, INVALID_REQUEST, "the message has no method")
    if is_notification(message):
        return encode_answer(message, None)
    params = _object(message.get("params"))
    if params is None:
        return error_response(message, INVALID_PARAMS, "params is not an object")
    match method:
        case "initialize":
            return result_response(message, _introduction(name, server, params))
        case "ping":
            return result_response(message, {})
        case "tools/list":
            return result_response(message, {"tools": server.definitions()})
        case "tools/call":
            return _call(name, server, message, params)
        case _:
            return error_response(message, METHOD_NOT_FOUND, f"no method {method!r:.80}")


def result_response(message: JsonObject, result: object) -> dict[str, object]:
    """The JSON-RPC answer to ``message``, with its id as it was spelled."""
    return {"jsonrpc": "2.0", "id": message.get("id"), "result": result}


def _object(value: Any) -> JsonObject | None:
    """A JSON object; one that was left out is empty, and what is none is None."""
    if value is None:
        return {}
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]  # JSON: keys are text


def _introduction(name: str, server: ToolServer, params: JsonObject) -> JsonObject:
    asked = params.get("protocolVersion")
    result: JsonObject = {
        "protocolVersion": asked if asked in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0],
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
    arguments = _object(params.get("arguments"))
    if arguments is None:
        text = f"Invalid arguments for {asked}: they are not an object."
        return result_response(message, encode_failure(text))
    try:
        values = tool.validate(arguments)
    except ToolFailure as failure:
        return result_response(message, encode_failure(failure.text))
    return ToolCall(tool, values, _context(name, asked, message, params))


def _context(server: str, tool: str, message: JsonObject, params: JsonObject) -> ToolContext:
    context = ToolContext(name=tool, server=server, tool_use_id=tool_use_of(params))
    bind_raw(context, dict(message))
    return context


def tool_use_of(params: JsonObject) -> str | None:
    """The id of the tool use a call is made for, where the CLI says so."""
    meta = _object(params.get("_meta")) or {}
    tool_use_id = meta.get(_TOOL_USE_ID)
    return tool_use_id if isinstance(tool_use_id, str) else None


# ---------------------------------------------------------------- answers to calls


def answer_result(message: JsonObject, value: object, label: str) -> Answer:
    """The answer to the call ``message`` asked for, now that the tool returned ``value``."""
    try:
        response = result_response(message, encode_result(value))
        return Answer(checked(_json({"mcp_response": response})))
    except (Unencodable, msgspec.DecodeError) as error:  # the latter: a Raw that is no JSON
        detail = f"{label}: {error}"
        return answer_failure(message, WarningKind.UNENCODABLE_RESULT, detail, label)


def answer_failure(message: JsonObject, kind: WarningKind, detail: str, label: str) -> Answer:
    """The answer to the call ``message`` asked for, if the tool raised or was too late.

    The application has to be told which tool it was (``label``); the model knows.
    """
    response = result_response(message, encode_exception(detail.removeprefix(f"{label}: ")))
    try:
        body = encode_json({"mcp_response": response})
    except Unencodable:  # its id cannot be written
        body = encode_json({"mcp_response": {**response, "id": None}})
    return Answer(body, ((kind, detail),))


# ---------------------------------------------------------------- results

# How the image formats that models can see begin.
_MAGIC = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
)
_Bytes = bytes | bytearray | memoryview
_RESULT_KEYS = frozenset({"content", "structuredContent", "isError", "_meta"})
_MCP_CONTENT = frozenset({"text", "image", "audio", "resource", "resource_link"})

_encode = msgspec.json.Encoder(enc_hook=dump).encode


def encode_failure(text: str) -> JsonObject:
    """The result of a tool that did not do what it should: ``text`` is what the model reads."""
    return {"content": [_text(text)], "isError": True}


def encode_exception(detail: str) -> JsonObject:
    """The result of a tool that broke: ``detail`` was not meant for the model, a line will do."""
    line = as_text(f"Error: {detail.strip()}".splitlines()[0])
    return encode_failure(line if len(line) <= _MAX_ERROR else f"{line[: _MAX_ERROR - 3]}...")


def encode_result(value: object) -> JsonObject:
    """The result for what a tool returned; a `ToolFailure`, raised or returned, is a failure.

    Raises:
        Unencodable: The value has no form a model could read.
    """
    if type(value) is str:
        return {"content": [_text(value)]}
    if type(value) not in _SCALARS and (ready := _ready_made(value)) is not None:
        return ready
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Unencodable(f"{value} is no number in JSON")
        if value.is_integer() and abs(value) < _EXACT:
            # JSON has one kind of number: the sum of 1 and 2 is 3, whatever Python calls it.
            value = int(value)
    data = _json(value)
    result: JsonObject = {"content": [_text(data.decode())]}
    if data.startswith(b"{"):
        # The model reads the same either way; the application finds it parsed on the wire.
        result["structuredContent"] = msgspec.json.decode(data)
    return result


_SCALARS = frozenset({int, float, bool, NoneType})

_EXACT = 2**53
"""Whole numbers beyond this are not what somebody counted, only where a float happens to stop."""


def _ready_made(value: object) -> JsonObject | None:
    """The result for a value that says itself how it is to be shown."""
    if isinstance(value, ToolFailure):
        return encode_failure(as_text(value.text))
    if is_list(value) and any(_is_shown_as_is(item) for item in value):
        return {"content": [_content(item) for item in value]}
    if is_mapping(value) and _is_result(value):
        return {str(key): item for key, item in value.items()}
    if isinstance(value, str) or _is_shown_as_is(value):
        return {"content": [_content(value)]}
    return None


def _is_shown_as_is(value: object) -> bool:
    return isinstance(value, Block | _Bytes)


def _is_result(value: Mapping[object, object]) -> bool:
    """Whether this is an MCP result already, rather than data that has a "content" in it."""
    content = value.get("content")
    if not is_list(content):
        return False
    if not content:
        return value.keys() <= _RESULT_KEYS
    return all(is_mapping(item) and item.get("type") in _MCP_CONTENT for item in content)


def _content(value: object) -> JsonObject:
    if isinstance(value, str):
        return _text(str.__str__(value))
    if isinstance(value, _Bytes):
        return _image(bytes(cast("bytes", value)))
    if isinstance(value, Block):
        return _block(value)
    return _text(_json(value).decode())


def _json(value: object) -> bytes:
    try:
        return _encode(value)
    except Exception as error:  # whatever the user's own methods raise
        raise Unencodable(f"{type(value).__name__} cannot be shown: {error}") from error


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _image(data: bytes) -> JsonObject:
    for start, magic, mime_type in _MAGIC:
        if data.startswith(magic, start):
            return {"type": "image", "data": msgspec.to_builtins(data), "mimeType": mime_type}
    raise Unencodable("the bytes are no PNG, JPEG, GIF or WebP image; return text for other data")


def _block(block: Block) -> JsonObject:
    if isinstance(block, TextBlock):
        return _text(block.text)
    if isinstance(block, UnknownBlock) and block.type in _MCP_CONTENT:
        return cast("JsonObject", block.raw)
    if isinstance(block, ImageBlock | DocumentBlock):
        try:
            return _media(block)
        except KeyError as missing:
            raise Unencodable(f"{type(block).__name__}: its source has no {missing}") from None
    raise Unencodable(f"{type(block).__name__} is nothing a tool can return")


def _media(block: ImageBlock | DocumentBlock) -> JsonObject:
    """An image stays one; a document becomes a resource, which is MCP's word for it."""
    source = block.source
    kind = source["type"]
    title = (block.title if isinstance(block, DocumentBlock) else None) or block.type
    if kind == "url":
        return {"type": "resource_link", "uri": source["url"], "name": title}
    if kind not in ("base64", "text"):
        raise Unencodable(f"{type(block).__name__}: a source of type {kind!r} cannot be sent")
    data, mime_type = source["data"], source["media_type"]
    if isinstance(block, ImageBlock):
        return {"type": "image", "data": data, "mimeType": mime_type}
    held = "blob" if kind == "base64" else "text"
    return {
        "type": "resource",
        "resource": {"uri": f"document:{title}", "mimeType": mime_type, held: data},
    }
