"""Serialise what tools and raw MCP handlers return.

A value that cannot be sent raises `InvalidResult`, or whatever its own methods raise. The core then
answers with an error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import NoneType
from typing import cast

import msgspec

from bridle._engine.incoming.answers import Answer, InvalidResult
from bridle._engine.incoming.mcp.messages_of_servers import McpMessage, acknowledge, is_notification
from bridle._engine.incoming.mcp.tool_server import encode_failure, result_response
from bridle._observe.user_values import as_line, as_text, describe_error, encode, kind_of, one_line
from bridle._records.fields import is_list, is_mapping
from bridle._records.raw_line import JsonObject
from bridle.content import Block, DocumentBlock, ImageBlock, TextBlock, UnknownBlock
from bridle.errors import ToolFailure
from bridle.tools import McpResponse
from bridle.tools._signatures import dump


def serialise_tool(result: object, request: McpMessage) -> Answer:
    """Return the answer to a call of a tool. A `ToolFailure` is a failure that the model reads."""
    response = result_response(request.message, encode_result(result))
    try:
        body = _encode({"mcp_response": response})
        return Answer(body if type(result) in _LEAVES else one_line(body))
    except Exception as error:  # half of a surrogate pair in a text
        raise _unencodable(describe_error(error)) from error


def serialise_mcp(result: object, request: McpMessage) -> Answer:
    """Return the answer to a message for a raw handler.

    A mapping is sent as it is. An McpResponse without an id gets the id of the message. If the
    message is a notification, other results are ignored and the notification is acknowledged.
    """
    try:
        return Answer(as_line({"mcp_response": _response(result, request.message)}))
    except InvalidResult:
        raise
    except Exception as error:  # raised by values of the user
        raise _unencodable(describe_error(error)) from error


def _response(result: object, message: JsonObject) -> dict[str, object]:
    if isinstance(result, McpResponse):
        response = result.to_wire()
        return response if response["id"] is not None else {**response, "id": message.get("id")}
    if isinstance(result, Mapping):
        return dict(cast("Mapping[str, object]", result))
    if is_notification(message):
        return acknowledge()
    raise _unencodable(f"a handler must return a mapping or an McpResponse, not {kind_of(result)}")


# ---------------------------------------------------------------- results

_UNENCODABLE = "unencodable_result"

# The first bytes of the image formats that models can read, with their offset.
_MAGIC = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
)
_Bytes = bytes | bytearray | memoryview
_ERROR_KEYS = ("isError", "is_error")
"""Names of the mark of a failed call: that of MCP, and that of the Anthropic API."""
_RESULT_KEYS = frozenset({"content", "structuredContent", "_meta", *_ERROR_KEYS})
_MCP_CONTENT = frozenset({"text", "image", "audio", "resource", "resource_link"})

_encode = msgspec.json.Encoder(enc_hook=dump).encode


def encode_result(value: object) -> JsonObject:
    """Return the MCP result for the value that a tool returned.

    Raises:
        InvalidResult: the value cannot be sent to the model.
    """
    if type(value) is str:
        return {"content": [_text(value)]}
    if type(value) not in _LEAVES and (ready := _ready_made(value)) is not None:
        _json(ready)
        return ready
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _unencodable(f"{value} is not a number in JSON")
        if value.is_integer() and abs(value) < _EXACT:
            # JSON has one kind of number, so send 3 and not 3.0.
            value = int(value)
    data = _json(value)
    result: JsonObject = {"content": [_text(data.decode())]}
    if data.startswith(b"{"):
        # The model reads the text. Applications find the parsed object in the raw message.
        result["structuredContent"] = msgspec.json.decode(data)
    return result


_LEAVES = frozenset({str, int, float, bool, NoneType})
"""Types whose values hold no values of other types."""

_EXACT = 2**53
"""Floats from this number on cannot represent every integer."""


def _ready_made(value: object) -> JsonObject | None:
    """Return the result for a value with its own MCP form, or None for any other value."""
    if isinstance(value, ToolFailure):
        return encode_failure(as_text(value.text))
    if is_list(value) and any(_is_shown_as_is(item) for item in value):
        return {"content": [_content(item) for item in value]}
    if is_mapping(value) and _is_result(value):
        return _result(cast("Mapping[str, object]", value))
    if isinstance(value, str) or _is_shown_as_is(value):
        return {"content": [_content(value)]}
    return None


def _is_shown_as_is(value: object) -> bool:
    return isinstance(value, Block | _Bytes)


def _is_result(value: Mapping[object, object]) -> bool:
    """Return whether a mapping is an MCP result, and not data that has a "content".

    Raises:
        InvalidResult: it is marked as an error, and its content is not that of a result.
    """
    content = value.get("content")
    has_only_result_keys = "content" in value and value.keys() <= _RESULT_KEYS
    if is_list(content) and not content:
        return has_only_result_keys
    if is_list(content) and all(map(_is_content, content)):
        return True
    marks = [value[key] for key in _ERROR_KEYS if key in value]
    if value.keys() <= _RESULT_KEYS and any(marks):
        raise _unencodable(
            "a result that is marked as an error needs a list of MCP content blocks; "
            "raise ToolFailure(text) to tell the model what went wrong"
        )
    return False


def _is_content(item: object) -> bool:
    return is_mapping(item) and item.get("type") in _MCP_CONTENT


def _result(value: Mapping[str, object]) -> JsonObject:
    """Return an MCP result in which ``is_error`` has the name that the CLI reads."""
    marks = [value[key] for key in _ERROR_KEYS if key in value]
    if not all(isinstance(mark, bool) for mark in marks):
        raise _unencodable("isError must be True or False")
    result = {key: each for key, each in value.items() if key not in _ERROR_KEYS}
    return {**result, "isError": any(marks)} if marks else result


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
        return encode(value)
    except Exception as error:  # raised by methods of the user
        raise _unencodable(
            f"{type(value).__name__} cannot be shown: {describe_error(error)}"
        ) from error


def _unencodable(problem: str) -> InvalidResult:
    return InvalidResult(problem, _UNENCODABLE)


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _image(data: bytes) -> JsonObject:
    for start, magic, mime_type in _MAGIC:
        if data.startswith(magic, start):
            return {"type": "image", "data": msgspec.to_builtins(data), "mimeType": mime_type}
    raise _unencodable(
        "the bytes are not a PNG, JPEG, GIF or WebP image; return text for other data"
    )


def _block(block: Block) -> JsonObject:
    if isinstance(block, TextBlock):
        return _text(block.text)
    if isinstance(block, UnknownBlock) and block.type in _MCP_CONTENT:
        return cast("JsonObject", block.raw)
    if isinstance(block, ImageBlock | DocumentBlock):
        try:
            return _media(block)
        except KeyError as missing:
            raise _unencodable(f"{type(block).__name__}: its source has no {missing}") from None
    raise _unencodable(f"{type(block).__name__} cannot be the result of a tool")


def _media(block: ImageBlock | DocumentBlock) -> JsonObject:
    """Return an image as an image, and a document as an MCP resource."""
    source = block.source
    kind = source["type"]
    title = (block.title if isinstance(block, DocumentBlock) else None) or block.type
    if kind == "url":
        return {"type": "resource_link", "uri": source["url"], "name": title}
    if kind not in ("base64", "text"):
        raise _unencodable(f"{type(block).__name__}: a source of type {kind!r} cannot be sent")
    data, mime_type = source["data"], source["media_type"]
    if isinstance(block, ImageBlock):
        return {"type": "image", "data": data, "mimeType": mime_type}
    held = "blob" if kind == "base64" else "text"
    return {
        "type": "resource",
        "resource": {"uri": f"document:{title}", "mimeType": mime_type, held: data},
    }
