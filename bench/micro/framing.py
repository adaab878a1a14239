"""Framing and the shallow scan: cost per line, cost of chunking, speed on over-long lines.

    python bench/micro/framing.py

Exits with 1 if a limit of the tables is broken. Needs Bridle importable and nothing else.
"""

from __future__ import annotations

import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence

from bridle._engine.wire.framing import LineFramer
from bridle._engine.wire.oversized import ShallowScan

RUNS = 9
MIB = 1024 * 1024
READ = 64 * 1024

LINE = b'{"type":"assistant","text":"' + b"x" * 370 + b'"}\n'


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Median and relative spread (interquartile range over median) of several runs."""
    times: list[float] = []
    for _ in range(RUNS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    low, median, high = statistics.quantiles(times, n=4)
    return median, (high - low) / median


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def frame(chunks: Sequence[bytes]) -> None:
    framer = LineFramer()
    for chunk in chunks:
        framer.feed(chunk)


def split(chunks: Sequence[bytes]) -> None:
    for chunk in chunks:
        chunk.split(b"\n")


def scan(pieces: Sequence[bytes]) -> None:
    scanner = ShallowScan()
    for piece in pieces:
        scanner.feed(piece)


def ratio(what: str, work: Callable[[], object], base: Callable[[], object], limit: float) -> bool:
    """`work` against `base`, measured side by side."""
    base_time, base_spread = seconds(base)
    work_time, work_spread = seconds(work)
    value = work_time / base_time
    print(
        f"{what:<56} {work_time * 1e3:8.2f} ms ±{work_spread:4.0%}"
        f" {base_time * 1e3:8.2f} ms ±{base_spread:4.0%} {value:6.2f}x  (limit {limit:g}x)"
    )
    return value <= limit


def speed(what: str, opening: bytes, filling: bytes, closing: bytes, limit: float) -> bool:
    """Scan a line of which 8 MiB are `filling`."""
    line = opening + filling * (8 * MIB // len(filling)) + closing
    pieces = cut(line, READ)
    taken, spread = seconds(lambda: scan(pieces))
    value = len(line) / taken / 1e6
    print(f"{what:<56} {value:8.0f} MB/s ±{spread:4.0%}  (limit {limit:g} MB/s)")
    return value >= limit


def framing() -> list[bool]:
    wholes = [LINE * (READ // len(LINE))] * 200
    reads = cut(LINE * (8 * MIB // len(LINE)), READ)
    long = b"x" * (15 * MIB) + b"\n"
    small = LINE * 64
    pages, bits, halves = cut(long, 4096), cut(small * 16, 1), cut(small * 8, 1)
    return [
        ratio(
            f"200 reads of {READ // len(LINE)} whole lines / bare split of each",
            lambda: frame(wholes),
            lambda: split(wholes),
            1.3,
        ),
        ratio(
            "8 MiB of lines in 64 KiB reads / bare split of each",
            lambda: frame(reads),
            lambda: split(reads),
            1.5,
        ),
        ratio(
            "one 15 MiB line in 4 KiB reads / bare split and join of them",
            lambda: frame(pages),
            lambda: b"".join([page.split(b"\n")[0] for page in pages]),
            2.0,
        ),
        ratio(
            "lines in 1-byte reads, 2n bytes / n bytes",
            lambda: frame(bits),
            lambda: frame(halves),
            2.5,
        ),
    ]


def scanning() -> list[bool]:
    value = b'{"type":"user","message":{"content":'
    tail = b'},"uuid":"u"}'
    return [
        speed("one base64 string", value + b'"', b"iVBORw0KGgoAAAANSUhEUg", b'"' + tail, 60),
        speed("escaped JSON in a string", value + b'"', b'{\\"a\\": 1},\\n', b'"' + tail, 60),
        speed("small objects in an array", value + b"[", b'{"a":1,"b":[2,3]},', b"0]" + tail, 3),
        speed("short strings in an array", value + b"[", b'"ab",', b"0]" + tail, 3),
        speed("as many top-level members", b'{"type":"user",', b'"a":1,', b'"uuid":"u"}', 3),
    ]


def main() -> int:
    print(f"python {platform.python_version()}, {RUNS} runs each: median ± interquartile range")
    held = [*framing(), *scanning()]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
