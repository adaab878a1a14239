"""Histories of a conversation whose programs are killed after they have received an answer.

``python -m tests.histories.resumed PLAN`` is a program. It opens a conversation of a store, sends
prompts, and kills itself up to 50 ms after it has received an answer. `play` runs one after the
other, on one machine or on two, and returns which answers each of them received, of what it was
warned, and which prompts the conversation has. `judge` says what is wrong with a history.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, structs
from msgspec import json as msgjson
from tests.histories.programs import LIMIT, ROOT, clis_in, note, notes
from tests.support.processes import wait_until

import bridle
import bridle.sessions
from bridle import SdkWarning
from bridle.sessions import SessionKey, SqliteStore
from bridle.sessions._outbox import leases, store_writer
from bridle.testing import FakeCli
from bridle.testing.fake_cli import FLAVOURS

LEASE = 1.0
"""Seconds of a lease in these programs. Another machine waits until it has lapsed."""

DOORS = ("session", "run", "recover")
"""How a program opens the conversation. Or with a pool, by its key."""

STORES = ("kept", "empty", "older")
"""What happens to the store before a program: nothing, or it comes back empty or from a backup."""


class Plan(Struct):
    """What a program does."""

    number: int
    seed: int
    #: The directory of the history, and that of the machine in it.
    directory: str
    machine: str
    door: str
    options: dict[str, Any]
    prompts: int
    #: The conversation to resume. None to start one.
    resumes: str | None = None
    #: True if the store gets only the journal after the first turn, until the program dies.
    is_slow: bool = False
    #: True for a program that ends by itself.
    is_closed: bool = False

    @property
    def home(self) -> Path:
        return Path(self.directory)


async def run_program(plan: Plan) -> None:
    """Open the conversation, send prompts, and die."""
    log, chance = plan.home / "log", random.Random(plan.seed)
    store = SqliteStore(plan.home / "store.db")

    def warned(warning: SdkWarning) -> None:
        note(log, program=plan.number, warning=warning.detail)

    agent = bridle.Agent(store=store, on_warning=warned, **plan.options)
    if plan.door == "recover" and plan.resumes is not None:
        await agent.recover(plan.resumes)
    async with _talk(agent, plan) as send:
        for number in range(plan.prompts):
            text = f"{plan.number}-{number}-{chance.getrandbits(32):08x}"
            note(log, program=plan.number, sending=text)
            outcome = await send(f"SAY {text}")
            facts = {"session": outcome.session_id, "ok": outcome.ok, "uuid": outcome.uuid}
            note(log, program=plan.number, received=text, **facts)
            if plan.is_slow:  # the store has the first turn, and gets no other one
                store_writer.__dict__["LINGER"] = 60.0
                store_writer.StoreWriter.hurry = lambda self: None  # type: ignore[method-assign]
            await asyncio.sleep(chance.choice((0, 0, 0.01, 0.1)))
        if not plan.is_closed:
            await asyncio.sleep(chance.uniform(0, 0.05))
            os.kill(os.getpid(), signal.SIGKILL)
    await store.aclose()


@contextlib.asynccontextmanager
async def _talk(agent: Any, plan: Plan) -> AsyncIterator[Callable[[str], Any]]:
    """What sends a prompt to the conversation and returns its outcome."""
    known: dict[str, Any] = {"wait": LIMIT}
    if plan.resumes is not None:
        known["resume_session_id"] = plan.resumes

    async def send(text: str) -> Any:
        return await (await session.send_user_message(text))

    async def run(text: str) -> Any:
        outcome = await agent.run(text, **known)
        known["resume_session_id"] = outcome.session_id
        return outcome

    if plan.door == "run" and plan.prompts:
        yield run
    elif plan.door == "pool":
        async with agent.pool(size=1) as pool, pool.session(key="k", wait=LIMIT) as session:
            yield send
    else:
        async with agent.session(**known) as session:
            yield send


# ---------------------------------------------------------------- the history


class Program(Struct):
    """What one program received."""

    machine: str
    door: str
    #: What happened to the store before it.
    store: str
    received: list[dict[str, Any]]
    warnings: str


class History(Struct):
    """What happened to one conversation."""

    session: str
    programs: list[Program]
    #: The prompts that the conversation has at the end, in order.
    shown: list[str]


def play(
    directory: Path,
    seed: int,
    options: dict[str, Any],
    *,
    machines: Sequence[str] = ("a",),
    stores: Sequence[str] = ("kept",),
) -> History:
    """Run programs that use one conversation: some that die, one that ends, one that resumes."""
    chance = random.Random(seed)
    directory.mkdir(parents=True)
    database, programs = directory / "store.db", list[Program]()
    is_pool, deaths = chance.random() < 0.25, chance.randint(1, 3)
    session: str | None = None
    for number in range(deaths + 2):
        # The store of a pool also has the key of the conversation.
        happened = chance.choice(stores) if 0 < number <= deaths and not is_pool else "kept"
        if session is not None:
            _happen(database, happened, session)
        plan = Plan(
            number=number,
            seed=seed * 100 + number,
            directory=str(directory),
            machine=chance.choice(machines),
            door="pool" if is_pool else chance.choice(DOORS),
            options=options,
            prompts=chance.randint(1, 3) if number <= deaths else 0,
            resumes=session,
            # A CLI that resumes from a store writes to a private file, which its watchdog removes.
            is_slow=number == 0 and chance.random() < 0.5,
            is_closed=number >= deaths,
        )
        _run(plan)
        facts = [one for one in notes(directory / "log") if one["program"] == number]
        received = [one for one in facts if "received" in one]
        session = session or str(received[0]["session"])
        warnings = " ".join(one["warning"] for one in facts if "warning" in one)
        programs.append(Program(plan.machine, plan.door, happened, received, warnings))
    assert session is not None
    return History(session, programs, asyncio.run(_shown(database, session)))


def _run(plan: Plan) -> None:
    """Run a program on its machine until it dies, and wait until its CLI is gone."""
    home = plan.home / plan.machine
    plan = structs.replace(plan, options={**plan.options, "cwd": str(home / "work")})
    for place in ("config", "state", "work"):
        (home / place).mkdir(parents=True, exist_ok=True)
    path = home / "plan.json"
    path.write_bytes(msgjson.encode(plan))
    places = {"CLAUDE_CONFIG_DIR": "config", "XDG_STATE_HOME": "state", "HOME": "."}
    done = subprocess.run(
        [sys.executable, "-m", "tests.histories.resumed", str(path)],
        cwd=ROOT,
        env=os.environ | {name: str(home / place) for name, place in places.items()},
        stderr=subprocess.PIPE,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == (0 if plan.is_closed else -signal.SIGKILL), done.stderr.decode()
    wait_until(lambda: not clis_in(home), LIMIT)  # the watchdog ends it


def _happen(database: Path, happened: str, session: str) -> None:
    """Lose what the store has of the conversation: everything, or what its backup lacks."""
    backup = database.with_suffix(".backup")
    if happened == "empty":
        asyncio.run(_delete(database, session))
    elif happened == "older" and backup.exists():
        _copy(backup, database)
    else:
        _copy(database, backup)


def _copy(source: Path, target: Path) -> None:
    with (
        contextlib.closing(sqlite3.connect(source)) as one,
        contextlib.closing(sqlite3.connect(target)) as other,
    ):
        one.backup(other)


async def _delete(database: Path, session: str) -> None:
    store = SqliteStore(database)
    await store.delete(SessionKey(session))
    await store.aclose()


async def _shown(database: Path, session: str) -> list[str]:
    store = SqliteStore(database)
    messages = await bridle.sessions.read_messages(session, store=store)
    await store.aclose()
    texts = [str(one.raw.get("message", {}).get("content")) for one in messages]
    return [text.removeprefix("SAY ") for text in texts if text.startswith("SAY ")]


# ---------------------------------------------------------------- the verdict


def judge(history: History) -> list[str]:
    """Return what is wrong: an answer that was received stays, or a warning says that it is gone.

    On the same machine it stays. If the store loses it, it stays if the CLI's own file has it.
    """
    return [*_failed(history), *_lost(history), *_disordered(history)]


def _failed(history: History) -> Iterator[str]:
    for program in history.programs:
        for one in program.received:
            if not one["ok"]:
                yield f"{one['received']} failed"
            if one["session"] != history.session:
                yield f"{one['received']} went to another conversation, {one['session']}"


def _lost(history: History) -> Iterator[str]:
    for number, program in enumerate(history.programs):
        later = history.programs[number + 1 :]
        has_moved = any(one.machine != program.machine for one in later)
        is_lost = any(one.store != "kept" for one in later)
        warnings = " ".join(one.warnings for one in later)
        for place, one in enumerate(program.received):
            if one["received"] in history.shown:
                continue
            # A CLI that resumes from a store writes to a private file.
            is_in_file = number == 0 and (place == 0 or program.door != "run")
            if not has_moved and (is_in_file or not is_lost):
                yield f"{one['received']} was received on the same machine and is not shown"
            elif one["uuid"] not in warnings and "beginning" not in warnings and not is_lost:
                yield f"{one['received']} is not shown, and no warning says that it is lost"


def _disordered(history: History) -> Iterator[str]:
    received = [one["received"] for program in history.programs for one in program.received]
    found = [text for text in received if text in history.shown]
    if history.shown != found:
        yield f"the conversation shows {history.shown} in place of {found}"


def report(problems: Sequence[str], history: History) -> str:
    """Return the problems of a history, and the history."""
    programs = map(str, history.programs)
    return "\n".join([*problems, history.session, *programs, f"shown: {history.shown}"])


def play_and_judge(directory: Path, seed: int, flavour: str = FLAVOURS[0], **how: Any) -> None:
    """Play a history on the fake CLI, and check it."""
    with FakeCli.auto(transcripts=True, lifetime=900, flavour=flavour) as cli:
        history = play(directory, seed, {"cli_path": cli.path}, **how)
    problems = judge(history)
    assert not problems, report(problems, history)


if __name__ == "__main__":
    leases.__dict__["LEASE"] = LEASE
    asyncio.run(run_program(msgjson.decode(Path(sys.argv[1]).read_bytes(), type=Plan)))
