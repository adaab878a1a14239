"""Histories of decisions: several people decide about the same tool calls at the same time.

``python -m tests.histories.approvals PLAN people1`` is a program with people in it. They see a call
that waits, think, and decide about it: by `Agent.resume`, `Pool.resume`, `Run.approve` or on the
command line. Others send prompts to the conversation meanwhile. Workers of a fleet are killed.
`play` runs several programs, and returns a history for each conversation: which calls were seen,
which decisions were given by whom, what each of them was told, and which calls ran. `judge` says
what is wrong with a history.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct, field, structs
from msgspec import json as msgjson
from tests.support.fleets import NOTICES, FleetPlan, Workers, work_on
from tests.support.pools import pool_of
from tests.support.processes import until

from bridle import (
    Agent,
    Allow,
    CanUseToolContext,
    Deny,
    Edit,
    Outcome,
    PendingApproval,
    ToolContext,
    tool,
)
from bridle.cli import main as command
from bridle.errors import BridleError, UsageError
from bridle.fleet import Fleet
from bridle.sessions import SessionKey, SqliteStore, StoredSession
from bridle.testing import FakeCli, ModelRequest, ScriptedModel, text, tool_use

ROOT = Path(__file__).parents[2]

TAKEN = "taken"
"""What a person is told whose decision takes effect."""

REFUSALS = ("UsageError", "SessionInUseError")
"""The errors that say that another decision was faster, or that another program is at it."""

OPEN = ("StoreError",)
"""The errors after which the decision may have been stored or not."""

_LIMIT = 3600.0 if os.environ.get("BRIDLE_SOAK") else 600.0
"""Seconds after which the conversations of a round must have ended."""


# ---------------------------------------------------------------- what was recorded


class Seen(Struct, tag=True):
    """A person has seen a call that waits."""

    case: str
    who: str
    call: str
    given: dict[str, Any]


class Decided(Struct, tag=True):
    """A person has decided about a call, and was told something."""

    case: str
    who: str
    call: str
    #: ``allow``, ``deny`` or ``edit``.
    kind: str
    #: The input with which the call may run. None if it was denied.
    allowed: dict[str, Any] | None
    #: `TAKEN`, or the name of an error.
    told: str


class Ran(Struct, tag=True):
    """The tool of a call has run."""

    case: str
    call: str
    given: dict[str, Any]


class Prompted(Struct, tag=True):
    """Somebody has sent a prompt while calls may have waited."""

    case: str
    told: str


class Ended(Struct, tag=True):
    """How a conversation ended, and the call that still waits."""

    case: str
    reason: str
    waits: str | None = None
    #: Whether the model was told that a worker was killed in the middle of a call.
    is_cut_off: bool = False


Entry = Seen | Decided | Ran | Prompted | Ended


class History(Struct):
    """What was recorded about one conversation."""

    case: str
    entries: list[Entry] = []

    def of(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.entries if isinstance(one, kind)]


# ---------------------------------------------------------------- the judge


def judge(history: History) -> list[str]:
    """Return what is wrong with a history."""
    return [*_wrong(history)]


def _wrong(history: History) -> Iterator[str]:
    seen: list[Seen] = history.of(Seen)
    decisions: list[Decided] = history.of(Decided)
    effects: list[Ran] = history.of(Ran)
    ends: list[Ended] = history.of(Ended)
    if [one.reason for one in ends] != ["completed"]:
        yield f"the conversation has not ended well: {ends}"
    for one in decisions:
        if not any((other.who, other.call) == (one.who, one.call) for other in seen):
            yield f"{one.who} decided about {one.call}, which was not shown"
        if one.told not in (TAKEN, *REFUSALS, *OPEN):
            yield f"{one.who} was told {one.told!r} about {one.call}"
    for prompt in history.of(Prompted):
        if prompt.told not in ("completed", "ApprovalPending", "SessionInUseError"):
            yield f"a prompt was told {prompt.told!r}"
    calls = dict.fromkeys([one.call for one in seen] + [one.call for one in effects])
    for call in calls:
        about = [one for one in decisions if one.call == call]
        yield from _wrong_call(call, about, [one for one in effects if one.call == call], ends)


def _wrong_call(
    call: str, about: Sequence[Decided], effects: Sequence[Ran], ends: Sequence[Ended]
) -> Iterator[str]:
    taken = [one for one in about if one.told == TAKEN]
    possible = taken or [one for one in about if one.told in OPEN]
    if len(taken) > 1:
        yield f"{len(taken)} decisions about {call} took effect: {taken}"
    if len(effects) > 1:
        yield f"{call} ran {len(effects)} times"
    if not possible:
        yield f"no decision about {call} took effect: {[one.told for one in about]}"
    allowing = [one for one in possible if one.allowed is not None]
    for effect in effects:
        if not allowing:
            yield f"{call} ran and nobody had allowed it: {effect.given}"
        elif all(one.allowed != effect.given for one in allowing):
            yield f"{call} ran with another input than was allowed: {effect.given}"
    is_cut_off = any(one.is_cut_off for one in ends)
    if taken and not effects and taken[0].allowed is not None and not is_cut_off:
        yield f"{call} was allowed and did not run"
    if taken and call in [one.waits for one in ends]:
        yield f"{call} still waits although it was decided"


# ---------------------------------------------------------------- the plan


class Plan(FleetPlan, kw_only=True):
    """What the programs of a round do. Each works on ``at_once`` conversations at the same time."""

    seed: int
    #: ``resume``, ``pool`` or ``fleet``.
    door: str
    #: ``files``, ``sqlite``, or ``plain``: a store without leases and journals. Unused by a fleet.
    store: str = "files"
    #: The conversations, or the runs, by case.
    cases: dict[str, str] = field(default_factory=dict)
    #: How many people decide in each program.
    people: int = 2
    #: Seconds that people think, at most.
    think: float = 1.0

    module = "tests.histories.approvals"

    def note(self, entry: Entry) -> None:
        """Write an entry down."""
        with open(self.home / "history", "ab", buffering=0) as file:
            file.write(msgjson.encode(entry) + b"\n")

    def agent(self, *, is_gated: bool = True, has_store: bool = True, **more: Any) -> Agent:
        """Return an agent with a tool that writes its effect down, and asks for the next call."""
        plan = self

        @tool(approval=is_gated)
        async def pay(case: str, left: int, context: ToolContext, note: str = "") -> str:
            """Pay."""
            given = {"case": case, "left": left} | ({"note": note} if note else {})
            await asyncio.sleep(random.uniform(0, plan.slow))
            plan.note(Ran(case, context.tool_use_id or "", given))
            await asyncio.sleep(random.uniform(0, plan.slow))
            if left == 0:
                return "paid"
            return f"CALL mcp__tools__pay {json.dumps({'case': case, 'left': left - 1})}"

        store = self._open_store() if has_store else None
        return Agent(tools=[pay], store=store, **self.options, **more)

    def _open_store(self) -> Any:
        if self.store == "sqlite":
            return SqliteStore(self.home / "sessions.db")
        return PlainStore(self.home / "store") if self.store == "plain" else None

    def fleet(self, **options: Any) -> Fleet:
        return Fleet(self.agent(has_store=False), self.database, **options)

    def board(self, case: str) -> Path:
        """Return the file that shows people the call that waits in a conversation."""
        return self.home / f"board-{case}"

    def show(self, case: str, outcome: Outcome[Any]) -> None:
        """Show the call that waits after an outcome. Without one, the conversation has ended."""
        pending = outcome.pending
        shown = outcome.reason.value if pending is None else pending.to_json()
        new = self.home / f"new-{case}-{os.getpid()}-{time.monotonic_ns()}"
        new.write_text(shown)
        os.replace(new, self.board(case))


class PlainStore:
    """A store in files, without leases and journals. Loading takes a while."""

    has_journals = False

    def __init__(self, directory: Path) -> None:
        self.location = str(directory)
        self._chance = random.Random()
        directory.mkdir(exist_ok=True)

    def _path(self, key: SessionKey) -> Path:
        return Path(self.location) / f"{key.session_id}{key.subkey.replace('/', '-')}"

    async def append(self, key: SessionKey, entries: Sequence[Mapping[str, object]]) -> None:
        with open(self._path(key), "ab", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            known = {one.get("uuid") for one in self._read(key)} - {None}
            new = (one for one in entries if one.get("uuid") not in known)
            file.write(b"".join(msgjson.encode(one) + b"\n" for one in new))

    def _read(self, key: SessionKey) -> list[Any]:
        path = self._path(key)
        return list(map(json.loads, path.read_bytes().splitlines())) if path.exists() else []

    async def load(self, key: SessionKey) -> list[Any]:
        found = self._read(key)
        await asyncio.sleep(self._chance.choice((0.0, 0.1, 1.0)))
        return found

    async def list(self, project: str | None = None) -> list[StoredSession]:
        return []

    async def delete(self, session_id: str) -> None:
        raise NotImplementedError


# ---------------------------------------------------------------- people


class Door(Protocol):
    """How the people of a program decide."""

    async def look(self, case: str) -> PendingApproval | str | None:
        """Return the call that waits, None if none does, or the reason of the end."""
        ...

    async def decide(self, case: str, pending: PendingApproval, decision: Any) -> None:
        """Decide about a call."""
        ...


def _allow(_: CanUseToolContext) -> Allow:
    return Allow()


LETTING: list[dict[str, Any]] = [
    {"allowed_tools": ["mcp__tools__pay"]},
    {"on_can_use_tool": _allow},
    {},
]
"""Options of agents without the rule. With the first two, nothing else keeps the CLI from running a
call that waits."""


class ResumeDoor:
    """People who call `Agent.resume`, and somebody who sends prompts."""

    def __init__(self, plan: Plan, chance: random.Random) -> None:
        self._plan, self._chance = plan, chance
        self._agent = plan.agent()
        self._other = plan.agent(is_gated=False, **chance.choice(LETTING))

    async def look(self, case: str) -> PendingApproval | str | None:
        shown = self._plan.board(case).read_text()
        return PendingApproval.from_json(shown) if shown.startswith("{") else shown

    async def decide(self, case: str, pending: PendingApproval, decision: Any) -> None:
        wait = self._chance.choice((None, 0.0, 20.0))
        outcome = await self._resume(case, pending, decision, wait)
        waits = outcome.pending
        if waits is not None and waits.tool_use_id == pending.tool_use_id:
            raise RuntimeError(f"no effect: {outcome.detail}")
        if not outcome.ok and waits is None:
            raise RuntimeError(f"{outcome.reason}: {outcome.detail}")
        self._plan.show(case, outcome)

    async def _resume(
        self, case: str, pending: PendingApproval, decision: Any, wait: float | None
    ) -> Outcome[Any]:
        return await self._agent.resume(pending, decision, wait=wait)

    async def disturb(self, case: str) -> None:
        """Send a prompt with an agent that has neither the hook nor the rule."""
        try:
            told = (await self._prompt(case)).reason.value
        except BridleError as error:
            told = type(error).__name__
        self._plan.note(Prompted(case, told))

    async def _prompt(self, case: str) -> Outcome[Any]:
        return await self._other.run("hello", resume_session_id=self._plan.cases[case])


class PoolDoor(ResumeDoor):
    """People who call `Pool.resume`. The name of a conversation is its key."""

    def __init__(self, plan: Plan, chance: random.Random, pool: Any) -> None:
        super().__init__(plan, chance)
        self._pool = pool

    async def _prompt(self, case: str) -> Outcome[Any]:
        if self._chance.random() < 0.5:
            return await super()._prompt(case)
        async with self._pool.session(key=case, timeout=None) as session:
            outcome: Outcome[Any] = await (await session.send_user_message("hello"))
        return outcome

    async def _resume(
        self, case: str, pending: PendingApproval, decision: Any, wait: float | None
    ) -> Outcome[Any]:
        outcome: Outcome[Any] = await self._pool.resume(case, decision, pending=pending, wait=wait)
        return outcome


class FleetDoor:
    """People who call `Run.approve`, or use the command line."""

    def __init__(self, plan: Plan, chance: random.Random) -> None:
        self._plan, self._chance = plan, chance
        self._fleet = plan.fleet()

    async def look(self, case: str) -> PendingApproval | str | None:
        info = await self._fleet.run(self._plan.cases[case]).info()
        if info.status.is_final:
            return str(info.status)
        return info.pending

    async def decide(self, case: str, pending: PendingApproval, decision: Any) -> None:
        run = self._plan.cases[case]
        if isinstance(decision, Allow) and self._chance.random() < 0.1:
            words = ["runs", "approve", run, "--call", pending.tool_use_id]
            words += ["--database", self._plan.database]
            code = await asyncio.to_thread(command, words)
            if code == 1:
                raise UsageError("the command said so")
            if code != 0:
                raise RuntimeError(f"exit status {code}")
            return
        await self._fleet.run(run).approve(decision, pending=pending)


def decisions_about(pending: PendingApproval, who: str, chance: random.Random) -> tuple[str, Any]:
    """Return the name of a decision, and the decision."""
    kind = chance.choices(("allow", "edit", "deny"), (6, 3, 1))[0]
    if kind == "deny":
        return kind, Deny("not now")
    return kind, Allow() if kind == "allow" else Edit({**pending.tool_input, "note": who})


async def person(plan: Plan, door: Door, case: str, who: str, chance: random.Random) -> None:
    """See the calls of a conversation, think, and decide, until the conversation has ended."""
    while True:
        pending = await door.look(case)
        if isinstance(pending, str):
            return
        if pending is None:
            await asyncio.sleep(chance.uniform(0.05, 0.3))
            continue
        plan.note(Seen(case, who, pending.tool_use_id, pending.tool_input))
        # Most people decide at about the same time. Some are late.
        slow = plan.think * chance.choice((0.1, 0.2, 1.0, 4.0))
        await asyncio.sleep(chance.uniform(0, slow))
        await decide(plan, door, case, who, pending, chance)


async def decide(
    plan: Plan,
    door: Door,
    case: str,
    who: str,
    pending: PendingApproval,
    chance: random.Random,
) -> None:
    """Decide about a call, and write down what the person was told."""
    kind, decision = decisions_about(pending, who, chance)
    allowed = {"allow": pending.tool_input, "edit": getattr(decision, "new_input", None)}.get(kind)
    told = TAKEN
    try:
        await door.decide(case, pending, decision)
    except Exception as error:
        told = type(error).__name__ if isinstance(error, BridleError) else repr(error)
    plan.note(Decided(case, who, pending.tool_use_id, kind, allowed, told))


async def people(plan: Plan, number: int) -> None:
    """Be a program with some people in it."""
    chance = random.Random(f"{plan.seed} {number}")
    if plan.door == "pool":
        async with pool_of(plan.agent(), size=plan.at_once, ready=0) as pool:
            await _attend_all(plan, PoolDoor(plan, chance, pool), number, chance)
    else:
        made = ResumeDoor if plan.door == "resume" else FleetDoor
        await _attend_all(plan, made(plan, chance), number, chance)


async def _attend_all(
    plan: Plan, door: ResumeDoor | FleetDoor, number: int, chance: random.Random
) -> None:
    room = asyncio.Semaphore(plan.at_once)
    (plan.home / f"ready-{number}").touch()
    await until((plan.home / "go").exists, _LIMIT)

    async def attend(case: str) -> None:
        async with room:
            names = [f"person {number}.{one}" for one in range(plan.people)]
            tasks = [asyncio.create_task(person(plan, door, case, one, chance)) for one in names]
            if isinstance(door, ResumeDoor):
                await asyncio.sleep(chance.uniform(0, plan.think))
                await door.disturb(case)
            await asyncio.gather(*tasks)

    async with asyncio.timeout(_LIMIT):
        await asyncio.gather(*(attend(case) for case in plan.cases))


# ---------------------------------------------------------------- playing


class Round(Struct):
    """One round: how many conversations there are, and who decides."""

    seed: int
    door: str
    cases: int
    #: How many calls each conversation has after the first one.
    more: int = 1
    store: str = "files"
    programs: int = 2
    #: The path of a real CLI. None: the fake one.
    cli_path: str | None = None
    at_once: int = 8
    #: How many workers of the fleet are killed.
    kills: int = 0


def play(round: Round, directory: Path, database: str | None = None) -> list[History]:
    """Play a round in a new directory. Return a history for each conversation.

    ``database`` is that of the fleet. Without it, the fleet has a new SQLite file.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "work").mkdir(exist_ok=True)
    # Some plain people of this machine take part, so their environment is that of the programs.
    with _environment(directory), _cli(round, directory) as options:
        plan = Plan(
            directory=str(directory),
            seed=round.seed,
            door=round.door,
            options=options,
            store=round.store,
            at_once=round.at_once,
            database=database or f"sqlite:///{directory}/runs.db",
            # A worker is more often killed in the middle of a call.
            slow=1.0 if round.kills else 0.0,
        )
        asyncio.run(_play(round, plan))
    text = (directory / "history").read_text()
    entries = [msgjson.decode(line, type=Entry) for line in text.splitlines()]
    histories = {case: History(case) for case in plan.cases}
    for entry in entries:
        histories[entry.case].entries.append(entry)
    return [*histories.values()]


