"""A small replacement for the Messages API on loopback, controlled by a script.

A script maps a *needle* to the replies to give.  For each request the API looks at the
*tail* of the conversation (everything after the last assistant message) and takes the
first needle found there; the replies of a needle are used in order and the last one
repeats.  A request that matches nothing is answered with the text ``ok``.

Matching on the tail rather than on a request counter keeps a script valid when the CLI
makes a request of its own (a subagent, a title, a probe for a model).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Text:
    """A text block, sent in ``pieces`` deltas with ``gap`` seconds before each."""

    text: str
    pieces: int = 2
    gap: float = 0.0


@dataclass(frozen=True)
class Thinking:
    """A thinking block with a placeholder signature."""

    thinking: str
    signature: str = "c2lnbmF0dXJl"


@dataclass(frozen=True)
class ToolUse:
    """A call of the tool ``name``. The script chooses ``id``, so that it can be a needle."""

    id: str
    name: str
    input: Json


Block = Text | Thinking | ToolUse


@dataclass(frozen=True)
class Reply:
    """One answer of the API.

    ``status`` other than 200 makes it an error of type ``error_type``.  ``delay`` is the
    time before the first byte.  ``cut`` drops the connection after the first delta, or before
    the answer if the request was not for a stream.
    """

    blocks: tuple[Block, ...] = (Text("ok"),)
    stop_reason: str | None = None
    delay: float = 0.0
    status: int = 200
    error_type: str = "api_error"
    error_message: str = "scripted failure"
    headers: Mapping[str, str] = field(default_factory=dict)
    input_tokens: int = 10
    output_tokens: int = 5
    cut: bool = False

    def reason(self) -> str:
        """The stop reason: as given, or derived from the blocks."""
        if self.stop_reason is not None:
            return self.stop_reason
        calls = any(isinstance(block, ToolUse) for block in self.blocks)
        return "tool_use" if calls else "end_turn"


def say(text: str, **options: Any) -> Reply:
    """Return a reply with one text block."""
    return Reply(blocks=(Text(text),), **options)


def call(tool_id: str, name: str, **arguments: Any) -> Reply:
    """Return a reply with one tool call."""
    return Reply(blocks=(ToolUse(tool_id, name, arguments),))


def fail(status: int, error_type: str, message: str, **headers: str) -> Reply:
    """Return an error reply. Underscores in header names become hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, error_type=error_type, error_message=message, headers=named)


Script = Mapping[str, Sequence[Reply]]
Observer = Callable[[Json], None]


def conversation_tail(body: Json) -> str:
    """Return the JSON text of the messages after the last assistant message."""
    tail: list[Any] = []
    for message in reversed(body.get("messages") or []):
        if message.get("role") == "assistant":
            break
        tail.append(message.get("content"))
    return json.dumps(tail[::-1], ensure_ascii=False)


def _content(block: Block) -> Json:
    """Return the complete API form of a block."""
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    if isinstance(block, Thinking):
        return {"type": "thinking", "thinking": block.thinking, "signature": block.signature}
    return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}


def _opening(block: Block) -> Json:
    """Return the empty form of a block, for ``content_block_start``."""
    if isinstance(block, Text):
        return {"type": "text", "text": ""}
    if isinstance(block, Thinking):
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "tool_use", "id": block.id, "name": block.name, "input": {}}


