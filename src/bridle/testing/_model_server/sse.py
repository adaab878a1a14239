"""Encode a reply for the API: as the events of a stream, or as one message.

Pure: turns a reply and a few names into JSON values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from bridle.messages import JsonObject
from bridle.testing.script import Block, Reply

_USAGE: JsonObject = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 5,
}


class _Streamed(NamedTuple):
    """A member that is empty in the start event of a block and arrives in deltas."""

    member: str
    empty: object
    delta: str
    carries: str  # the name of the member in the delta
    whole: bool = False  # True if it is sent in one delta


# Blocks of other types are complete in their start event.
_STREAMED: dict[str, tuple[_Streamed, ...]] = {
    "text": (_Streamed("text", "", "text_delta", "text"),),
    "thinking": (
        _Streamed("thinking", "", "thinking_delta", "thinking"),
        _Streamed("signature", "", "signature_delta", "signature", whole=True),
    ),
    "tool_use": (_Streamed("input", {}, "input_json_delta", "partial_json"),),
    "server_tool_use": (_Streamed("input", {}, "input_json_delta", "partial_json"),),
}


def message(reply: Reply, message_id: str, model: str) -> JsonObject:
    """Return the whole message, for a request without `stream`."""
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [block.content for block in reply.blocks],
        "stop_reason": reply.reason(),
        "stop_sequence": reply.stop_sequence,
        "usage": {**_USAGE, **reply.usage},
    }


def events(reply: Reply, message_id: str, model: str) -> Iterator[JsonObject]:
    """Yield the events of the stream of the same message."""
    whole = message(reply, message_id, model)
    usage = {**_USAGE, **reply.usage}
    opening: JsonObject = {"content": [], "stop_reason": None, "stop_sequence": None}
    yield {
        "type": "message_start",
        "message": {**whole, **opening, "usage": {**usage, "output_tokens": 1}},
    }
    for index, block in enumerate(reply.blocks):
        start = {"type": "content_block_start", "index": index}
        yield {**start, "content_block": _opening(block.content)}
        if index == 0:
            yield {"type": "ping"}
        for delta in _deltas(block):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    if reply.error is not None:
        yield {"type": "error", "error": reply.error}
        return
    ending = {"stop_reason": whole["stop_reason"], "stop_sequence": reply.stop_sequence}
    yield {"type": "message_delta", "delta": ending, "usage": usage}
    yield {"type": "message_stop"}


def encode(event: JsonObject) -> bytes:
    """Encode an event in the format of server-sent events."""
    return b"event: %s\ndata: %s\n\n" % (str(event["type"]).encode(), msgspec.json.encode(event))


def _opening(content: JsonObject) -> JsonObject:
    rows = _STREAMED.get(str(content["type"]), ())
    return {**content, **{row.member: row.empty for row in rows}}


def _deltas(block: Block) -> Iterator[JsonObject]:
    for row in _STREAMED.get(str(block.content["type"]), ()):
        value = block.content.get(row.member, row.empty)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for piece in _split(text, 1 if row.whole else block.pieces):
            yield {"type": row.delta, row.carries: piece}


def _split(text: str, pieces: int | tuple[str, ...]) -> Iterator[str]:
    """Yield the given parts, or this many parts of similar size; fewer if the text is short."""
    if isinstance(pieces, tuple):
        yield from pieces
        return
    size = max(1, -(-len(text) // pieces))
    for start in range(0, len(text), size):
        yield text[start : start + size]