@contextlib.contextmanager
def _environment(directory: Path) -> Iterator[None]:
    names = {"XDG_STATE_HOME": "state", "CLAUDE_CONFIG_DIR": "config"}
    before = {name: os.environ.get(name) for name in names}
    os.environ |= {name: str(directory / place) for name, place in names.items()}
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextlib.contextmanager
def _cli(round: Round, directory: Path) -> Iterator[dict[str, Any]]:
    options: dict[str, Any] = {"cwd": str(directory / "work")}
    if round.cli_path is None:
        with FakeCli.auto(transcripts=True, lifetime=3600) as cli:
            yield options | {"cli_path": cli.path}
        return
    with ScriptedModel(model_of) as model:
        home = {"HOME": str(directory), "CLAUDE_CONFIG_DIR": str(directory / "config")}
        yield options | {
            "cli_path": round.cli_path,
            "env": {**model.env, **home},
            "inherit_env": ["PATH"],
            "model": "claude-sonnet-4-5",
        }


def model_of(request: ModelRequest) -> list[Any]:
    """Obey the last prompt or tool result that asks for a call, as the fake CLI does."""
    last = ""
    for message in request.messages:
        content = message.get("content")
        blocks: Any = content if isinstance(content, list) else [{"text": str(content)}]
        for block in blocks if message.get("role") == "user" else ():
            is_result = block.get("type") == "tool_result"
            said = json.dumps(block.get("content")) if is_result else str(block.get("text", ""))
            if is_result or "CALL " in said:
                last = said.replace('\\"', '"')
    _, found, rest = last.partition("CALL mcp__tools__pay ")
    if not found:
        return [text("Done.")]
    given, _ = json.JSONDecoder().raw_decode(rest)
    return [tool_use("mcp__tools__pay", **given)]


