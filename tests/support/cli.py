"""The CLI's side of a conversation, written by hand: its lines, and an engine that reads them.

Lines carry only what the engine looks at. Two flavours matter: a newer CLI names the prompts of a
turn, an older one only repeats them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from bridle._callbacks.results.serialise import serialise
from bridle._engine.actions import Action, Call, Deliver, Warn, Write
from bridle._engine.config import EngineConfig
from bridle._engine.engine import Engine
from bridle._engine.incoming.dispatch import IncomingConfig
from bridle._engine.wire.codec import decode_line
from bridle._records.callables import named
from bridle.controls import ControlFrame
from bridle.errors import ProcessInfo
from bridle.events import WarningKind
from bridle.messages import Message
from bridle.tools import ToolServer

Json = dict[str, Any]
Kind = TypeVar("Kind", bound=Action)

START = "start"
"""The key the engines made here are started under."""


# ------------------------------------------------------------------------- lines


def line(**members: object) -> bytes:
    """Any line."""
    return json.dumps(members).encode() + b"\n"


def system(subtype: str, **members: object) -> bytes:
    """A line about the session."""
    return line(type="system", subtype=subtype, **members)


def init(*uuids: str, session_id: str = "s1") -> bytes:
    """A turn begins. Newer CLIs name its prompts."""
    named = {"user_message_uuids": list(uuids)} if uuids else {}
    return system("init", session_id=session_id, **named)


def user(text: str, **members: object) -> bytes:
    """A user line that is no echo: a tool's result, or the CLI's own words."""
    return line(type="user", message={"role": "user", "content": text}, **members)


def echo(uuid: str, text: str = "prompt") -> bytes:
    """A prompt is taken into a turn."""
    return user(text, uuid=uuid, isReplay=True)


def assistant(text: str = "words", **members: object) -> bytes:
    """The model speaks."""
    message = {"role": "assistant", "model": "opus", "content": [{"type": "text", "text": text}]}
    return line(type="assistant", message=message, **members)


def synthetic(text: str, **members: object) -> bytes:
    """The CLI speaks in the model's place."""
    content = [{"type": "text", "text": text}]
    message = {"role": "assistant", "model": "<synthetic>", "content": content}
    return line(type="assistant", message=message, **members)


def result(*uuids: str, **members: object) -> bytes:
    """A turn ended, well unless the members say otherwise. Newer CLIs name its prompts."""
    named = {"user_message_uuids": list(uuids)} if uuids else {}
    clean = {"subtype": "success", "is_error": False, "terminal_reason": "completed"}
    return line(type="result", **{**clean, "num_turns": 1, **named, **members})


def follow_up(*uuids: str, **members: object) -> bytes:
    """The result of a turn about background work."""
    return result(*uuids, origin={"kind": "task-notification"}, **members)


def aborted(*uuids: str) -> bytes:
    """The result of an interrupted turn."""
    return result(
        *uuids,
        subtype="error_during_execution",
        is_error=True,
        terminal_reason="aborted_streaming",
    )


def stream_event(**members: object) -> bytes:
    """A piece of an answer under way."""
    return line(type="stream_event", event={"type": "ping"}, **members)


def lifecycle(uuid: str, *states: str) -> bytes:
    """A newer CLI says where a prompt stands."""
    return b"".join(line(type="command_lifecycle", command_uuid=uuid, state=s) for s in states)


def request(request_id: str | None, subtype: str, **fields: object) -> bytes:
    """The CLI asks."""
    named = {} if request_id is None else {"request_id": request_id}
    return line(type="control_request", request={"subtype": subtype, **fields}, **named)


def hook_callback(request_id: str, callback_id: str = "hook_0", **fields: object) -> bytes:
    """A hook before a tool is to run."""
    called = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {}}
    return request(
        request_id, "hook_callback", callback_id=callback_id, **{"input": called} | fields
    )


def can_use_tool(request_id: str, tool_name: str = "Bash", **fields: object) -> bytes:
    """May a tool run?"""
    return request(request_id, "can_use_tool", tool_name=tool_name, **{"input": {"a": 1}} | fields)


def mcp_message(request_id: str, message: Json, server: str = "tools") -> bytes:
    """A JSON-RPC message for a server in our process."""
    return request(request_id, "mcp_message", server_name=server, message=message)


def elicitation(request_id: str, **fields: object) -> bytes:
    """An MCP server wants something from the user."""
    return request(
        request_id, "elicitation", **{"mcp_server_name": "forms", "message": "?"} | fields
    )


def dialog(request_id: str, **fields: object) -> bytes:
    """Return a request to show a dialog."""
    asked: Json = {"dialog_kind": "pick", "payload": {"from": ["a", "b"]}}
    return request(request_id, "request_user_dialog", **asked | fields)


