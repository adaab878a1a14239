"""What the fake CLI is told to do: payloads, questions, and the executable that runs a plan.

A payload is a block of whole lines, made once and written to a file; the fake CLI repeats it.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.fake_cli import VERSION, Plan

SESSION = "6f1c0a52-8a1e-4f0e-9f0b-0c3a4d5e6f70"
MODEL = "claude-sonnet-4-5"
BLOCK = 1 << 20
"""Bytes of lines that are made; what exceeds them is repetition."""

Json = dict[str, Any]

_USAGE: Json = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 1,
    "service_tier": "standard",
}
_CODE = 'def total(items):\n    """Sum up."""\n    return sum(item.price for item in items)\n\n\n'
"""Text as it is read and written all day: an escape in every line, ASCII."""


def _line(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _ids(number: int) -> Json:
    return {
        "parent_tool_use_id": None,
        "session_id": SESSION,
        "uuid": f"b7a1c7c0-0000-4000-8000-{number:012x}",
    }


def assistant(number: int, text: str) -> Json:
    """A message of the model's."""
    message = {
        "model": MODEL,
        "id": f"msg_{number:08x}",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": text}],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _USAGE,
    }
    return {"type": "assistant", "message": message, **_ids(number)}


def delta(number: int) -> Json:
    """A few words of a message under way."""
    step = {"type": "text_delta", "text": f"word {number} and some"}
    event = {"type": "content_block_delta", "index": 0, "delta": step}
    return {"type": "stream_event", "event": event, **_ids(number)}


def _code(size: int) -> str:
    return (_CODE * (size // len(_CODE) + 1))[:size]


# By name: how line number n is made.
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

# By name: the question, what must stand in the answer, and what comes before the first one.
QUESTIONS: dict[str, tuple[Json, str, list[Json]]] = {
    "hook": (
        {
            "subtype": "hook_callback",
            "callback_id": "HOOK",
            "input": {
                "session_id": SESSION,
                "transcript_path": "/transcript.jsonl",
                "cwd": "/",
                "permission_mode": "default",
                "hook_event_name": "PreToolUse",
                "tool_name": "Bash",
                "tool_input": {"command": "ls -l", "description": "List files"},
                "tool_use_id": "toolu_01",
            },
            "tool_use_id": "toolu_01",
        },
        "success",
        [],
    ),
    "permission": (
        {
            "subtype": "can_use_tool",
            "tool_name": "Bash",
            "input": {"command": "ls -l", "description": "List files"},
            "permission_suggestions": [],
            "tool_use_id": "toolu_01",
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
        """A file of that name."""
        return self._directory / name

    def payload(self, name: str, count: int) -> tuple[str, int, int]:
        """A file of lines, how often it is to be written, and how many lines that makes."""
        make = PAYLOADS[name]
        repeats = -(-count * len(_line(make(0))) // BLOCK) if count > 1 else 1
        per_block = max(1, count // repeats)
        path = self.path(f"{name.replace(' ', '')}-{per_block}.ndjson")
        if not path.exists():
            path.write_bytes(b"".join(_line(make(number)) for number in range(per_block)))
        return str(path), repeats, repeats * per_block

    def executable(self, act: str, *, echo: bool = False, **plan: Any) -> str:
        """An executable that plays a CLI by this plan."""
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
        """An executable that asks questions, and the file for how long the answers took."""
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
