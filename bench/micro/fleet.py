"""What it costs to submit and to claim a run of a fleet, with up to 10,000 runs in the queue.

Run: python bench/micro/fleet.py [runs] [database url]
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from msgspec import json

from bridle._core.fleet_runs import Segment, SegmentResult, run_id_of_key
from bridle.fleet._dbos import Executor, Queue

AT_ONCE = 50


def memory() -> float:
    """Return the resident memory of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


async def main(count: int, url: str) -> None:
    queue = Queue(url, "bench")
    queue.open()
    times: list[float] = []
    for number in range(count):
        segment = Segment(run_id=run_id_of_key("bench", str(number)), prompt="x" * 200)
        began = time.perf_counter()
        queue.add(segment)
        times.append(time.perf_counter() - began)
    part = max(count // 10, 1)
    print(f"runs {count}, memory {memory():.0f} MB")
    print(f"submit, first tenth: {1000 * median(times[:part]):.2f} ms")
    print(f"submit, last tenth:  {1000 * median(times[-part:]):.2f} ms")

    started: list[float] = []

    async def run(_: str) -> str:
        started.append(time.perf_counter())
        return json.encode(SegmentResult()).decode()

    async def scheduled(_: str, __: str) -> None: ...

    executor = Executor(
        url,
        "bench",
        "bench-1",
        at_once=AT_ONCE,
        fleet_at_once=None,
        tenant_at_once=None,
        run=run,
        scheduled=scheduled,
    )
    await asyncio.to_thread(executor.start)
    print(f"memory of a worker without runs: {memory():.0f} MB")
    claims = min(count, 20 * AT_ONCE)
    while len(started) < claims:
        await asyncio.sleep(0.05)
    executor.stop_taking()
    # A worker looks into the queue twice a second and then claims up to `at_once` runs.
    gaps = [b - a for a, b in itertools.pairwise(started) if b - a < 0.2]
    print(f"claim and start, of {claims}: {1000 * median(gaps):.2f} ms")
    await asyncio.to_thread(executor.stop)
    queue.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        given = sys.argv[1:]
        asyncio.run(
            main(
                int(given[0]) if given else 10_000,
                given[1] if len(given) > 1 else f"sqlite:///{directory}/runs.db",
            )
        )