async def _play(round: Round, plan: Plan) -> None:
    first = {f"c{number}": round.more for number in range(round.cases)}
    prompts = {
        case: f"CALL mcp__tools__pay {json.dumps({'case': case, 'left': more})}"
        for case, more in first.items()
    }
    async with _conversations(round, plan, prompts), _programs(plan, round.programs) as programs:
        await until(lambda: len([*plan.home.glob("ready-*")]) >= len(programs), _LIMIT)
        (plan.home / "go").touch()
        for one in programs:
            code = await asyncio.to_thread(one.wait, _LIMIT)
            said = (plan.home / "output").read_text()[-10_000:]
            assert code == 0, f"a program of the history failed: {code}\n{said}"
        await _write_ends(plan)


@contextlib.asynccontextmanager
async def _conversations(
    round: Round, plan: Plan, prompts: Mapping[str, str]
) -> AsyncIterator[None]:
    """Begin the conversations, or submit the runs and have workers."""
    if plan.door != "fleet":
        async with pool_of(plan.agent(), size=round.at_once, ready=0) as pool:

            async def begin(case: str, prompt: str) -> None:
                async with pool.session(key=case) as session:
                    outcome = await (await session.send_user_message(prompt))
                assert outcome.pending is not None, outcome
                plan.cases[case] = outcome.pending.session_id
                plan.show(case, outcome)

            await asyncio.gather(*(begin(*one) for one in prompts.items()))
        yield
        return
    fleet = plan.fleet()
    for case, prompt in prompts.items():
        plan.cases[case] = (await fleet.submit(prompt)).id
    await fleet.aclose()
    workers = Workers(plan, 2)
    killing = asyncio.create_task(_kill(round, workers))
    try:
        yield
    finally:
        killing.cancel()
        workers.close()


