"""What the engine adds to decoding: framing, routing, turns and delivery, per message.

The floor is msgspec alone: the same bytes, split at newlines and decoded into the same types by
one prepared decoder, kept in a list as the engine keeps them. Both run in turns, in one process;
the figure that counts is the ratio of their medians.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import msgspec

from bridle import AssistantMessage, StreamEvent
from bridle._engine.config import EngineConfig
from bridle._engine.engine import Engine

ROUNDS = 41
LINES_PER_CHUNK = 160
CHUNKS = 20
LIMIT = {"small": 1.6, "small, query": 1.6}
"""What a small message may cost, as a multiple of the floor."""

_IDS = {
    "session_id": "11111111-1111-4111-8111-111111111111",
    "uuid": "22222222-2222-4222-8222-222222222222",
    "parent_tool_use_id": None,
}
LINES: dict[str, dict[str, object]] = {
    "small": {
        "type": "assistant",
        "message": {
            "id": "msg_01",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5",
            "content": [{"type": "text", "text": "A short answer, as most of them are."}],
            "stop_reason": None,
            "usage": {"input_tokens": 10, "output_tokens": 1},
        },
        **_IDS,
    },
    "delta": {
        "type": "stream_event",
        "event": {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "word "},
        },
        **_IDS,
    },
}


def running_engine(*, is_one_way: bool) -> Engine:
    """An engine in the middle of a turn, of a session or of a query."""
    engine = Engine(EngineConfig(is_one_way=is_one_way))
    engine.start("start", 0.0)
    answer = {"subtype": "success", "request_id": "req_0", "response": {"capabilities": ["x"]}}
    engine.receive(_line({"type": "control_response", "response": answer}), 0.0)
    engine.send("prompt", "33333333-3333-4333-8333-333333333333", "hello", 0.0)
    return engine


def _line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one round."""
    before = time.process_time()
    for _ in range(CHUNKS):
        work()
    return time.process_time() - before


def compare(name: str, *, is_one_way: bool) -> tuple[str, float]:
    """Print one row; return its name and the ratio."""
    chunk = _line(LINES[name]) * LINES_PER_CHUNK
    decode = msgspec.json.Decoder(AssistantMessage | StreamEvent).decode
    engine = running_engine(is_one_way=is_one_way)

    def floor() -> object:
        return [decode(line) for line in chunk.split(b"\n") if line]

    def through_engine() -> object:
        return engine.receive(chunk, 1.0)

    pairs = [(seconds(floor), seconds(through_engine)) for _ in range(ROUNDS)]
    per_message = 1e6 / (CHUNKS * LINES_PER_CHUNK)
    bare = statistics.median(pair[0] for pair in pairs) * per_message
    full = statistics.median(pair[1] for pair in pairs) * per_message
    ratio = statistics.median(full_s / bare_s for bare_s, full_s in pairs)
    row, size = f"{name}, query" if is_one_way else name, len(chunk) // LINES_PER_CHUNK
    print(f"{row:<14}{size:>6}{bare:>12.2f}{full:>12.2f}{ratio:>9.2f}")
    return row, ratio


def main() -> int:
    """Exit 1 when a limit is broken."""
    print(f"{'message':<14}{'bytes':>6}{'msgspec us':>12}{'engine us':>12}{'ratio':>9}")
    ratios = dict(compare(name, is_one_way=way) for way in (False, True) for name in LINES)
    broken = [name for name, limit in LIMIT.items() if ratios[name] > limit]
    for name in broken:
        print(f"{name}: {ratios[name]:.2f} is over {LIMIT[name]}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
