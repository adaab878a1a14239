"""What `decode_line` costs on top of the bare typed decoder, on the lines a session is made of.

Both read the same bytes into the same classes in one run, so the ratio holds on any machine.
Run: python bench/micro/decode.py
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter_ns
from typing import Any, Union

import msgspec

from bridle._engine.wire.codec import decode_line
from bridle.controls import ControlFrame
from bridle.messages import Message, UnknownMessage

ROUNDS = 41
CALLS = 4000

IDS = {"session_id": "6f1c0a52-8a1e-4f0e-9f0b-0c3a4d5e6f70", "parent_tool_use_id": None}
USAGE = {
    "input_tokens": 10,
    "output_tokens": 1,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}
LINES: dict[str, dict[str, Any]] = {
    "assistant, small": {
        "type": "assistant",
        "message": {
            "id": "msg_01",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5",
            "content": [{"type": "text", "text": "Four."}],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": USAGE,
        },
        **IDS,
        "uuid": "b7a1c7c0-0000-4000-8000-000000000001",
    },
    "stream_event, text delta": {
        "type": "stream_event",
        "event": {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "and so on "},
        },
        **IDS,
        "uuid": "b7a1c7c0-0000-4000-8000-000000000002",
    },
    "user, tool result": {
        "type": "user",
        "message": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_01", "content": "ok\n" * 40}],
        },
        **IDS,
        "uuid": "b7a1c7c0-0000-4000-8000-000000000003",
        "tool_use_result": {"stdout": "ok\n" * 40, "stderr": "", "interrupted": False},
    },
    "result": {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "duration_ms": 1234,
        "duration_api_ms": 1000,
        "num_turns": 2,
        "result": "Four.",
        "total_cost_usd": 0.01,
        "usage": USAGE,
        "modelUsage": {"claude-sonnet-4-5": {"inputTokens": 10, "costUSD": 0.01}},
        "permission_denials": [],
        **IDS,
        "uuid": "b7a1c7c0-0000-4000-8000-000000000004",
    },
    "control_request, hook": {
        "type": "control_request",
        "request_id": "b7a1c7c0-0000-4000-8000-000000000005",
        "request": {
            "subtype": "hook_callback",
            "callback_id": "hook_0",
            "input": {"hook_event_name": "PreToolUse", "tool_input": {"command": "ls"}},
            "tool_use_id": "toolu_01",
        },
    },
    "assistant, not ASCII": {
        "type": "assistant",
        "message": {"id": "msg_01", "content": [{"type": "text", "text": "naïve → ☃ " * 20}]},
        **IDS,
    },
}


def bare_decoder() -> Callable[[bytes], object]:
    kinds: list[type] = [*Message.__subclasses__(), *ControlFrame.__subclasses__()]
    kinds.remove(UnknownMessage)
    union: Any = Union[tuple(kinds)]  # noqa: UP007
    return msgspec.json.Decoder(union).decode


def nanoseconds(function: Callable[[bytes], object], line: bytes) -> float:
    start = perf_counter_ns()
    for _ in range(CALLS):
        function(line)
    return (perf_counter_ns() - start) / CALLS


def main() -> None:
    bare = bare_decoder()
    print(f"{'line':26}{'bytes':>6}{'bare µs':>10}{'decode_line µs':>16}{'ratio':>8}")
    for name, value in LINES.items():
        line = msgspec.json.encode(value)
        pairs = [(nanoseconds(bare, line), nanoseconds(decode_line, line)) for _ in range(ROUNDS)]
        plain = median(pair[0] for pair in pairs)
        ours = median(pair[1] for pair in pairs)
        ratio = median(pair[1] / pair[0] for pair in pairs)
        print(f"{name:26}{len(line):6}{plain / 1e3:10.3f}{ours / 1e3:16.3f}{ratio:8.2f}")


if __name__ == "__main__":
    main()