async def _kill(round: Round, workers: Workers) -> None:
    """Kill workers soon after a call has run, and start others for them."""
    chance, history = random.Random(f"{round.seed} kills"), workers.plan.home / "history"
    for _ in range(round.kills):
        await _another_effect(history)
        await asyncio.sleep(chance.uniform(0.0, 1.0))
        await asyncio.to_thread(workers.kill, chance)


async def _another_effect(history: Path) -> None:
    before = _count_effects(history)
    await until(lambda: _count_effects(history) != before, _LIMIT)


def _count_effects(history: Path) -> int:
    return history.read_bytes().count(b'"type":"Ran"') if history.exists() else 0


@contextlib.asynccontextmanager
async def _programs(plan: Plan, count: int) -> AsyncIterator[list[subprocess.Popen[bytes]]]:
    path = plan.home / "plan.json"
    path.write_bytes(msgjson.encode(plan))
    words = [sys.executable, "-X", "faulthandler", "-m", plan.module, str(path)]
    with open(plan.home / "output", "wb") as output:
        found = [
            subprocess.Popen([*words, f"people{number}"], cwd=ROOT, stdout=output, stderr=output)
            for number in range(count)
        ]
        try:
            yield found
        finally:
            for one in found:
                with contextlib.suppress(ProcessLookupError):
                    one.send_signal(signal.SIGKILL)
                one.wait()


