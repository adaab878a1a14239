"""Histories of batches: programs append to a store and are killed at random moments.

``python -m tests.histories.batches PLAN`` is a program. It appends batches of entries to several
sessions at the same time, and writes a line to a log before each append and after it. `play` kills
one program after the other and returns what was sent, what was acknowledged and what the store has.
`judge` says what is wrong with that.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

from msgspec import Struct
from msgspec import json as msgjson
from tests.support.processes import until, wait_until
from tests.support.stores import Place

import bridle.sessions
from bridle.sessions import FencingStore, LeasingStore, SessionKey

ROOT = Path(__file__).parents[2]

SESSIONS = 4
"""Sessions that each program appends to. Every second one has a lease."""

LEASE = 0.3
"""Seconds of a lease in these programs."""

_LIMIT = 300.0
"""Seconds after which a program that does not get on fails the test."""


class Plan(Struct):
    """What a program does."""

    #: The number of the program.
    life: int
    seed: int
    log: str
    #: The class and the arguments of the store.
    store: tuple[str, dict[str, str]]


class Batch(Struct, frozen=True):
    """A batch that a program has sent."""

    session: int
    life: int
    number: int
    size: int

    @property
    def uuids(self) -> list[str]:
        return [f"{self.life}-{self.number}-{one}" for one in range(self.size)]


class History(Struct):
    """What was sent, in order, which of it was acknowledged, and what the store has at the end."""

    sent: list[Batch]
    acknowledged: set[Batch]
    #: The uuids of the entries of each session, in order.
    stored: list[list[str]]


def is_leased(session: int) -> bool:
    return session % 2 == 1


def key_of(session: int) -> SessionKey:
    return SessionKey(str(UUID(int=session, version=4)), project="-batches")


# ---------------------------------------------------------------- the program


async def run_program(plan: Plan) -> None:
    """Append batches until the program is killed."""
    name, arguments = plan.store
    store = getattr(bridle.sessions, name)(**arguments)
    await asyncio.gather(*(_append(plan, store, session) for session in range(SESSIONS)))


async def _append(plan: Plan, store: bridle.sessions.SessionStore, session: int) -> None:
    chance = random.Random(plan.seed * SESSIONS + session)
    key, owner = key_of(session), f"life-{plan.life}"
    log = os.open(plan.log, os.O_WRONLY | os.O_APPEND)
    number = 0
    while True:
        if is_leased(session):
            assert isinstance(store, LeasingStore)
            await until(partial(store.acquire, key.session_id, owner, LEASE))
        while True:
            batch = Batch(session, plan.life, number, chance.choice((1, 1, 2, 3, 8)))
            text = "x" * chance.choice((10, 200, 3000))
            entries = [{"uuid": uuid, "text": text} for uuid in batch.uuids]
            os.write(log, b"sent " + msgjson.encode(batch) + b"\n")
            if not is_leased(session):
                await store.append(key, entries)
            else:
                assert isinstance(store, FencingStore)
                if not await store.append_leased(key, entries, owner, LEASE):
                    break  # the lease has lapsed
            os.write(log, b"done " + msgjson.encode(batch) + b"\n")
            number += 1


# ---------------------------------------------------------------- the driver


def play(place: Place, directory: Path, seed: int, *, batches: int, kills: int) -> History:
    """Kill programs at random moments, until this many batches were acknowledged."""
    chance = random.Random(seed)
    directory.mkdir(parents=True)
    log = directory / "log"
    log.touch()
    for life in range(kills):
        plan = Plan(life, seed * 1000 + life, str(log), place.arguments)
        path = directory / "plan.json"
        path.write_bytes(msgjson.encode(plan))
        goal = batches * (life + 1) / kills
        program = subprocess.Popen(
            [sys.executable, "-m", "tests.histories.batches", str(path)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
        )
        try:
            _wait(program, log, goal)
            time.sleep(chance.uniform(0, 0.05))
        finally:
            program.kill()
            program.communicate()
    return asyncio.run(_history(place, log))


def _wait(program: subprocess.Popen[bytes], log: Path, goal: float) -> None:
    """Wait until this many batches are acknowledged."""

    def is_enough() -> bool:
        if program.poll() is not None:
            assert program.stderr is not None
            raise AssertionError(program.stderr.read().decode())
        return log.read_bytes().count(b"done ") >= goal

    wait_until(is_enough, _LIMIT)


async def _history(place: Place, log: Path) -> History:
    store = place.open()
    # An append of the program that was killed last may still be on its way.
    stored = await _stored(place)
    while stored != (latest := await _stored(place)):
        stored = latest
    await store.aclose()
    lines = log.read_bytes().splitlines()
    return History(
        sent=[_batch(line) for line in lines if line.startswith(b"sent ")],
        acknowledged={_batch(line) for line in lines if line.startswith(b"done ")},
        stored=stored,
    )


async def _stored(place: Place) -> list[list[str]]:
    store = place.open()
    found = [await store.load(key_of(session)) or [] for session in range(SESSIONS)]
    await store.aclose()
    return [[str(entry["uuid"]) for entry in entries] for entries in found]


def _batch(line: bytes) -> Batch:
    return msgjson.decode(line[5:], type=Batch)


# ---------------------------------------------------------------- the verdict


def judge(history: History) -> list[str]:
    """Return what is wrong with a history: what was acknowledged stays, whole and in order."""
    return [
        problem
        for session in range(SESSIONS)
        for problem in _judge(
            session,
            [one for one in history.sent if one.session == session],
            history.acknowledged,
            history.stored[session],
        )
    ]


def _judge(
    session: int, sent: Sequence[Batch], acknowledged: set[Batch], stored: Sequence[str]
) -> Iterator[str]:
    places: dict[str, list[int]] = {}
    for place, uuid in enumerate(stored):
        places.setdefault(uuid, []).append(place)
    # Where each batch begins in the store.
    begins: dict[Batch, int] = {}
    for batch in sent:
        found = [places.pop(uuid, []) for uuid in batch.uuids]
        what = f"session {session}: batch {batch.life}-{batch.number}"
        if not any(found):
            if batch in acknowledged:
                yield f"{what} was acknowledged and is lost"
            continue
        if any(len(one) > 1 for one in found):
            yield f"{what} is stored twice"
        first = found[0][0] if found[0] else -1
        if [one[:1] for one in found] != [[first + at] for at in range(batch.size)]:
            yield f"{what} is torn: {found}"
        begins[batch] = first
    for uuid in places:
        yield f"session {session}: {uuid} was never sent"
    latest: dict[int, int] = {}
    for batch in sorted(begins, key=begins.__getitem__):
        # No other program appends while one has the lease.
        of = 0 if is_leased(session) else batch.life
        rank = batch.life * 1_000_000 + batch.number
        if rank < latest.get(of, -1):
            yield f"session {session}: batch {batch.life}-{batch.number} is out of order"
        latest[of] = max(rank, latest.get(of, -1))


if __name__ == "__main__":
    asyncio.run(run_program(msgjson.decode(Path(sys.argv[1]).read_bytes(), type=Plan)))
