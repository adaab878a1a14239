"""A program that uses a conversation of a store, and can be killed.

``python -m tests.support.killed OPTIONS`` with the options of an agent, the url of a store and,
for a pool, a key as JSON. It prints the id of the session after its first turn, and waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.processes import until

import bridle
from bridle.sessions import PostgresStore, SqliteStore
from bridle.sessions._outbox.spool import state_directory

ROOT = Path(__file__).parents[2]


def store_at(url: str) -> SqliteStore | PostgresStore:
    """The store of all programs of a test."""
    return PostgresStore(url) if url.startswith("postgres") else SqliteStore(url)


@contextlib.contextmanager
def running(url: str, key: str | None = None, **options: Any) -> Iterator[tuple[str, Any]]:
    """Start the program. Yield the id of its session, and its process."""
    words = json.dumps({"url": url, "key": key, "options": options})
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.killed", words],
        cwd=ROOT,
        env=os.environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def _main(url: str, key: str | None, options: dict[str, Any]) -> None:
    agent = bridle.Agent(store=store_at(url), **options)

    async def use(session: bridle.Session) -> None:
        outcome = await (await session.send_user_message("SAY One."))
        # A thread writes that this program has the lease.
        leases = Path(state_directory(), "leases")
        await until(lambda: any(one.suffix == "" for one in leases.glob("*")))
        print(outcome.session_id, flush=True)
        await asyncio.Event().wait()

    if key is None:
        async with agent.session() as session:
            await use(session)
    async with agent.pool(size=1) as pool, pool.session(key=key) as session:
        await use(session)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    asyncio.run(_main(given["url"], given["key"], given["options"]))