async def _write_ends(plan: Plan) -> None:
    """Write down how each conversation has ended."""
    if plan.door != "fleet":
        for case in plan.cases:
            shown = plan.board(case).read_text()
            waits = PendingApproval.from_json(shown).tool_use_id if shown[0] == "{" else None
            plan.note(Ended(case, "waiting" if waits else shown, waits))
        return
    fleet = plan.fleet()
    for case, run in plan.cases.items():
        info = await fleet.run(run).info()
        waits = None if info.pending is None else info.pending.tool_use_id
        told = str([one.raw for one in await fleet.run(run).messages()])
        is_cut_off = any(one in told for one in NOTICES)
        reason = f"{info.status}: {info.detail}" if info.detail else str(info.status)
        plan.note(Ended(case, reason, waits, is_cut_off))
    await fleet.aclose()


def check(histories: Sequence[History]) -> Counter[str]:
    """Judge histories. Return how many decisions were told what, and how many calls ran."""
    wrong = [f"{one.case}: {text}" for one in histories for text in judge(one)]
    assert not wrong, "\n".join(wrong[:20])
    told = Counter(one.told for history in histories for one in history.of(Decided))
    told["ran"] = sum(len(history.of(Ran)) for history in histories)
    told["prompts"] = sum(len(history.of(Prompted)) for history in histories)
    return told


def changed(history: History, of: type[Any], number: int, **fields: Any) -> History:
    """Return a history with one entry of a kind changed."""
    chosen = history.of(of)[number]
    entries = [structs.replace(one, **fields) if one is chosen else one for one in history.entries]
    return History(history.case, entries)


if __name__ == "__main__":
    _plan = msgjson.decode(Path(sys.argv[1]).read_bytes(), type=Plan)
    if sys.argv[2].startswith("people"):
        asyncio.run(people(_plan, int(sys.argv[2].removeprefix("people"))))
    else:
        asyncio.run(work_on(_plan, sys.argv[2]))
