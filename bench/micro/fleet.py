"""What it costs to submit and to claim a run of a fleet, by the number of runs in the queue.

Run: python bench/micro/fleet.py [runs] [database url]

Without a url, it measures an SQLite file, and PostgreSQL if the server is installed. A claim is one
look of a worker into the queue that takes up to `AT_ONCE` runs. The last column divides its time by
the runs that it took.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import json

from bridle import Agent, OutcomeReason
from bridle.fleet import Fleet
from bridle.fleet._queue.dbos_queue import Queue
from bridle.fleet._queue.executor import Executor
from bridle.fleet._queue.rows import SegmentResult
from bridle.sessions._journal import StoredOutcome

ROOT = Path(__file__).parents[2]
AT_ONCE = 10
CLAIMS = 5
"""How many claims are measured at each size of the queue."""

SIZES = (0.1, 0.3, 1.0)
"""Sizes of the queue, as parts of the number of runs."""


async def main(count: int, url: str, directory: str) -> None:
    """Measure one database."""
    print(f"{url.partition(':')[0]}:")
    print(f"  memory of an idle worker: {idle_worker(url, directory):.0f} MB")
    print("   queue    submit     claim   per run")
    fleet = Fleet(Agent(), url, name="bench")
    submitted = 0
    for part in SIZES:
        times: list[float] = []
        while submitted < int(count * part):
            began = time.perf_counter()
            await fleet.submit("x" * 200, key=str(submitted))
            times.append(time.perf_counter() - began)
            submitted += 1
        submit = median(times[-max(count // 20, 1) :])
        claims = await claim(url, min(CLAIMS, submitted // AT_ONCE // 4))
        whole = median(seconds for seconds, _ in claims)
        single = median(seconds / runs for seconds, runs in claims)
        print(
            f"{submitted:8} {1000 * submit:6.2f} ms {1000 * whole:6.2f} ms {1000 * single:6.2f} ms"
        )
    await fleet.aclose()


async def claim(url: str, count: int) -> list[tuple[float, int]]:
    """Claim runs some times. Return the seconds of each claim, and how many runs it took."""

    claims: list[tuple[float, int]] = []
    done = json.encode(
        SegmentResult(outcome=StoredOutcome(reason=OutcomeReason.COMPLETED))
    ).decode()

    async def run(_: str) -> str:
        return done

    async def scheduled(_: str, __: str) -> None: ...

    queue = Queue(url, "bench")
    take = queue.claim

    def timed(*arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        found = take(*arguments, **options)
        if found[0]:
            claims.append((time.perf_counter() - began, len(found[0])))
        return found

    executor = Executor(
        queue,
        f"bench-{time.time()}",
        at_once=AT_ONCE,
        fleet_at_once=None,
        tenant_at_once=None,
        run=run,
        scheduled=scheduled,
    )
    queue.claim = timed  # type: ignore[method-assign]
    try:
        await asyncio.to_thread(executor.start)
        while len(claims) < count:
            await asyncio.sleep(0.05)
        executor.stop_taking()
        while executor.active:
            await asyncio.sleep(0.05)
        await asyncio.to_thread(executor.stop)
    finally:
        queue.close()
    return claims


def idle_worker(url: str, directory: str) -> float:
    """Return the resident memory in MB of a worker that has no runs."""
    imports = "from bridle import Agent\nfrom bridle.fleet import Fleet\n"
    program = f"{imports}fleet = Fleet(Agent(), {url!r})\n"
    (Path(directory) / "app.py").write_text(program)
    command = [sys.executable, "-m", "bridle", "work", "app:fleet"]
    worker = subprocess.Popen(command, cwd=directory, stderr=subprocess.DEVNULL)
    try:
        sizes = [0.0]
        end = time.monotonic() + 60
        # Until it has not grown for some seconds.
        while len(sizes) < 6 or max(sizes[-6:]) - min(sizes[-6:]) > 1:
            time.sleep(1.0)
            lines = Path(f"/proc/{worker.pid}/status").read_text().splitlines()
            sizes.append(
                next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
            )
            assert time.monotonic() < end, "the worker keeps growing"
        return sizes[-1]
    finally:
        worker.terminate()
        worker.wait(60)


def databases(directory: str) -> Iterator[str]:
    """Yield the urls of new databases."""
    yield f"sqlite:///{directory}/runs.db"
    sys.path.insert(0, str(ROOT))
    from tests.support.servers import PostgresServer, _find

    initdb, postgres = _find("initdb"), _find("postgres")
    if initdb is None or postgres is None:
        print("PostgreSQL is not installed.")
        return
    with ExitStack() as stack:
        server = PostgresServer(initdb, postgres)
        stack.callback(server.close)
        server.start()
        yield server.url


if __name__ == "__main__":
    given = sys.argv[1:]
    with tempfile.TemporaryDirectory() as place:
        for one in given[1:2] or databases(place):
            asyncio.run(main(int(given[0]) if given else 10_000, one, place))
