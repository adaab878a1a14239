"""Histories of leases: a program is frozen or cut off, another one takes its sessions over.

``python -m tests.histories.leases PLAN`` is a program on a machine of its own. It starts or resumes
sessions, sends prompts until it is told to end, and writes a line to a log before and after each of
them. `play` runs the programs of one round and returns a history for each session: what was sent,
what was acknowledged, and what the store showed at several moments. `judge` says what is wrong with
a history.
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
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, structs
from msgspec import json as msgjson
from tests.histories.programs import note, notes
from tests.support.processes import wait_until
from tests.support.proxies import Proxy
from tests.support.stores import Place, PostgresPlace, RedisPlace, SqlitePlace, Store

import bridle
import bridle.sessions
from bridle import SdkWarning, SessionInUseError
from bridle.errors import BridleError, SessionLoadError
from bridle.events import SessionEvent, SessionFailed
from bridle.sessions._outbox import leases
from bridle.testing import FakeCli

ROOT = Path(__file__).parents[2]

LEASE = 0.6
"""Seconds of a lease in these programs, unless `play` is given others."""

SESSIONS = 5
"""Sessions of each round. All of them are frozen or cut off at the same moment."""

_LIMIT = 600.0
"""Seconds after which a program that does not get on fails the test."""


# ---------------------------------------------------------------- the program


class Plan(Struct):
    """What a program does."""

    machine: str
    seed: int
    #: The directory of the round.
    directory: str
    #: The class and the arguments of the store.
    store: tuple[str, dict[str, str]]
    cli_path: str
    #: The sessions to resume. Without any, the program starts sessions of its own.
    resumes: list[str] = []
    #: Seconds of a lease.
    lease: float = LEASE
    #: How many prompts each session gets. None: until the program is told to end.
    prompts: int | None = None

    @property
    def home(self) -> Path:
        """The directory of the machine."""
        return Path(self.directory, self.machine)

    @property
    def log(self) -> Path:
        return Path(self.directory, f"{self.machine}.log")

    @property
    def end(self) -> Path:
        """The file that tells the program to end."""
        return Path(self.directory, f"{self.machine}.end")


def _note(path: Path, **facts: object) -> None:
    note(path, at=time.time(), **facts)


async def run_program(plan: Plan) -> None:
    """Run the sessions of a program."""
    name, arguments = plan.store
    store = getattr(bridle.sessions, name)(timeout=max(3.0, 5 * plan.lease), **arguments)
    count = len(plan.resumes) or SESSIONS
    await asyncio.gather(*(_talk(plan, store, number) for number in range(count)))
    await store.aclose()
    _note(plan.log, done=True)


async def _talk(plan: Plan, store: Store, number: int) -> None:
    chance = random.Random(plan.seed * 1000 + number)
    note = partial(_note, plan.log, machine=plan.machine)
    session_id = plan.resumes[number] if plan.resumes else None

    def hear(event: SessionEvent) -> None:
        if isinstance(event, SessionFailed):
            note(session=session_id, failed=event.reason)

    def warned(warning: SdkWarning) -> None:
        note(session=session_id, warning=warning.detail)

    agent = bridle.Agent(
        store=store,
        cli_path=plan.cli_path,
        cwd=str(plan.home),
        on_event=hear,
        on_warning=warned,
        load_timeout=max(5.0, 8 * plan.lease),
    )
    limit = time.monotonic() + _LIMIT / 2
    while True:
        chosen: dict[str, Any] = {"resume_session_id": session_id} if plan.resumes else {}
        try:
            async with agent.session(**chosen) as session:
                session_id = session.id
                note(session=session_id, started=True)
                await _send(plan, session, chance, partial(note, session=session_id))
                note(session=session_id, closing=True)
        except (SessionInUseError, SessionLoadError) as error:
            if plan.resumes and time.monotonic() < limit and not _has_started(plan, session_id):
                await asyncio.sleep(0.05)
                continue
            note(session=session_id, error=type(error).__name__)
        except BridleError as error:
            note(session=session_id, error=type(error).__name__)
        break
    note(session=session_id, closed=True)


def _has_started(plan: Plan, session_id: str | None) -> bool:
    return any(fact.get("started") and fact["session"] == session_id for fact in notes(plan.log))


async def _send(plan: Plan, session: bridle.Session, chance: random.Random, note: Any) -> None:
    sent = 0
    while sent < plan.prompts if plan.prompts is not None else not plan.end.exists():
        text = f"{plan.machine}-{sent}-{chance.getrandbits(32):08x}"
        note(sent=text)
        outcome = await (await session.send_user_message(f"SAY {text}"))
        note(acknowledged=text, ok=outcome.ok, reason=outcome.reason)
        if not outcome.ok:
            return
        sent += 1
        await asyncio.sleep(chance.choice((0, 0, 0.02, 0.1, 0.3)))


# ---------------------------------------------------------------- the machines


class Machine:
    """A program that runs."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        plan.home.mkdir()
        path = plan.home / "plan.json"
        path.write_bytes(msgjson.encode(plan))
        places = {"XDG_STATE_HOME": "state", "CLAUDE_CONFIG_DIR": "config", "HOME": "home"}
        for place in places.values():
            (plan.home / place).mkdir()
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "tests.histories.leases", str(path)],
            cwd=ROOT,
            env=os.environ | {name: str(plan.home / place) for name, place in places.items()},
            stderr=subprocess.PIPE,
        )

    @property
    def facts(self) -> list[dict[str, Any]]:
        return notes(self.plan.log)

    def freeze(self) -> None:
        """Stop the program. A busy machine takes a while for that."""
        self._process.send_signal(signal.SIGSTOP)
        wait_until(lambda: self._process.poll() is not None or self._has_stopped(), _LIMIT)

    def _has_stopped(self) -> bool:
        tasks = Path(f"/proc/{self._process.pid}/task")
        if not tasks.exists():  # not on Linux
            return True
        states: list[str] = []
        for task in tasks.iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                states.append((task / "stat").read_text().rpartition(")")[2].split()[0])
        return all(state in "TZX" for state in states)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> None:
        """Tell the program to end, and wait until it has."""
        self.plan.end.touch()
        try:
            _, errors = self._process.communicate(timeout=_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        killed = self._process.returncode == -signal.SIGKILL
        assert killed or self._process.returncode == 0, errors.decode()

    def until(self, word: str, times: int) -> None:
        """Wait until each session has noted this so many times, or has ended."""
        wait_until(lambda: self._have(word, times) or self._process.poll() is not None, _LIMIT)
        if self._process.poll():
            assert self._process.stderr is not None
            raise AssertionError(self._process.stderr.read().decode())

    def _have(self, word: str, times: int) -> bool:
        counts: dict[str, int] = {}
        for fact in self.facts:
            session = fact.get("session") or "?"
            counts[session] = counts.get(session, 0) + (times if "closed" in fact else word in fact)
        ready = [session for session, count in counts.items() if count >= times]
        return len(ready) >= (len(self.plan.resumes) or SESSIONS)


# ---------------------------------------------------------------- the round


class History(Struct):
    """What happened to one session."""

    session: str
    #: What the driver did, for the report of a failure.
    story: list[str]
    #: The notes of the programs about the session, by machine.
    facts: dict[str, list[dict[str, Any]]]
    #: The prompts that the store showed, in order, at several moments.
    shown: list[tuple[str, list[str]]]
    #: The text of all spool files of each machine.
    spooled: dict[str, str]
    #: The machines that were killed.
    killed: list[str]


class Line:
    """How a machine reaches the store. It can be cut, unless the store is a file."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.proxy: Proxy | None = None
        name, arguments = place.arguments
        if isinstance(place, PostgresPlace | RedisPlace):
            self.proxy = Proxy(place.server.port)
            old, new = f":{place.server.port}/", f":{self.proxy.port}/"
            arguments = {**arguments, "url": arguments["url"].replace(old, new)}
        self.store = name, arguments

    def close(self) -> None:
        if self.proxy is not None:
            self.proxy.close()


def play(place: Place, directory: Path, seed: int, lease: float = LEASE) -> list[History]:
    """Play one round: A is away while B takes its sessions over, then A comes back."""
    chance = random.Random(seed)
    directory.mkdir(parents=True)
    story: list[str] = []
    shown: dict[str, list[tuple[str, list[str]]]] = {}
    with (
        FakeCli.auto(transcripts=True) as cli,
        contextlib.closing(Line(place)) as line,
        _machines() as machines,
    ):
        plan = Plan("a", seed, str(directory), line.store, cli.path, lease=lease)

        def start(name: str, **changes: Any) -> Machine:
            changes = {"store": place.arguments, **changes}
            return machines.start(structs.replace(plan, machine=name, **changes))

        def look(when: str) -> None:
            for session in sessions:
                shown.setdefault(session, []).append((when, asyncio.run(_shown(place, session))))

        a = start("a", store=line.store)
        a.until("acknowledged", chance.randint(1, 3))
        time.sleep(chance.choice((0, 0.05, 0.2, chance.uniform(0, 1))))
        cut = line.proxy if chance.random() < 0.5 else None
        story.append("freeze a" if cut is None else "cut a off")
        if cut is not None:
            cut.cut()
        else:
            _freeze(a, place)
        sessions = sorted({fact["session"] for fact in a.facts if fact.get("started")})
        away = time.monotonic()
        b = start("b", resumes=sessions, prompts=chance.randint(1, 3), seed=seed + 1)
        # Come back: long after B has closed, while B runs, or before the lease has lapsed.
        when = chance.choice(("after", "after", "after", "during", "early"))
        story.append(f"a comes back {when}")
        if when == "early":
            time.sleep(chance.uniform(0, 1.5 * lease))
        elif when == "during":
            b.until("acknowledged", 1)
        else:
            b.wait()
            look("b has closed")
        story.append(f"a was away for {time.monotonic() - away:.2f} s")
        a.thaw() if cut is None else cut.restore()
        time.sleep(chance.choice((0, 0, 0.3, lease, 3 * lease)))
        a.wait()
        b.wait()
        look("a and b have ended")
        c = start("c", resumes=sessions, prompts=1, seed=seed + 2)
        c.wait()
        look("c has ended")
    return [
        History(
            session=session,
            story=story,
            facts={
                one.plan.machine: [fact for fact in one.facts if fact.get("session") == session]
                for one in (a, b, c)
            },
            shown=shown[session],
            spooled={one.plan.machine: _spooled(one.plan.home, session) for one in (a, b, c)},
            killed=[],
        )
        for session in sessions
    ]


def _freeze(machine: Machine, place: Place) -> None:
    """Freeze a program, but not while it locks the file of its store for all others."""
    machine.freeze()
    while isinstance(place, SqlitePlace) and _is_locked(place):
        machine.thaw()
        time.sleep(0.005)
        machine.freeze()


def _is_locked(place: SqlitePlace) -> bool:
    connection = sqlite3.connect(place.path, timeout=0.05, isolation_level=None)
    with contextlib.closing(connection):
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
    return False


class _Machines:
    def __init__(self) -> None:
        self.all: list[Machine] = []

    def start(self, plan: Plan) -> Machine:
        self.all.append(Machine(plan))
        return self.all[-1]


@contextlib.contextmanager
def _machines() -> Iterator[_Machines]:
    """What starts programs. No program is left afterwards."""
    machines = _Machines()
    try:
        yield machines
    finally:
        for one in machines.all:
            with contextlib.suppress(ProcessLookupError):
                one.thaw()
                one.kill()


async def _shown(place: Place, session: str) -> list[str]:
    """Return the prompts that the store shows, in order."""
    store = place.open()
    try:
        messages = await bridle.sessions.read_messages(session, store=store)
    except bridle.SessionNotFoundError:
        return []
    finally:
        await store.aclose()
    texts = [str(one.raw.get("message", {}).get("content")) for one in messages]
    return [text.removeprefix("SAY ") for text in texts if text.startswith("SAY ")]


def _spooled(home: Path, session: str) -> str:
    files = (home / "state").glob(f"bridle/spool/*{session}*")
    return "".join(file.read_text() for file in files)


# ---------------------------------------------------------------- the verdict


def judge(history: History) -> list[str]:
    """Return what is wrong with a history: what was acknowledged stays."""
    return [*_vanished(history), *_unkept(history)]


def _vanished(history: History) -> Iterator[str]:
    """What the store showed, it shows at every later moment."""
    seen: dict[str, str] = {}
    for when, prompts in history.shown:
        for text, first in seen.items():
            if text not in prompts:
                yield f"{text} was shown when {first}, and not when {when}"
        seen |= {text: when for text in prompts if text not in seen}


def _unkept(history: History) -> Iterator[str]:
    """A turn that was acknowledged is shown at the end, or its session said where it is.

    The session has failed because another process continued it, or has ended while it could not
    reach the store.
    """
    _, final = history.shown[-1]
    for machine, facts in history.facts.items():
        if machine in history.killed:
            continue
        acknowledged = [fact["acknowledged"] for fact in facts if fact.get("ok")]
        missing = [text for text in acknowledged if text not in final]
        if not missing:
            continue
        reasons = " ".join(str(one) for fact in facts if (one := fact.get("failed")))
        warnings = " ".join(fact["warning"] for fact in facts if "warning" in fact)
        if "another" not in reasons and "not in the store, but in" not in warnings:
            yield f"{machine}: {missing} are not shown, and the session did not fail"
        if "spool" not in warnings:
            yield f"{machine}: {missing} are not shown, and no warning names their file"
        lost = [text for text in missing if text not in history.spooled[machine]]
        if lost:
            yield f"{machine}: {lost} are neither shown nor in a spool file"


def report(problems: Sequence[str], history: History) -> str:
    """Return the problems of a history, and the history."""
    lines = [*problems, f"session {history.session}", *history.story]
    lines += [f"{when}: {prompts}" for when, prompts in history.shown]
    facts: list[tuple[str, Mapping[str, Any]]] = [
        (machine, fact) for machine, found in history.facts.items() for fact in found
    ]
    facts.sort(key=lambda one: float(one[1]["at"]))
    return "\n".join([*lines, *(f"{machine} {fact}" for machine, fact in facts)])


if __name__ == "__main__":
    given = msgjson.decode(Path(sys.argv[1]).read_bytes(), type=Plan)
    leases.__dict__["LEASE"] = given.lease
    asyncio.run(run_program(given))
