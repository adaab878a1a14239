"""The client of a recorded session: prompts, responses, waiting, and the transcript."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripted_api import Script

Json = dict[str, Any]
Predicate = Callable[[Json], bool]
Answer = Json | None
Responder = Callable[[Json], Answer]


def prompt_uuid(number: int) -> str:
    """Return the uuid of prompt ``number`` of a scenario."""
    return f"00000000-0000-4000-8000-{number:012d}"


def frame_is(kind: str, subtype: str | None = None, **fields: Any) -> Predicate:
    """Return a predicate for frames of a type, optionally with a subtype and fields."""

    def check(frame: Json) -> bool:
        if frame.get("type") != kind:
            return False
        if subtype is not None and frame.get("subtype") != subtype:
            return False
        return all(frame.get(name) == value for name, value in fields.items())

    return check


def request_is(subtype: str) -> Predicate:
    """Return a predicate for control requests of the CLI."""

    def check(frame: Json) -> bool:
        request = frame.get("request")
        return frame.get("type") == "control_request" and (
            isinstance(request, dict) and request.get("subtype") == subtype
        )

    return check


def assistant_has(block_type: str, nested: bool = False) -> Predicate:
    """Return a predicate for assistant lines with a block of a type."""

    def check(frame: Json) -> bool:
        if frame.get("type") != "assistant":
            return False
        if bool(frame.get("parent_tool_use_id")) is not nested:
            return False
        return any(block.get("type") == block_type for block in frame["message"]["content"])

    return check


def allow(request: Json) -> Json:
    """Permit a tool call unchanged."""
    return {"behavior": "allow", "updatedInput": request["input"]}


def no_output(_: Json) -> Json:
    """Return an empty hook response."""
    return {}


def calculator(message: Json) -> Json:
    """Answer as an MCP server with one tool: ``add`` returns the sum of ``a`` and ``b``."""
    method = message.get("method")
    reply: Json = {"jsonrpc": "2.0"}
    if "id" in message:
        reply["id"] = message["id"]
    if method == "initialize":
        reply["result"] = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "calc", "version": "1.0.0"},
        }
    elif method == "tools/list":
        number = {"type": "number"}
        schema = {
            "type": "object",
            "properties": {"a": number, "b": number},
            "required": ["a", "b"],
        }
        tool = {"name": "add", "description": "Add two numbers.", "inputSchema": schema}
        reply["result"] = {"tools": [tool]}
    elif method == "tools/call":
        arguments = message["params"]["arguments"]
        total = str(arguments["a"] + arguments["b"])
        reply["result"] = {"content": [{"type": "text", "text": total}]}
    else:
        reply["result"] = {}
    return reply


class Transcript:
    """Collects the lines of one recording and makes them machine-independent."""

    def __init__(self, replacements: Sequence[tuple[str, str]]) -> None:
        self._start = time.monotonic()
        self._replacements = replacements
        self.lines: list[Json] = []

    def add(self, direction: str, line: str) -> None:
        """Append one line, stamped with the time since the start."""
        for old, new in self._replacements:
            line = line.replace(old, new)
        elapsed = round(time.monotonic() - self._start, 3)
        self.lines.append({"t": elapsed, "dir": direction, "line": line})

    def meta(self, fact: Json) -> None:
        """Append a note for human readers."""
        self.add("meta", json.dumps(fact, ensure_ascii=False))

    def write(self, path: Path) -> None:
        """Store the recording."""
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self.lines)
        path.write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Scenario:
    """A named scenario: the start of the CLI, the replies of the API, and the input."""

    name: str
    play: Callable[[Session], Awaitable[None]]
    script: Script
    args: tuple[str, ...] = ()
    env: Mapping[str, str | None] = field(default_factory=dict)
    hooks: Mapping[str, Responder] = field(default_factory=dict)
    permission: Responder = allow
    timeout: float = 60.0
    #: A scenario that runs before, in the same home and with the same API. It is not recorded.
    after: Scenario | None = None


class Session:
    """The client of one running CLI."""

    def __init__(
        self, scenario: Scenario, process: asyncio.subprocess.Process, log: Transcript
    ) -> None:
        self._scenario = scenario
        self._process = process
        self._log = log
        self._frames: list[Json] = []
        self._cursor = 0
        self._news = asyncio.Condition()
        self._last_output = time.monotonic()
        self._requests = 0
        self._prompts = 0
        self._ended = False

    @property
    def pid(self) -> int:
        """Return the process id of the CLI."""
        return self._process.pid

    # -- writing ---------------------------------------------------------------------

    def write(self, *frames: Json) -> None:
        """Write frames to stdin with one write."""
        if self._process.stdin is None or self._ended:
            return
        lines = [json.dumps(frame, ensure_ascii=False) for frame in frames]
        for line in lines:
            self._log.add("in", line)
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write("".join(line + "\n" for line in lines).encode())

    def user(self, text: str, uuid: str | None = None) -> Json:
        """Return a user line with the next uuid, or with the given one."""
        if uuid is None:
            self._prompts += 1
            uuid = prompt_uuid(self._prompts)
        message = {"role": "user", "content": text}
        return {"type": "user", "message": message, "parent_tool_use_id": None, "uuid": uuid}

    def prompt(self, *texts: str) -> None:
        """Send one or more prompts at once."""
        self.write(*[self.user(text) for text in texts])

    def request(self, subtype: str, **fields: Any) -> Json:
        """Return a control request with a new id."""
        self._requests += 1
        body = {"subtype": subtype, **fields}
        return {"type": "control_request", "request_id": f"req_{self._requests}", "request": body}

    async def control(self, subtype: str, **fields: Any) -> Json:
        """Send a control request and wait for its answer."""
        frame = self.request(subtype, **fields)
        self.write(frame)
        wanted = frame["request_id"]
        return await self._find(
            lambda found: (
                found.get("type") == "control_response"
                and found["response"].get("request_id") == wanted
            ),
            keep_cursor=True,
        )

    async def initialize(self, **fields: Any) -> Json:
        """Send ``initialize`` with the hooks of the scenario."""
        hooks: Json = {}
        for callback in self._scenario.hooks:
            event = callback.partition(":")[0]
            hooks.setdefault(event, []).append({"matcher": None, "hookCallbackIds": [callback]})
        if hooks:
            fields["hooks"] = hooks
        return await self.control("initialize", **fields)

    async def eof(self) -> None:
        """Close stdin."""
        if self._process.stdin is not None and not self._ended:
            self._ended = True
            self._log.meta({"stdin": "EOF"})
            self._process.stdin.close()

    # -- waiting ---------------------------------------------------------------------

    async def wait(self, predicate: Predicate) -> Json:
        """Wait for the next frame that matches, after the last one found."""
        return await self._find(predicate, keep_cursor=False)

    async def result(self, count: int = 1) -> None:
        """Wait for ``count`` results."""
        for _ in range(count):
            await self.wait(frame_is("result"))

    async def quiet(self, seconds: float = 1.0) -> None:
        """Wait until no frame has arrived for this many seconds."""
        self._last_output = time.monotonic()
        while (left := self._last_output + seconds - time.monotonic()) > 0:
            await asyncio.sleep(left)

    async def pause(self, seconds: float) -> None:
        """Sleep."""
        await asyncio.sleep(seconds)

    async def _find(self, predicate: Predicate, keep_cursor: bool) -> Json:
        """Find the first matching frame at or after the cursor."""
        index = self._cursor
        async with self._news:
            while True:
                while index < len(self._frames):
                    frame = self._frames[index]
                    index += 1
                    if predicate(frame):
                        if not keep_cursor:
                            self._cursor = index
                        return frame
                await self._news.wait()

    # -- reading ---------------------------------------------------------------------

    async def read_output(self, stream: asyncio.StreamReader) -> None:
        """Record stdout and answer the CLI's requests."""
        while raw := await stream.readline():
            line = raw.decode("utf-8", "replace").rstrip("\n")
            self._log.add("out", line)
            self._last_output = time.monotonic()
            try:
                frame = json.loads(line)
            except ValueError:
                continue
            if not isinstance(frame, dict):
                continue
            if frame.get("type") == "control_request":
                self._respond(frame)
            async with self._news:
                self._frames.append(frame)
                self._news.notify_all()

    async def read_errors(self, stream: asyncio.StreamReader) -> None:
        """Record stderr."""
        while raw := await stream.readline():
            self._log.add("err", raw.decode("utf-8", "replace").rstrip("\n"))

    def _respond(self, frame: Json) -> None:
        """Answer a control request, unless the scenario leaves it open."""
        request: Json = frame["request"]
        subtype = request.get("subtype")
        answer: Answer
        if subtype == "can_use_tool":
            answer = self._scenario.permission(request)
        elif subtype == "hook_callback":
            answer = self._scenario.hooks[request["callback_id"]](request["input"])
        elif subtype == "mcp_message":
            answer = {"mcp_response": calculator(request["message"])}
        else:
            answer = {}
        if answer is None:
            return
        body = {"subtype": "success", "request_id": frame["request_id"], "response": answer}
        self.write({"type": "control_response", "response": body})