def withdrawal(request_id: str | None) -> bytes:
    """The CLI no longer waits for an answer."""
    named = {} if request_id is None else {"request_id": request_id}
    return line(type="control_cancel_request", **named)


def success(request_id: str, payload: Json | None = None) -> bytes:
    """A request of ours is answered."""
    content = {} if payload is None else {"response": payload}
    response = {"subtype": "success", "request_id": request_id, **content}
    return line(type="control_response", response=response)


def failure(request_id: str, error: str, **members: object) -> bytes:
    """A request of ours is refused."""
    response = {"subtype": "error", "request_id": request_id, "error": error, **members}
    return line(type="control_response", response=response)


def decoded(data: bytes) -> list[Message]:
    """The messages of whole lines."""
    frames = [decode_line(one) for one in data.splitlines()]
    return [frame for frame in frames if isinstance(frame, Message)]


def frame(data: bytes) -> ControlFrame:
    """The control frame of one line."""
    decoded_frame = decode_line(data.rstrip(b"\n"))
    assert isinstance(decoded_frame, ControlFrame)
    return decoded_frame


# ------------------------------------------------------------------------- engines

UNKNOWN = ProcessInfo()
NEWER: Json = {"capabilities": ["x"], "claude_code_version": "2.1.325"}
OLDER: Json = {"commands": []}
"""What either flavour answers to initialize."""


def idle(_: object) -> None:
    """A callback. The engine only hands it on."""


def started(process: ProcessInfo = UNKNOWN, **config: Any) -> Engine:
    """An engine whose initialize request is on its way, since time 0."""
    engine = Engine(EngineConfig(**config))
    engine.describe(**msgspec.structs.asdict(process))
    engine.start(START, 0.0)
    return engine


def running(info: Json = NEWER, **config: Any) -> Engine:
    """An engine of a confirmed session, at time 0."""
    engine = started(**config)
    engine.receive(success("req_0", info), 0.0)
    return engine


def feed(engine: Engine, now: float, *lines: bytes) -> list[Action]:
    """What the engine wants done upon these lines, read one by one."""
    return [action for one in lines for action in engine.receive(one, now)]


def begin(engine: Engine, now: float, *lines: bytes) -> list[Action]:
    """The same; the calls that come of it are made, and wait."""
    actions = feed(engine, now, *lines)
    for call in only(Call, actions):
        assert engine.started_call(call.call_id, now) == []
    return actions


def asking(**members: Any) -> IncomingConfig:
    """Return the configuration of callbacks, given as plain functions, and of MCP servers."""
    servers = members.pop("mcp_servers", {})
    for name in ("can_use_tool", "question", "plan", "elicitation", "dialog"):
        members[name] = named(members.get(name))
    tools = {name: one for name, one in servers.items() if isinstance(one, ToolServer)}
    handlers = {name: one for name, one in servers.items() if name not in tools}
    return IncomingConfig(tool_servers=tools, mcp_handlers=handlers, **members)


def finish(engine: Engine, call_id: int, result: object, now: float) -> list[Action]:
    """Report what a callback returned, serialised as the shell does."""
    call = engine._incoming.table.find(call_id)
    value = None if call is None else serialise(call, result)
    return engine.finished_call(call_id, value, now)


def only(kind: type[Kind], actions: Iterable[Action]) -> list[Kind]:
    """The actions of one kind."""
    return [action for action in actions if isinstance(action, kind)]


def written(actions: Iterable[Action]) -> list[Json]:
    """What the actions write, as JSON."""
    data = b"".join(action.data for action in only(Write, actions))
    return [json.loads(one) for one in data.splitlines()]


def payloads(actions: Iterable[Action]) -> dict[str, Any]:
    """The successful answers the actions write, by request id."""
    responses = [one["response"] for one in written(actions) if one["type"] == "control_response"]
    return {one["request_id"]: one["response"] for one in responses if one["subtype"] == "success"}


def errors(actions: Iterable[Action]) -> dict[str, str]:
    """The error answers the actions write, by request id."""
    responses = [one["response"] for one in written(actions) if one["type"] == "control_response"]
    return {one["request_id"]: one["error"] for one in responses if one["subtype"] == "error"}


def warned(actions: Iterable[Action]) -> list[WarningKind]:
    """What the actions warn of."""
    return [action.kind for action in only(Warn, actions)]


def delivered(actions: Iterable[Action]) -> list[tuple[str, tuple[str, ...]]]:
    """The type of each delivered message, with the prompts it is delivered to."""
    deliveries = only(Deliver, actions)
    return [(message.type, one.turns) for one in deliveries for message in one.messages]
