"""What reading stored sessions and runs costs, by how much is skipped, idle or not asked for.

    python bench/micro/growth.py                      # all cases, each at two sizes
    python bench/micro/growth.py files sqlite         # some cases
    python bench/micro/growth.py --src DIR            # another version of Bridle, from its sources

Each measurement is a new process. `README.md` beside the benchmarks has a table of the results.

Cases:

``files``, ``memory``, ``sqlite``, ``postgres``, ``redis``
    The last page of ten sessions, by the number of sessions: milliseconds, sessions that were
    read, and for files the bytes that were read.
``large``
    A page of ten sessions in an SQLite file, by the MB of each: milliseconds, and MB of memory.
``events``
    ``run.events()`` of a run that does nothing, by the MB of its transcript: per cent of a core.
``runs``
    ``fleet.runs()`` of nine runs, by the MB of each prompt: MB of memory.
``recover``
    A recovery of a session whose turn had ended, by the number of entries: seconds, and the CPU
    milliseconds of the longest step of the event loop.
``fork``, ``fork-sqlite``
    A fork, by the MB of the transcript: MB of memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

ROOT = Path(__file__).parents[2]
MB = 1 << 20
PAGE = 10
ID = "11111111-1111-4111-8111-111111111111"
Result = dict[str, float]
Case = Callable[[int, Path], Coroutine[Any, Any, Result]]


# ---------------------------------------------------------------- what is stored


def numbered(number: int) -> str:
    return str(UUID(int=number | 4 << 76 | 8 << 60))


def entry(kind: str, number: int, size: int, session_id: str) -> dict[str, Any]:
    """Return an entry of a conversation of about ``size`` bytes."""
    text = ("word " * (size // 5 + 1))[: max(size - 400, 5)]
    content: Any = text if kind == "user" else [{"type": "text", "text": text}]
    return {
        "parentUuid": numbered(number - 1) if number > 1 else None,
        "isSidechain": False,
        "type": kind,
        "uuid": numbered(number),
        "sessionId": session_id,
        "cwd": "/project",
        "timestamp": "2026-01-02T03:04:05.678Z",
        "message": {"role": kind, "id": f"msg_{number}", "model": "m", "content": content}
        | ({"stop_reason": "end_turn"} if kind == "assistant" else {}),
    }


def conversation(session_id: str, count: int, size: int) -> Iterator[dict[str, Any]]:
    """Yield a prompt, and answers of ``size`` bytes each."""
    yield entry("user", 1, 420, session_id)
    for number in range(2, count + 1):
        yield entry("assistant", number, size, session_id)


async def fill(store: Any, key: Any, entries: Iterator[dict[str, Any]]) -> None:
    """Append entries in parts, each of which a store takes within its timeout."""
    while part := list(itertools.islice(entries, 1000)):
        await store.append(key, part)


def write(path: Path, entries: Iterator[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for one in entries:
            file.write(json.dumps(one, separators=(",", ":")).encode() + b"\n")


# ---------------------------------------------------------------- measuring


def memory_now(field: str) -> float:
    """Return the memory of this process in MB: VmRSS is the present one, VmHWM the most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


async def memory_of(work: Callable[[], Awaitable[object]]) -> float:
    """Return by how many MB the memory grows while ``work`` runs."""
    Path("/proc/self/clear_refs").write_text("5")  # what was prepared does not count
    before = memory_now("VmRSS")
    await work()
    return memory_now("VmHWM") - before


async def longest_step(work: Callable[[], Awaitable[object]]) -> float:
    """Return the milliseconds of CPU time of the longest step of the event loop during ``work``.

    Other programs on the machine do not change it, and other threads hardly.
    """
    longest = 0.0
    last = 0.0

    async def tick() -> None:
        nonlocal longest, last
        while True:
            now = time.thread_time()
            longest, last = max(longest, now - last), now
            await asyncio.sleep(0)

    last = time.thread_time()
    ticking = asyncio.create_task(tick())
    try:
        await work()
    finally:
        await asyncio.sleep(0)
        ticking.cancel()
    return longest * 1000


# ---------------------------------------------------------------- listing


