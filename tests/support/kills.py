"""A program that is killed at a random moment, its recovery, and what must be true afterwards.

``python -m tests.support.kills PLAN`` is the program. It runs sessions with a tool that appends to
a file, and writes a line to a log before and after everything it does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec import json as msgjson
from tests.support.journals import journal_of

import bridle
from bridle import ToolContext, tool
from bridle._core.journal import (
    JournalEntry,
    OutcomeEntry,
    PromptEntry,
    ReceivedEntry,
    ToolCallEntry,
    ToolResultEntry,
)
from bridle._core.transcript_turns import prompts_in
from bridle._core.transcripts import TranscriptEntry, entries_of_bytes, entries_of_objects
from bridle._shell import leases
from bridle.outcomes import Outcome, OutcomeReason
from bridle.sessions import SessionKey, SqliteStore

LEASE = 0.6
"""Seconds of a lease in these programs, so that a recovery need not wait long."""

PROMPTS = 8
"""Prompts of each session, of which up to two are sent at the same time."""


class Plan(Struct):
    """What the program does. Paths, and options of its agent."""

    seed: int
    sessions: int
    directory: str
    options: dict[str, Any]
    #: The sessions that the program recovers. Without any, it starts sessions of its own.
    recovers: list[str] = []

    @property
    def home(self) -> Path:
        return Path(self.directory)

    @contextlib.asynccontextmanager
    async def agent(self) -> AsyncIterator[bridle.Agent]:
        """The agent of the program, and of its recovery. Closes its store at the end."""
        appended = self.home / "appended"
        chance = random.Random()

        @tool
        async def append(line: str, context: ToolContext) -> str:
            """Append a line to a file."""
            await asyncio.sleep(chance.uniform(0, 0.06))
            _append(appended, {"line": line, "key": context.idempotency_key})
            await asyncio.sleep(chance.uniform(0, 0.06))
            return f"appended {line}"

        async with contextlib.aclosing(SqliteStore(self.home / "store.db")) as store:
            yield bridle.Agent(store=store, tools=[append], **self.options)


def _append(path: Path, facts: Mapping[str, object]) -> None:
    with open(path, "ab", buffering=0) as file:
        file.write(json.dumps(facts).encode() + b"\n")


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# ---------------------------------------------------------------- the program


async def play(plan: Plan) -> None:
    async with plan.agent() as agent:
        if plan.recovers:
            _append(plan.home / "recoveries", {"begun": True})
            await asyncio.gather(*map(agent.recover, plan.recovers))
            return
        await asyncio.gather(*(_session(plan, agent, number) for number in range(plan.sessions)))


async def _session(plan: Plan, agent: bridle.Agent, number: int) -> None:
    chance = random.Random(plan.seed * 1000 + number)
    log = plan.home / "log"
    async with agent.session() as session:
        _append(log, {"session": session.id, "pid": session.pid})
        sent = 0
        while sent < PROMPTS:
            turns: list[bridle.Turn] = []
            for _ in range(chance.choice((1, 1, 2))):
                lines = [f"s{number}p{sent}l{n}" for n in range(chance.randint(0, 3))]
                calls = [f"CALL mcp__tools__append {json.dumps({'line': line})}" for line in lines]
                text = "\n".join([*calls, f"SAY answer to s{number}p{sent}."])
                turns.append(await session.send_user_message(text))
                _append(log, {"session": session.id, "sent": turns[-1].uuid})
                sent += 1
                await asyncio.sleep(chance.uniform(0, 0.05))
            for turn in turns:
                outcome = await turn
                _append(log, {"session": session.id, "outcome": outcome.uuid, "ok": outcome.ok})


# ---------------------------------------------------------------- the kill


class Killed(Struct):
    """A program that was killed, and what it left."""

    plan: Plan
    #: Seconds since the epoch.
    at: float
    log: list[dict[str, Any]]

    @property
    def sessions(self) -> list[str]:
        return [fact["session"] for fact in self.log if "pid" in fact]

    @property
    def appended(self) -> list[dict[str, Any]]:
        return _read(self.plan.home / "appended")


def kill_program(plan: Plan, after: float, *, cli_first: bool) -> Killed:
    """Run the program, and kill it and its CLIs this many seconds after its first prompt.

    A program that recovers is killed that long after it has begun. Its CLIs are left to its
    watchdog.
    """
    path = plan.home / "plan.json"
    path.write_bytes(msgjson.encode(plan))
    log = plan.home / "log"
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.support.kills", str(path)],
        cwd=Path(__file__).parents[2],
        stderr=subprocess.PIPE,
    )
    limit = time.monotonic() + 60
    start = plan.home / "recoveries" if plan.recovers else log
    while not any("sent" in fact or "begun" in fact for fact in _read(start)):
        assert time.monotonic() < limit, "the program sends a prompt"
        if program.poll() is not None:
            assert program.stderr is not None
            raise AssertionError(program.stderr.read().decode())
        time.sleep(0.005)
    time.sleep(after)
    pids = [] if plan.recovers else [fact["pid"] for fact in _read(log) if "pid" in fact]
    victims = [*pids, program.pid] if cli_first else [program.pid, *pids]
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    program.communicate()
    for pid in pids:
        wait_gone(pid)
    return Killed(plan, time.time(), _read(log))


def wait_gone(pid: int) -> None:
    """Wait until a process is gone. The watchdog of a killed program ends its CLIs."""
    limit = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < limit, "the watchdog ends the CLI"
        time.sleep(0.005)


# ---------------------------------------------------------------- the recovery and its checks


class Left(Struct):
    """What store and files had of a session before its recovery."""

    journal: list[JournalEntry]
    entries: list[TranscriptEntry]

    @property
    def open(self) -> list[str]:
        """The prompts whose outcome the program has not received."""
        received = {one.prompt_uuid for one in self.journal if isinstance(one, ReceivedEntry)}
        sent = dict.fromkeys(
            one.prompt_uuid
            for one in self.journal
            if isinstance(one, PromptEntry) and one.continues is None
        )
        return [uuid for uuid in sent if uuid not in received]

    @property
    def uuids(self) -> set[str]:
        """The prompts that the conversation has."""
        return {uuid for entry in self.entries for uuid in prompts_in(entry)}

    @property
    def results(self) -> set[str]:
        """The calls whose results the conversation has."""
        return {call for entry in self.entries for call in entry.tool_results}

    @property
    def finished(self) -> set[str]:
        """The prompts whose turn has ended. The model was told of their calls."""
        return {
            one.prompt_uuid
            for one in self.journal
            if isinstance(one, OutcomeEntry) and one.outcome.reason is OutcomeReason.COMPLETED
        }

    def owner(self, prompt: str | None) -> str | None:
        """The prompt of the program that a prompt belongs to."""
        found = {
            one.prompt_uuid: one.continues or one.prompt_uuid
            for one in self.journal
            if isinstance(one, PromptEntry)
        }
        return found.get(prompt or "")

    def unknown_lines(self) -> list[str]:
        """The arguments of open calls without a recorded result."""
        done = {one.tool_use_id for one in self.journal if isinstance(one, ToolResultEntry)}
        waiting = {*self.open} - self.finished
        return [
            str(one.tool_input["line"])
            for one in self.journal
            if isinstance(one, ToolCallEntry)
            and self.owner(one.prompt_uuid) in waiting
            and one.tool_use_id not in done | self.results
        ]


async def left_by(killed: Killed, session_id: str, config: Path) -> Left:
    store = SqliteStore(killed.plan.home / "store.db")
    stored = entries_of_objects(await store.load(SessionKey(session_id)) or ())
    journal = await journal_of(store, session_id)
    await store.aclose()
    files = config.glob(f"projects/*/{session_id}.jsonl")
    saved = [entry for file in files for entry in entries_of_bytes(file.read_bytes())]
    return Left(journal, [*stored, *saved])


class Recovered(Struct):
    """A session after its recovery."""

    session_id: str
    left: Left
    outcomes: list[Outcome[Any]]
    #: The text of the first request to the model, or of the first prompt on a fake CLI. Or empty.
    request: str
    #: The journal entries of the recovery.
    journal: list[JournalEntry]


async def recover_all(
    killed: Killed, config: Path, request_of: Callable[[str], str]
) -> list[Recovered]:
    """Recover each session, and return what happened.

    ``request_of`` returns the first text that the model got after the kill, for a session id.
    """
    before = {one: await left_by(killed, one, config) for one in killed.sessions}
    found: list[Recovered] = []

    async def recover(agent: bridle.Agent, session_id: str) -> None:
        left = before[session_id]
        outcomes = await agent.recover(session_id)
        store = SqliteStore(killed.plan.home / "store.db")
        journal = await journal_of(store, session_id)
        await store.aclose()
        known = {entry.uuid for entry in left.journal}
        new = [entry for entry in journal if entry.uuid not in known and entry.at > killed.at]
        request = request_of(session_id)
        found.append(Recovered(session_id, left, outcomes, request, new))
        assert await agent.recover(session_id) == []

    journaled = [one for one in killed.sessions if before[one].journal]
    async with killed.plan.agent() as agent:
        await asyncio.gather(*(recover(agent, one) for one in journaled))
    return found


def check(killed: Killed, session: Recovered) -> list[str]:
    """Check a recovered session. Return a list of what was done again."""
    left = session.left
    log = [fact for fact in killed.log if fact["session"] == session.session_id]
    uuids = [outcome.uuid for outcome in session.outcomes]
    assert uuids == left.open, "there is one outcome for each open prompt, in order"
    assert all(outcome.ok for outcome in session.outcomes), session.outcomes
    told = {fact["outcome"] for fact in log if "outcome" in fact}
    # A recovery that was killed may have returned outcomes.
    told |= {one.prompt_uuid for one in left.journal if isinstance(one, ReceivedEntry)}
    sent = [fact["sent"] for fact in log if "sent" in fact]
    assert set(sent) <= told | set(uuids), "no prompt is lost"
    last = max((n for n, fact in enumerate(log) if "sent" in fact), default=-1)
    earlier = {fact["outcome"] for fact in log[:last] if "outcome" in fact}
    assert earlier.isdisjoint(uuids), "the program has received these outcomes"
    again = [one.prompt_uuid for one in session.journal if isinstance(one, PromptEntry)]
    assert left.uuids.isdisjoint(again), "a prompt of the conversation is not sent again"
    for line in left.unknown_lines():
        assert json.dumps(line) in session.request, "the model is told of the call"
    repeated = [f"prompt {uuid}" for uuid in again if uuid in left.open]
    return [*repeated, *_check_lines(killed, session)]


def _check_lines(killed: Killed, session: Recovered) -> list[str]:
    """Check that the model knows of every line that was appended. Return repeated lines."""
    left = session.left
    calls = {
        str(one.tool_input["line"]): one
        for one in left.journal
        if isinstance(one, ToolCallEntry)
        and left.owner(one.prompt_uuid) in {*left.open} - left.finished
    }
    keys: dict[str, list[str]] = {}
    for fact in killed.appended:
        keys.setdefault(fact["line"], []).append(fact["key"])
    repeated: list[str] = []
    for line, call in calls.items():
        made = keys.get(line, [])
        is_told = json.dumps(line) in session.request
        if made and call.tool_use_id not in left.results and session.request:
            assert is_told, "a line was appended, and its result is not in the conversation"
        if len(made) > 1:
            assert is_told, "only calls that the model is told of may be repeated"
            repeated.append(f"line {line}")
    return repeated


if __name__ == "__main__":
    leases.__dict__["LEASE"] = LEASE
    asyncio.run(play(msgjson.decode(Path(sys.argv[1]).read_bytes(), type=Plan)))
