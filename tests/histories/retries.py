"""Histories of runs whose CLI is killed again and again, and that `retry` continues.

The program lives on, so this needs no store. `play` starts several runs at the same time, kills the
CLI of each of them after a random number of steps, and returns what each run asked for, what its
tool did, and how it ended. The model is the obedient one of `recovery`. `judge` says what is wrong
with a history.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from tests.histories.programs import kill
from tests.histories.recovery import NAME, read_conversation

import bridle
from bridle import Continue, HookContext, Outcome, Retry, ToolContext, tool
from bridle.sessions import MemoryStore, SqliteStore

STORES = ("none", "journal", "plain")
"""No store, a store, or a store that keeps no journals."""

_DEATHS = 4
"""How often the CLI of a run is killed, at most."""


class Plain(MemoryStore):
    """A store that keeps no journals."""

    has_journals = False


class Effect(Struct):
    """What the tool of a run did."""

    line: str
    key: str
    #: The CLI that made the call.
    pid: int


class History(Struct):
    """What happened to one run."""

    #: The lines that the prompt asked for.
    asked: list[str]
    #: The CLIs that were killed.
    killed: list[int] = []
    effects: list[Effect] = []
    outcome: Outcome[Any] | None = None


class _Scene(Struct):
    """A run in progress, and the random moments at which its CLI is killed."""

    chance: random.Random
    history: History
    #: How often the CLI is still to be killed, and after how many steps.
    deaths: int
    left: int = 0
    kills: list[asyncio.TimerHandle] = field(default_factory=list[asyncio.TimerHandle])

    def step(self, pid: int | None) -> None:
        """Note that something has happened in a CLI. It may be killed now or soon."""
        self.left -= 1
        if self.left >= 0 or not self.deaths or pid is None or pid in self.history.killed:
            return
        self.deaths -= 1
        self.left = self.chance.randint(0, 6)
        self.history.killed.append(pid)
        delay = self.chance.choice((0.0, self.chance.uniform(0, 0.1)))
        self.kills.append(asyncio.get_running_loop().call_later(delay, kill, pid))


async def play(
    directory: Path, seed: int, store: str, options: dict[str, Any], *, runs: int
) -> list[History]:
    """Start runs on the fake CLI, kill their CLIs, and return their histories."""
    chance = random.Random(seed)
    opened = _opened(store, directory)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_run(chance.getrandbits(32), number, opened, options))
            for number in range(runs)
        ]
    if isinstance(opened, SqliteStore):
        await opened.aclose()
    return [task.result() for task in tasks]


def _opened(store: str, directory: Path) -> SqliteStore | Plain | None:
    if store == "journal":
        return SqliteStore(directory / "store.db")
    return Plain() if store == "plain" else None


async def _run(seed: int, number: int, store: Any, options: dict[str, Any]) -> History:
    chance = random.Random(seed)
    lines = [f"r{number}l{one}" for one in range(chance.randint(1, 3))]
    history = History(asked=lines + lines[:1] * chance.choice((0, 1)))
    scene = _Scene(chance, history, chance.randint(1, _DEATHS), chance.randint(0, 6))

    @tool
    async def append(line: str, context: ToolContext) -> str:
        """Append a line."""
        assert context.session is not None, "the tool is called in a session"
        pid = context.session.pid or 0
        scene.step(pid)
        await asyncio.sleep(chance.uniform(0, 0.04))
        history.effects.append(Effect(line, context.idempotency_key, pid))
        scene.step(pid)
        await asyncio.sleep(chance.uniform(0, 0.04))
        scene.step(pid)
        return f"appended {line}"

    def remember(context: HookContext) -> Continue:
        """Return the calls of the model. It has what its CLI has read of the transcript."""
        memory = read_conversation(context.transcript_path)
        memory.prompt(str(getattr(context, "prompt", "")))
        calls = [f"CALL {NAME} {json.dumps({'line': line})}" for line in memory.to_do]
        return Continue(additional_context="\n".join([*calls, "SAY done"]))

    agent = bridle.Agent(store=store, tools=[append], on_user_prompt_submit=remember, **options)
    prompt = "\n".join([f"This is r{number}.", *(f"TASK {line}" for line in history.asked)])
    retry = Retry(attempts=_DEATHS + 2, max_wait=0.02)
    history.outcome = await agent.run(prompt, retry=retry)
    for one in scene.kills:
        one.cancel()
    return history


# ---------------------------------------------------------------- the verdict


def judge(history: History) -> list[str]:
    """Return what is wrong with a history."""
    return [*_wrong(history)]


def _wrong(history: History) -> Iterator[str]:
    outcome = history.outcome
    if outcome is None or not outcome.ok:
        yield f"the run has not completed: {outcome}"
    keys: dict[str, set[str]] = {}
    for one in history.effects:
        keys.setdefault(one.line, set()).add(one.key)
    for line, times in Counter(history.asked).items():
        if len(keys.pop(line, ())) != times:
            found = [one.key for one in history.effects if one.line == line]
            yield f"{line} was asked for {times} times, and ran with the keys {found}"
    for line in keys:
        yield f"{line} ran, and nobody had asked for it"
    for (key, pid), count in Counter((one.key, one.pid) for one in history.effects).items():
        if count > 1:
            yield f"the call {key} ran {count} times in the CLI {pid}"
    lived = [one.pid for one in history.effects if one.pid not in history.killed]
    if len({*lived}) > 1:
        yield f"two CLIs lived on: {lived}"


def report(problems: Sequence[str], history: History) -> str:
    """Return the problems of a history, and the history."""
    facts = [*problems, f"asked for {history.asked}", f"killed {history.killed}"]
    return "\n".join([*facts, *map(str, history.effects), str(history.outcome)])


def check(histories: Sequence[History]) -> None:
    """Raise if something is wrong with a history."""
    wrong = [report(problems, one) for one in histories if (problems := judge(one))]
    assert not wrong, "\n\n".join(wrong)