def _split(text: str, pieces: int) -> Iterator[str]:
    """Yield ``text`` in about ``pieces`` parts of equal size."""
    size = max(1, -(-len(text) // max(1, pieces)))
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _deltas(block: Block) -> Iterator[tuple[float, Json]]:
    """Yield the deltas of a block, each with the pause before it."""
    if isinstance(block, Text):
        for part in _split(block.text, block.pieces):
            yield block.gap, {"type": "text_delta", "text": part}
    elif isinstance(block, Thinking):
        for part in _split(block.thinking, 2):
            yield 0.0, {"type": "thinking_delta", "thinking": part}
        yield 0.0, {"type": "signature_delta", "signature": block.signature}
    else:
        for part in _split(json.dumps(block.input), 2):
            yield 0.0, {"type": "input_json_delta", "partial_json": part}


class ScriptedApi:
    """The server.  Use as an async context manager; ``url`` is valid inside."""

    def __init__(self, script: Script, observer: Observer) -> None:
        self._script = script
        self._observer = observer
        self._used: dict[str, int] = {}
        self._count = 0
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        """The base URL for the CLI."""
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> ScriptedApi:
        """Bind a free loopback port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=1 << 24)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening and close open connections."""
        if self._server is not None:
            self._server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Start a task for a new connection."""
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._handlers.add(task)
        task.add_done_callback(self._handlers.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close the connection."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = head[0].split(" ", 2)
            headers = {
                name.strip().lower(): value.strip()
                for name, _, value in (line.partition(":") for line in head[1:] if line)
            }
            raw = await reader.readexactly(int(headers.get("content-length", "0")))
            body: Json = json.loads(raw) if raw else {}
            await self._answer(writer, method, path.partition("?")[0], body)
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()

    def _pick(self, tail: str) -> tuple[str, Reply]:
        """Return the needle that matches ``tail``, and its next reply."""
        for needle, replies in self._script.items():
            if needle in tail:
                index = self._used.get(needle, 0)
                self._used[needle] = index + 1
                return needle, replies[min(index, len(replies) - 1)]
        return "", Reply()

    async def _answer(
        self, writer: asyncio.StreamWriter, method: str, path: str, body: Json
    ) -> None:
        """Route a request."""
        if method == "POST" and path == "/v1/messages/count_tokens":
            self._observer({"api": path})
            await self._send_json(writer, 200, {"input_tokens": 10}, {})
            return
        if method != "POST" or path != "/v1/messages":
            self._observer({"api": f"{method} {path}", "status": 404})
            error = {"type": "not_found_error", "message": "not scripted"}
            await self._send_json(writer, 404, {"type": "error", "error": error}, {})
            return
        tail = conversation_tail(body)
        needle, reply = self._pick(tail)
        self._count += 1
        self._observer(
            {
                "api": path,
                "model": body.get("model"),
                "max_tokens": body.get("max_tokens"),
                "stream": bool(body.get("stream")),
                "messages": len(body.get("messages") or []),
                "needle": needle,
                "status": reply.status,
                "tail": tail[-600:],
            }
        )
        await asyncio.sleep(reply.delay)
        if reply.status != 200:
            error = {"type": reply.error_type, "message": reply.error_message}
            payload: Json = {"type": "error", "error": error}
            await self._send_json(writer, reply.status, payload, reply.headers)
        elif body.get("stream"):
            await self._send_stream(writer, reply, str(body.get("model")))
        elif reply.cut:
            writer.transport.abort()
        else:
            message = self._message(reply, str(body.get("model")))
            await self._send_json(writer, 200, message, reply.headers)

    def _message(self, reply: Reply, model: str) -> Json:
        """Return the whole message, for a request without ``stream``."""
        return {
            "id": f"msg_{self._count:04d}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [_content(block) for block in reply.blocks],
            "stop_reason": reply.reason(),
            "stop_sequence": None,
            "usage": self._usage(reply, reply.output_tokens),
        }

    @staticmethod
    def _usage(reply: Reply, output_tokens: int) -> Json:
        """Return the usage object of a reply."""
        return {
            "input_tokens": reply.input_tokens,
            "output_tokens": output_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        }

    async def _head(
        self, writer: asyncio.StreamWriter, status: int, headers: Mapping[str, str]
    ) -> None:
        """Write the status line and the headers."""
        lines = [f"HTTP/1.1 {status} Scripted", f"request-id: req_{self._count:04d}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write(("\r\n".join([*lines, "connection: close", "", ""])).encode())
        await writer.drain()

    async def _send_json(
        self, writer: asyncio.StreamWriter, status: int, payload: Json, headers: Mapping[str, str]
    ) -> None:
        """Answer with a JSON body."""
        raw = json.dumps(payload).encode()
        fixed = {"content-type": "application/json", "content-length": str(len(raw))}
        await self._head(writer, status, {**headers, **fixed})
        writer.write(raw)
        await writer.drain()

    async def _send_stream(self, writer: asyncio.StreamWriter, reply: Reply, model: str) -> None:
        """Answer with server-sent events in chunked encoding."""

        async def emit(event: Json) -> None:
            data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()

        fixed = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
        await self._head(writer, 200, {**reply.headers, **fixed})
        start = self._message(reply, model)
        start.update(content=[], stop_reason=None, usage=self._usage(reply, 1))
        await emit({"type": "message_start", "message": start})
        for index, block in enumerate(reply.blocks):
            opening = {"index": index, "content_block": _opening(block)}
            await emit({"type": "content_block_start", **opening})
            for gap, delta in _deltas(block):
                await asyncio.sleep(gap)
                await emit({"type": "content_block_delta", "index": index, "delta": delta})
                if reply.cut:
                    await asyncio.sleep(0.2)
                    writer.transport.abort()
                    return
            await emit({"type": "content_block_stop", "index": index})
        ending = {"stop_reason": reply.reason(), "stop_sequence": None}
        usage = self._usage(reply, reply.output_tokens)
        await emit({"type": "message_delta", "delta": ending, "usage": usage})
        await emit({"type": "message_stop"})
        writer.write(b"0\r\n\r\n")
        await writer.drain()
