"""The floor: a pipe, asyncio, and msgspec into typed records. Nothing a product needs besides.

Lines are decoded in the read callback and handed over a read at a time. There are no options, no
limits, no errors, no second reader, no bounds, and nobody sees to the process.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from io import BytesIO
from typing import IO, Any, cast

import msgspec
from msgspec import Struct

from bench.jobs import Job, main

_READ = 1 << 16


class TextBlock(Struct, tag="text"):
    """A block of text."""

    text: str


class ToolUse(Struct, tag="tool_use"):
    """A call of a tool."""

    id: str
    name: str
    input: dict[str, Any]


class ApiMessage(Struct):
    """A message of the API's."""

    id: str
    model: str
    content: list[TextBlock | ToolUse]
    stop_reason: str | None
    usage: dict[str, Any] | None = None


class Assistant(Struct, tag="assistant"):
    """A message of the model's."""

    message: ApiMessage
    session_id: str
    uuid: str
    parent_tool_use_id: str | None


class TextDelta(Struct, tag="text_delta"):
    """More text."""

    text: str


class BlockDelta(Struct, tag="content_block_delta"):
    """More of a block."""

    index: int
    delta: TextDelta


class BlockStop(Struct, tag="content_block_stop"):
    """The end of a block."""

    index: int


class StreamEvent(Struct, tag="stream_event"):
    """A step of an answer."""

    event: BlockDelta | BlockStop
    session_id: str
    uuid: str
    parent_tool_use_id: str | None


class User(Struct, tag="user"):
    """An echo or a tool's result."""

    message: dict[str, Any]


class System(Struct, tag="system"):
    """A word of the CLI's own."""

    subtype: str


class Result(Struct, tag="result"):
    """The end of a turn."""

    subtype: str
    is_error: bool
    usage: dict[str, Any]
    result: str | None = None


class Question(Struct, tag="control_request"):
    """A question of the CLI."""

    request_id: str
    request: dict[str, Any]


class Response(Struct, tag="control_response"):
    """An answer of the CLI."""

    response: dict[str, Any]


Frame = Assistant | StreamEvent | User | System | Result | Question | Response

_decode = msgspec.json.Decoder[Frame](Frame).decode
_encode = msgspec.json.Encoder().encode
_INITIALIZE = {
    "type": "control_request",
    "request_id": "req_0",
    "request": {
        "subtype": "initialize",
        "hooks": {"PreToolUse": [{"matcher": None, "hookCallbackIds": ["hook_0"]}]},
    },
}
_ALLOW = {"behavior": "allow", "updatedInput": {}}
_SUM = {
    "mcp_response": {
        "jsonrpc": "2.0",
        "id": 2,
        "result": {"content": [{"type": "text", "text": "4.5"}]},
    }
}
_PAYLOADS = {"hook_callback": {}, "can_use_tool": _ALLOW, "mcp_message": _SUM}


class Driver:
    """See `bench.jobs.Driver`."""

    _process: subprocess.Popen[bytes]

    async def open(self, job: Job, cli: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = subprocess.Popen(
            [cli], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._output = cast("IO[bytes]", self._process.stdout).fileno()
        self._input = cast("IO[bytes]", self._process.stdin).fileno()
        self._pieces: list[bytes] = []
        self._frames: list[Frame] = []
        self._waiter: asyncio.Future[None] | None = None
        self._answered = self._loop.create_future()
        os.set_blocking(self._output, False)
        self._loop.add_reader(self._output, self._on_readable)
        self._write(_INITIALIZE)
        await self._answered

    async def ask(self, prompt: str = "go") -> None:
        message = {"role": "user", "content": prompt}
        self._write({"type": "user", "message": message, "session_id": ""})

    async def first(self) -> None:
        await self._more()

    async def read(self) -> int:
        count = size = 0
        while True:
            for frame in await self._more():
                count += 1
                if isinstance(frame, Assistant):
                    for block in frame.message.content:
                        size += len(block.text) if isinstance(block, TextBlock) else 0
                elif isinstance(frame, StreamEvent):
                    event = frame.event
                    size += len(event.delta.text) if isinstance(event, BlockDelta) else 0
                elif isinstance(frame, Result):
                    assert frame.usage is not None
                    assert size
                    return count

    async def outcome(self) -> None:
        await self.ask()
        await self.read()

    async def operate(self) -> None:
        self._answered = self._loop.create_future()
        request = {"subtype": "set_model", "model": "sonnet"}
        self._write({"type": "control_request", "request_id": "req_1", "request": request})
        await self._answered

    async def close(self) -> None:
        self._loop.remove_reader(self._output)
        for file in (self._process.stdin, self._process.stdout):
            cast("IO[bytes]", file).close()
        self._process.wait()

    async def drop(self) -> None:
        self._process.kill()
        await self.close()

    def _write(self, frame: object) -> None:
        os.write(self._input, _encode(frame) + b"\n")

    def _on_readable(self) -> None:
        data = os.read(self._output, _READ)
        lines = BytesIO(data).readlines()
        rest = b"" if data.endswith(b"\n") else lines.pop()
        if not lines:
            self._pieces.append(rest)
            return
        lines[0] = b"".join((*self._pieces, lines[0]))
        self._pieces = [rest]
        for line in lines:
            frame = _decode(line)
            kind = type(frame)
            if kind is Question:
                self._answer(cast("Question", frame))
            elif kind is Response:
                self._answered.set_result(None)
            else:
                self._frames.append(frame)
        if self._frames and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _answer(self, question: Question) -> None:
        payload = _PAYLOADS[question.request["subtype"]]
        response = {
            "subtype": "success",
            "request_id": question.request_id,
            "response": payload,
        }
        self._write({"type": "control_response", "response": response})

    async def _more(self) -> list[Frame]:
        if not self._frames:
            self._waiter = self._loop.create_future()
            await self._waiter
        frames, self._frames = self._frames, []
        return frames


if __name__ == "__main__":
    main(Driver)