async def files(count: int, place: Path) -> Result:
    from bridle import sessions

    for number in range(count):
        name = numbered(number)
        path = place / "projects" / f"-project-{number % 5}" / f"{name}.jsonl"
        write(path, conversation(name, 4, 1000))
    await sessions.list_sessions(config_dir=place, limit=1)
    before, began = bytes_read(), time.perf_counter()
    found = await sessions.list_sessions(config_dir=place, limit=PAGE, offset=count - PAGE)
    seconds = time.perf_counter() - began
    assert len(found) == PAGE
    return {"ms": 1000 * seconds, "KB read": (bytes_read() - before) / 1024}


async def listed(store: Any, count: int) -> Result:
    from bridle import sessions
    from bridle.sessions import SessionKey

    for number in range(count):
        name = numbered(number)
        await store.append(SessionKey(name, project="-project"), [*conversation(name, 4, 1000)])
    await sessions.list_sessions(store=store, limit=1)
    loads = 0

    def counted(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:
            nonlocal loads
            loads += 1
            return await method(*arguments)

        return call

    for name in ("load", "load_ends"):
        if hasattr(store, name):
            setattr(store, name, counted(getattr(store, name)))
    began = time.perf_counter()
    found = await sessions.list_sessions(store=store, limit=PAGE, offset=count - PAGE)
    seconds = time.perf_counter() - began
    assert len(found) == PAGE
    await store.aclose()
    return {"ms": 1000 * seconds, "sessions read": loads}


async def memory(count: int, _: Path) -> Result:
    from bridle.sessions import MemoryStore

    return await listed(MemoryStore(), count)


async def sqlite(count: int, place: Path) -> Result:
    from bridle.sessions import SqliteStore

    return await listed(SqliteStore(place / "sessions.db"), count)


async def postgres(count: int, _: Path) -> Result:
    from bridle.sessions import PostgresStore

    with server("Postgres", "initdb", "postgres") as url:
        return await listed(PostgresStore(url), count)


async def redis(count: int, _: Path) -> Result:
    from bridle.sessions import RedisStore

    with server("Redis", "redis-server") as url:
        return await listed(RedisStore(url), count)


@contextlib.contextmanager
def server(kind: str, *programs: str) -> Iterator[str]:
    sys.path.insert(0, str(ROOT))
    from tests.support import servers

    paths = [servers._find(program) for program in programs]
    if None in paths:
        raise SystemExit(f"{kind} is not installed")
    one = getattr(servers, f"{kind}Server")(*paths)
    try:
        one.start()
        yield one.url
    finally:
        one.close()


async def large(megabytes: int, place: Path) -> Result:
    from bridle import sessions
    from bridle.sessions import SessionKey, SqliteStore

    store = SqliteStore(place / "sessions.db")
    for number in range(PAGE):
        entries = conversation(numbered(number), megabytes * MB // 4000, 4000)
        await fill(store, SessionKey(numbered(number)), entries)
    began = time.perf_counter()
    grown = await memory_of(lambda: sessions.list_sessions(store=store, limit=PAGE))
    seconds = time.perf_counter() - began
    await store.aclose()
    return {"ms": 1000 * seconds, "MB": grown}


# ---------------------------------------------------------------- fleet


async def events(megabytes: int, place: Path) -> Result:
    import bridle
    from bridle.fleet import Fleet
    from bridle.sessions import SessionKey

    seconds = 10.0
    fleet = Fleet(bridle.Agent(), f"sqlite:///{place}/runs.db")
    run = await fleet.submit("Look")
    session_id = (await run.info()).session_id
    count = megabytes * MB // 4000
    await fill(fleet.store, SessionKey(session_id), conversation(session_id, count, 4000))
    used = begun = 0.0
    seen = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(None) as limit:
            async for _ in run.events():
                seen += 1
                if seen == count + 1:  # all messages, and the status
                    await asyncio.sleep(1)
                    used, begun = time.process_time(), time.perf_counter()
                    limit.reschedule(asyncio.get_running_loop().time() + seconds)
    share = (time.process_time() - used) / (time.perf_counter() - begun)
    await fleet.aclose()
    return {"% of a core": 100 * share}


async def runs(megabytes: int, place: Path) -> Result:
    import bridle
    from bridle.fleet import Fleet

    fleet = Fleet(bridle.Agent(), f"sqlite:///{place}/runs.db")
    prompt = "word " * (megabytes * MB // 5)
    for _ in range(9):
        await fleet.submit(prompt)
    del prompt

    async def read() -> None:
        listed = [run async for run in fleet.runs()]
        assert len(listed) == 9

    grown = await memory_of(read)
    await fleet.aclose()
    return {"MB": grown}


# ---------------------------------------------------------------- recovery


async def recover(count: int, place: Path) -> Result:
    import bridle
    from bridle._records.session_store import JOURNAL
    from bridle.sessions import SessionKey, SqliteStore
    from bridle.sessions._journal import PromptEntry, encode_entry

    os.environ["CLAUDE_CONFIG_DIR"] = str(place / "config")
    os.environ["XDG_STATE_HOME"] = str(place / "state")
    store = SqliteStore(place / "sessions.db", timeout=600.0)
    prompt = PromptEntry(uuid="p", at=0.0, prompt_uuid=numbered(1), content="Look", cwd=str(place))
    await fill(store, SessionKey(ID), conversation(ID, count, 2000))
    await store.append(SessionKey(ID, JOURNAL), [encode_entry(prompt)])
    agent = bridle.Agent(store=store, cwd=str(place), load_timeout=600.0)
    began = time.perf_counter()

    async def work() -> None:
        outcomes = await agent.recover(ID)
        assert [one.reason for one in outcomes] == ["completed"]

    step = await longest_step(work)
    seconds = time.perf_counter() - began
    await store.aclose()
    return {"s": seconds, "longest step, ms": step}


async def fork(megabytes: int, place: Path) -> Result:
    from bridle import sessions

    write(place / "projects" / "-p" / f"{ID}.jsonl", conversation(ID, megabytes * MB // 4000, 4000))
    grown = await memory_of(lambda: sessions.fork(ID, config_dir=place))
    return {"MB": grown, "times its size": grown / megabytes}


async def fork_sqlite(megabytes: int, place: Path) -> Result:
    from bridle import sessions
    from bridle.sessions import SessionKey, SqliteStore

    store = SqliteStore(place / "sessions.db", timeout=600.0)
    await fill(store, SessionKey(ID), conversation(ID, megabytes * MB // 4000, 4000))
    await store.aclose()
    grown = await memory_of(lambda: sessions.fork(ID, store=store))
    await store.aclose()
    return {"MB": grown, "times its size": grown / megabytes}


# ---------------------------------------------------------------- the program

CASES: dict[str, tuple[Case, tuple[int, int], str]] = {
    "files": (files, (1_000, 10_000), "sessions"),
    "memory": (memory, (1_000, 10_000), "sessions"),
    "sqlite": (sqlite, (1_000, 10_000), "sessions"),
    "postgres": (postgres, (1_000, 10_000), "sessions"),
    "redis": (redis, (1_000, 10_000), "sessions"),
    "large": (large, (1, 10), "MB each"),
    "events": (events, (8, 80), "MB"),
    "runs": (runs, (2, 20), "MB each"),
    "recover": (recover, (10_000, 100_000), "entries"),
    "fork": (fork, (10, 100), "MB"),
    "fork-sqlite": (fork_sqlite, (10, 100), "MB"),
}


def main(words: list[str]) -> None:
    source = words[words.index("--src") + 1] if "--src" in words else None
    wanted = [word for word in words if word in CASES] or list(CASES)
    environment = os.environ | ({"PYTHONPATH": source} if source else {})
    for name in wanted:
        _, sizes, unit = CASES[name]
        for size in sizes:
            command = [sys.executable, __file__, "--one", name, str(size)]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
            if done.returncode:
                print(f"{name:12} {size:>7,} {unit}: failed")
                continue
            found = json.loads(done.stdout.splitlines()[-1])
            figures = "   ".join(f"{value:9,.1f} {what}" for what, value in found.items())
            print(f"{name:12} {size:>7,} {unit:9} {figures}", flush=True)


def one(name: str, size: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        found = asyncio.run(CASES[name][0](size, Path(place)))
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2], int(sys.argv[3]))
    else:
        main(sys.argv[1:])
