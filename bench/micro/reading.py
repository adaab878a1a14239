"""What reading a message costs on top of decoding it, through the calls users make.

A message gives its content blocks their places on the raw line when they are first read. Each row
decodes a line and reads it; the ratio is to decoding alone. Lines are as the real CLI sends them.
Run: python bench/micro/reading.py, or with --instructions to count with perf or valgrind, which
no other process on the machine can change.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from subprocess import run
from time import perf_counter_ns
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bench import instructions  # noqa: E402  # the program is run by its path
from bench.plans import PAYLOADS  # noqa: E402

from bridle._engine.wire.codec import decode_line, encode_json  # noqa: E402
from bridle.content import TextBlock  # noqa: E402
from bridle.messages import ContentBlockDelta, TextDelta  # noqa: E402

ROUNDS = 41
CALLS = 2000


def decode(_: Any) -> None:
    """Read nothing."""


def first_text(message: Any) -> None:
    _ = message.content[0].text


def each_text(message: Any) -> None:
    for block in message.content:
        if isinstance(block, TextBlock):
            _ = block.text


def joined(message: Any) -> None:
    _ = message.text


def delta_text(message: Any) -> None:
    _ = message.event.delta.text


def checked_delta_text(message: Any) -> None:
    event = message.event
    if isinstance(event, ContentBlockDelta) and isinstance(event.delta, TextDelta):
        _ = event.delta.text


def text_delta(message: Any) -> None:
    _ = message.text_delta


# By name: the line, and how it is read.
READS: dict[str, tuple[str, Callable[[Any], None]]] = {
    "small: decode": ("small", decode),
    "small: content[0].text": ("small", first_text),
    "small: for block in content": ("small", each_text),
    "small: text": ("small", joined),
    "delta: decode": ("delta", decode),
    "delta: event.delta.text": ("delta", delta_text),
    "delta: event, checked": ("delta", checked_delta_text),
    "delta: text_delta": ("delta", text_delta),
}


def work(name: str, calls: int) -> None:
    payload, read = READS[name]
    line = encode_json(PAYLOADS[payload](7))
    for _ in range(calls):
        read(decode_line(line))


def nanoseconds(name: str) -> float:
    start = perf_counter_ns()
    work(name, CALLS)
    return (perf_counter_ns() - start) / CALLS


def counted(name: str) -> float:
    """Return the instructions of one call: the slope, so that starting up is left out."""
    counts: list[int] = []
    with tempfile.TemporaryDirectory() as directory:
        for calls in (CALLS, 3 * CALLS):
            log = Path(directory, str(calls))
            command = [sys.executable, __file__, name, str(calls)]
            run(instructions.counted(command, log), check=True, cwd=ROOT, capture_output=True)
            counts.append(instructions.count_in(log))
    return (counts[1] - counts[0]) / (2 * CALLS)


def main(arguments: list[str]) -> None:
    if len(arguments) == 2:
        work(arguments[0], int(arguments[1]))
        return
    counting = arguments == ["--instructions"]
    if counting:
        rounds = [{name: counted(name) for name in READS}]
    else:
        rounds = [{name: nanoseconds(name) for name in READS} for _ in range(ROUNDS)]
    print(f"{'read':30}{'instructions' if counting else 'µs':>14}{'to decoding':>14}")
    for name, (payload, _) in READS.items():
        alone = f"{payload}: decode"
        cost = median(each[name] for each in rounds)
        ratio = median(each[name] / each[alone] for each in rounds)
        shown = f"{cost:14,.0f}" if counting else f"{cost / 1e3:14.3f}"
        print(f"{name:30}{shown}{ratio:14.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
