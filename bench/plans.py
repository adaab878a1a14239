"""Plans for the fake CLI: payloads, requests, and the executable that runs a plan.

A payload is a block of whole lines in a file, which the fake CLI repeats. Messages, hooks and
permission requests come from recordings of the real CLI, with other texts and ids.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.fake_cli import VERSION, Plan

RECORDINGS = Path(__file__).parents[1] / "tests" / "wire" / "golden" / VERSION.split()[0]
SESSION = "6f1c0a52-8a1e-4f0e-9f0b-0c3a4d5e6f70"
MODEL = "claude-sonnet-4-5"
BLOCK = 1 << 20
"""The size of a payload file in bytes. More data is written by repeating it."""

Json = dict[str, Any]

_USAGE: Json = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 1,
    "service_tier": "standard",
}
_CODE = 'def total(items):\n    """Sum up."""\n    return sum(item.price for item in items)\n\n\n'
"""Typical text of a coding agent: ASCII, with an escape in every line."""


def _line(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def recorded(recording: str, *words: str) -> Json:
    """Return the first line of a recording that the real CLI wrote and that has all the words."""
    for entry in map(json.loads, (RECORDINGS / f"{recording}.ndjson").read_text().splitlines()):
        if entry.get("dir") == "out" and all(f'"{word}"' in entry["line"] for word in words):
            line: Json = json.loads(entry["line"])
            return line
    raise LookupError(f"{recording} has no line with {words}")


_ASSISTANT = recorded("permission_allow", "assistant", "text")
_DELTA = recorded("thinking_partial", "stream_event", "text_delta")


def _ids(number: int) -> Json:
    return {"session_id": SESSION, "uuid": f"b7a1c7c0-0000-4000-8000-{number:012x}"}


def assistant(number: int, text: str) -> Json:
    """Return a message with one block of text."""
    content = [{"type": "text", "text": text}]
    message = {**_ASSISTANT["message"], "id": f"msg_{number:08x}", "content": content}
    return {**_ASSISTANT, "message": message, **_ids(number)}


def delta(number: int) -> Json:
    """Return a text delta with a few words."""
    step = {"type": "text_delta", "text": f"word {number} and some"}
    return {**_DELTA, "event": {**_DELTA["event"], "delta": step}, **_ids(number)}


def _code(size: int) -> str:
    return (_CODE * (size // len(_CODE) + 1))[:size]


# By name: the function that makes line number n.
PAYLOADS: dict[str, Callable[[int], Json]] = {
    "small": lambda number: assistant(number, f"Answer {number}, as short as most of them are."),
    "delta": delta,
    "50 kB": lambda number: assistant(number, _code(47_000)),
    "900 kB": lambda number: assistant(number, _code(850_000)),
    "15 MB": lambda number: assistant(number, _code(14_000_000)),
}


_INIT: Json = {
    "type": "system",
    "subtype": "init",
    "cwd": "/",
    "session_id": SESSION,
    "tools": ["Bash", "Read"],
    "mcp_servers": [],
    "model": MODEL,
    "claude_code_version": VERSION.split()[0],
    "permissionMode": "default",
    "slash_commands": [],
    "apiKeySource": "none",
    "output_style": "default",
    "uuid": "b7a1c7c0-0000-4000-8000-ffffffffffff",
    "user_message_uuids": ["PROMPT"],
}
_ECHO: Json = {
    "type": "user",
    "message": {"role": "user", "content": "go"},
    "session_id": SESSION,
    "parent_tool_use_id": None,
    "uuid": "PROMPT",
    "isReplay": True,
}
_RESULT: Json = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "duration_ms": 10,
    "duration_api_ms": 5,
    "num_turns": 1,
    "result": "done",
    "stop_reason": "end_turn",
    "session_id": SESSION,
    "total_cost_usd": 0.0,
    "usage": _USAGE,
    "modelUsage": {},
    "permission_denials": [],
    "uuid": "b7a1c7c0-0000-4000-8000-eeeeeeeeeeee",
}


def _question(request: Json) -> str:
    frame = {"type": "control_request", "request_id": "ask-NUMBER", "request": request}
    return json.dumps(frame, separators=(",", ":"))


def _rpc(method: str, params: Json | None = None, **identity: int) -> Json:
    message = {"jsonrpc": "2.0", "method": method, **identity}
    if params is not None:
        message["params"] = params
    return {"subtype": "mcp_message", "server_name": "bench", "message": message}


_MCP_OPENING = [
    _rpc(
        "initialize",
        {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        },
        id=0,
    ),
    _rpc("notifications/initialized"),
    _rpc("tools/list", id=1),
]

_HOOK = recorded("hook_and_permission", "hook_callback", "PreToolUse")["request"]
_PERMISSION = recorded("hook_and_permission", "can_use_tool")["request"]
_WRITE = {"file_path": "/home/user/project/made.py", "content": _code(4_000)}

# By name: the request, text that the response must contain, and lines before the first request.
QUESTIONS: dict[str, tuple[Json, str, list[Json]]] = {
    "hook": ({**_HOOK, "callback_id": "HOOK"}, "success", []),
    "permission": (_PERMISSION, "allow", []),
    "permission to write 4 kB": (
        {
            **_PERMISSION,
            "tool_name": "Write",
            "display_name": "Write",
            "input": _WRITE,
            "description": "made.py",
        },
        "allow",
        [],
    ),
    "MCP tool call": (
        _rpc("tools/call", {"name": "add", "arguments": {"a": 1.5, "b": 3}}, id=2),
        "4.5",
        _MCP_OPENING,
    ),
}


# ---------------------------------------------------------------- plans


class Stage:
    """A directory of plans, payloads and reports, for one measured process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made = 0

    def path(self, name: str) -> Path:
        """Return the path of a file."""
        return self._directory / name

    def payload(self, name: str, count: int) -> tuple[str, int, int]:
        """Return a file of lines, how often to write it, and the total number of lines."""
        make = PAYLOADS[name]
        repeats = -(-count * len(_line(make(0))) // BLOCK) if count > 1 else 1
        per_block = max(1, count // repeats)
        path = self.path(f"{name.replace(' ', '')}-{per_block}.ndjson")
        if not path.exists():
            path.write_bytes(b"".join(_line(make(number)) for number in range(per_block)))
        return str(path), repeats, repeats * per_block

    def executable(self, act: str, *, echo: bool = False, **plan: Any) -> str:
        """Return an executable that acts as a CLI with this plan."""
        self._made += 1
        lines = [_INIT, *([_ECHO] if echo else []), assistant(0, "done")]
        whole: Plan = {
            "act": act,
            "head": b"".join(map(_line, lines)).decode(),
            "result": _line(_RESULT).decode(),
            **plan,
        }
        described = self.path(f"plan-{self._made}.json")
        described.write_text(json.dumps(whole))
        program = Path(__file__).with_name("fake_cli.py")
        command = shlex.join([sys.executable, "-I", "-S", str(program), str(described)])
        path = self.path(f"claude-{self._made}")
        path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        path.chmod(0o700)
        return str(path)

    def asking(self, kind: str, count: int, gap: float = 0.0) -> tuple[str, Path]:
        """Return an executable that sends requests, and the file for the response times."""
        request, expected, opening = QUESTIONS[kind]
        report = self.path(f"report-{self._made}.json")
        path = self.executable(
            "ask",
            question=_question(request),
            expect=expected,
            opening=[_question(each).replace("NUMBER", "opening") for each in opening],
            count=count,
            gap=gap,
            report=str(report),
        )
        return path, report
