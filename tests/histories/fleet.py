"""Histories of a fleet: workers are killed, die of a run, or have a wrong clock.

``python -m tests.histories.fleet PLAN NUMBER`` is a worker. `play` submits runs of several tenants
while workers run them, and returns a history: what was acknowledged, every change of a run in the
database, what the tools did, and the outcomes. The changes are written by triggers in the database,
so they have one order. `judge` says what is wrong with a history.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, structs
from msgspec import json as msgjson
from tests.support.fleets import NOTICES, FleetPlan, Workers, append_line, lines_of, work_on
from tests.support.processes import until

import bridle
from bridle import OptionsError, ToolContext, tool
from bridle.fleet import Fleet, RunInfo, RunStatus, TenantLimits
from bridle.testing import FakeCli

DAY = 86400.0

_LIMIT = 300.0
"""Seconds after which the runs of a history must have ended."""

_FRESH = 1.0
"""Seconds for which a claim may overlook a run that has just been put back."""

GIVE_UP = 5
"""How many workers a run may kill that had no other run, before it fails."""

SHARED = 2
"""How many workers may die that had a run and others, before it is started alone."""


# ---------------------------------------------------------------- what was recorded


class Submission(Struct):
    """A prompt that was submitted."""

    #: The line that the tool of the run appends. No two runs have the same.
    line: str
    tenant: str | None
    key: str | None
    #: The run that was acknowledged. None if the prompt was refused.
    run_id: str | None = None
    #: The line under the same key and tenant before, if any.
    before: str | None = None
    delay: float = 0.0


class Change(Struct):
    """A change of the status of a run in the database."""

    number: int
    run_id: str
    old: str | None
    new: str
    worker: str | None
    #: By the clock of the database.
    at: float


class Call(Struct):
    """What a tool did, in the order of all workers, or the death of a worker."""

    event: str  # start, effect, end or died
    pid: int
    line: str = ""
    key: str = ""


class End(Struct):
    """What is known of a run at the end."""

    run_id: str
    status: str
    prompt: str
    tenant: str | None
    detail: str
    starts: int
    cost: float
    #: What the model was told in the conversation.
    told: str = ""


class History(Struct, kw_only=True):
    """Everything that `judge` needs."""

    at_once: int
    fleet_at_once: int | None = None
    usd: float | None = None
    kills: int = 0
    submissions: list[Submission]
    changes: list[Change]
    calls: list[Call]
    ends: list[End]


# ---------------------------------------------------------------- the judge


def judge(history: History) -> list[str]:
    """Return what is wrong with a history, each with the promise that it breaks."""
    found: list[str] = []
    for rule in (_keys, _lost, _outcomes, _effects, _at_once, _order, _delays, _dollars, _poison):
        found += [f"{rule.__name__.lstrip('_')}: {one}" for one in rule(history)]
    return found


def _kind(line: str) -> str:
    """Return what is special about a run: poison, late (a delay of days) or nothing."""
    return next((kind for kind in ("poison", "late") if f"-{kind}-" in line), "")


def _runs(history: History) -> dict[str, Submission]:
    """Return the first submission of each run that was acknowledged."""
    found: dict[str, Submission] = {}
    for one in history.submissions:
        if one.run_id is not None:
            found.setdefault(one.run_id, one)
    return found


def _keys(history: History) -> Iterator[str]:
    """A key of a tenant names one run, with one prompt."""
    runs = _runs(history)
    named: dict[tuple[str | None, str], str] = {}
    for one in history.submissions:
        if one.before is not None and (one.run_id is None) == (one.before == one.line):
            what = "refused again" if one.run_id is None else f"taken for {one.before}"
            yield f"{one.line} with the key {one.key} of {one.tenant} was {what}"
        if one.run_id is None:
            if one.before is None:
                yield f"{one.line} was refused"
            continue
        if one.key is not None and named.setdefault((one.tenant, one.key), one.run_id) != (
            one.run_id
        ):
            yield f"the key {one.key} of {one.tenant} names two runs"
        if runs[one.run_id].tenant != one.tenant:
            owner = runs[one.run_id].tenant
            yield f"{one.line} of {one.tenant} got the run of {owner} with the key {one.key}"
    for end in history.ends:
        if end.run_id in runs and json.dumps(runs[end.run_id].line) not in end.prompt:
            yield f"{runs[end.run_id].line} has the prompt of another run"


def _lost(history: History) -> Iterator[str]:
    """What was acknowledged is in the database, and ends."""
    ends = {one.run_id: one for one in history.ends}
    added = {one.run_id for one in history.changes if one.old is None}
    for run_id, one in _runs(history).items():
        end = ends.get(run_id)
        if run_id not in added or end is None:
            yield f"{one.line} was acknowledged and is not there"
        elif end.status == "delayed" and (_kind(one.line) == "late" or history.usd is not None):
            pass
        elif end.status not in ("completed", "failed", "cancelled"):
            yield f"{one.line} has not ended: it is {end.status}"
    for run_id in added - _runs(history).keys():
        yield f"{run_id} was never acknowledged"


def _outcomes(history: History) -> Iterator[str]:
    """A run has one outcome: completed, unless it kills its workers."""
    finals = Counter(one.run_id for one in history.changes if one.new in ("SUCCESS", "ERROR"))
    lines = {run_id: one.line for run_id, one in _runs(history).items()}
    for run_id, count in finals.items():
        if count > 1:
            yield f"{lines.get(run_id)} has {count} outcomes"
    for end in history.ends:
        line = lines.get(end.run_id, "")
        if _kind(line) == "poison":
            if end.status != "failed" or "workers died" not in end.detail:
                yield f"{line} kills its workers and is {end.status}: {end.detail}"
        elif end.status in ("failed", "cancelled"):
            yield f"{line} is {end.status}: {end.detail}"


def _effects(history: History) -> Iterator[str]:
    """No side effect is missing or repeated, unless a worker died that had the run."""
    claims = Counter(one.run_id for one in history.changes if one.new == "PENDING")
    runs = {one.line: run_id for run_id, one in _runs(history).items()}
    ends = {one.run_id: one for one in history.ends}
    effects: dict[str, list[str]] = {}
    for one in history.calls:
        if one.event == "effect":
            effects.setdefault(one.line, []).append(one.key)
    for line, keys in effects.items():
        if line not in runs:
            yield f"{line} was never acknowledged, and its tool ran"
        elif len(keys) > claims[runs[line]]:
            yield f"{line} has {len(keys)} side effects in {claims[runs[line]]} starts"
        if len({*keys}) > 1:
            yield f"{line} has repeated its side effect with another idempotency key"
    for line, run_id in runs.items():
        end = ends.get(run_id)
        if end is None or end.status != "completed" or line in effects:
            continue
        if claims[run_id] < 2 or not any(one in end.told for one in NOTICES):
            yield f"{line} is completed without its side effect"


def _at_once(history: History) -> Iterator[str]:
    """A tenant and the fleet have no more runs at the same time than their limits."""
    runs = _runs(history)
    tenants = {one.line: one.tenant for one in history.submissions}
    running: dict[str, str | None] = {}
    for change in history.changes:
        if change.new != "PENDING":
            running.pop(change.run_id, None)
            continue
        run = runs.get(change.run_id)
        running[change.run_id] = None if run is None else run.tenant
        yield from _over(history, "in the database", [*running.values()])
    calls: dict[str, tuple[int, str | None]] = {}
    for call in history.calls:
        match call.event:
            case "start":
                calls[call.line] = (call.pid, tenants.get(call.line))
                yield from _over(history, "in their tools", [one for _, one in calls.values()])
            case "end":
                calls.pop(call.line, None)
            case "died":
                calls = {line: one for line, one in calls.items() if one[0] != call.pid}
            case _:
                pass


def _over(history: History, where: str, tenants: Sequence[str | None]) -> Iterator[str]:
    for tenant, count in Counter(tenants).items():
        if count > history.at_once:
            yield f"{tenant} has {count} runs {where}"
    if history.fleet_at_once is not None and len(tenants) > history.fleet_at_once:
        yield f"the fleet has {len(tenants)} runs {where}"


def _order(history: History) -> Iterator[str]:
    """Of the runs of a tenant that wait, the one that was submitted first starts first."""
    runs = _runs(history)
    waiting: dict[str, float] = {}
    deaths: Counter[str] = Counter()
    places = {
        one.run_id: one.number for one in history.changes if one.old is None and one.run_id in runs
    }
    for change in history.changes:
        run_id = change.run_id
        if run_id not in places:
            continue
        if change.old == "PENDING" and change.new in ("ENQUEUED", "DELAYED"):
            deaths[run_id] += 1
        waiting.pop(run_id, None)
        if change.new == "ENQUEUED":
            waiting[run_id] = change.at if change.old else 0.0
        if change.new != "PENDING":
            continue
        for other, since in waiting.items():
            if (
                runs[other].tenant == runs[run_id].tenant
                and places[other] < places[run_id]
                and deaths[other] < SHARED
                and change.at - since > _FRESH
            ):
                yield f"{runs[run_id].line} started before {runs[other].line}"


def _delays(history: History) -> Iterator[str]:
    """A delayed run does not start before its time, by the clock of the database."""
    added = {one.run_id: one.at for one in history.changes if one.old is None}
    runs = _runs(history)
    for change in history.changes:
        if change.new == "PENDING" and (run := runs.get(change.run_id)) is not None:
            early = added[change.run_id] + run.delay - change.at
            if early > 0.05:
                yield f"{run.line} started {early:.1f} s too early"


def _dollars(history: History) -> Iterator[str]:
    """A tenant that has spent its dollars starts no run."""
    if history.usd is None:
        return
    runs = _runs(history)
    costs = {one.run_id: one.cost for one in history.ends}
    spent: dict[str | None, float] = {}
    claimed: dict[str, float] = {}
    for change in history.changes:
        run = runs.get(change.run_id)
        if run is None:
            continue
        if change.new == "PENDING":
            # A run that goes on after a death is not put off. One that was put off does not come
            # back: the window is longer than a history.
            claimed.setdefault(change.run_id, spent.get(run.tenant, 0.0))
        elif change.new == "SUCCESS":
            if (before := claimed.get(change.run_id, 0.0)) >= history.usd:
                yield f"{run.line} ran after its tenant had spent {before:g}"
            spent[run.tenant] = spent.get(run.tenant, 0.0) + costs.get(change.run_id, 0.0)


def _poison(history: History) -> Iterator[str]:
    """A run that kills its workers is given up, and others are not started for its sake."""
    runs = _runs(history)
    lines = [run.line for run in runs.values()]
    if not any(_kind(line) == "poison" for line in lines):
        return
    claims: Counter[str] = Counter()
    for one in history.changes:
        if one.new == "PENDING":
            claims[one.run_id] += 1
        elif one.new == "DELAYED" and one.old == "PENDING" and history.usd is not None:
            claims[one.run_id] -= 1  # it was put off
    for run_id, run in runs.items():
        # The last start of a poison run is the one that gives it up.
        own = SHARED + GIVE_UP + 1 if _kind(run.line) == "poison" else SHARED + 1
        if claims[run_id] > own + history.kills:
            yield f"{run.line} was started {claims[run_id]} times"


# ---------------------------------------------------------------- the worker


class HistoryPlan(FleetPlan):
    """A fleet with tools that write down what they do, and workers with wrong clocks."""

    usd: float | None = None
    #: Seconds by which the clock of each worker is ahead, in the order of their starts.
    skews: tuple[float, ...] = ()

    module = "tests.histories.fleet"

    def fleet(self, **options: Any) -> Fleet:
        calls = self.home / "calls"
        chance = random.Random()

        def note(event: str, line: str, key: str = "") -> None:
            append_line(calls, {"event": event, "pid": os.getpid(), "line": line, "key": key})

        @tool
        async def append(line: str, context: ToolContext) -> str:
            """Append a line to a file."""
            note("start", line)
            try:
                await asyncio.sleep(chance.uniform(0, self.slow))
                if _kind(line) == "poison":
                    os.kill(os.getpid(), signal.SIGKILL)
                note("effect", line, context.idempotency_key)
                await asyncio.sleep(chance.uniform(0, self.slow))
            finally:  # a worker that loses its lock cancels the call
                note("end", line)
            return f"appended {line}"

        async def prepare(info: RunInfo) -> None:
            """Kill also the workers that go on with a run that has killed one."""
            if info.starts > 1 and "-poison-" in str(info.prompt):
                await asyncio.sleep(chance.uniform(0, self.slow))
                os.kill(os.getpid(), signal.SIGKILL)

        agent = bridle.Agent(tools=[append], **self.options)
        limits = TenantLimits(at_once=self.tenant_at_once, usd=self.usd, per=3600.0)
        chosen = {"at_once": self.fleet_at_once, "tenants": limits, **options}
        return Fleet(agent, self.database, prepare=prepare, **chosen)


def _skew(seconds: float) -> None:
    """Put the clock of this process forward."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + int(seconds * 1e9)


# ---------------------------------------------------------------- playing


_SQLITE = (
    "CREATE TABLE history (number INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT, old TEXT,"
    " new TEXT, worker TEXT, at REAL)",
    *(
        f"CREATE TRIGGER history_{event.partition(' ')[0]} AFTER {event} ON workflow_status"
        f" WHEN NEW.name = 'bridle_run'{condition} BEGIN INSERT INTO history"
        f" (run_id, old, new, worker, at) VALUES (NEW.workflow_uuid, {old}, NEW.status,"
        " NEW.executor_id, (julianday('now') - 2440587.5) * 86400.0); END"
        for event, old, condition in (
            ("INSERT", "NULL", ""),
            ("UPDATE OF status", "OLD.status", " AND OLD.status IS NOT NEW.status"),
        )
    ),
)
_POSTGRES = """
CREATE TABLE bridle_fleet.history (number bigserial PRIMARY KEY, run_id text, old text, new text,
    worker text, at float8);
CREATE FUNCTION bridle_fleet.note() RETURNS trigger AS $$
BEGIN
    IF NEW.name = 'bridle_run' AND (TG_OP = 'INSERT' OR OLD.status IS DISTINCT FROM NEW.status) THEN
        INSERT INTO bridle_fleet.history (run_id, old, new, worker, at)
        VALUES (NEW.workflow_uuid, CASE WHEN TG_OP = 'UPDATE' THEN OLD.status END, NEW.status,
            NEW.executor_id, extract(epoch FROM clock_timestamp()));
    END IF;
    RETURN NULL;
END $$ LANGUAGE plpgsql;
CREATE TRIGGER history AFTER INSERT OR UPDATE ON bridle_fleet.workflow_status
    FOR EACH ROW EXECUTE FUNCTION bridle_fleet.note();
"""
_READ = "SELECT number, run_id, old, new, worker, at FROM {} ORDER BY number"


def _execute(url: str, sqlite: Sequence[str], postgres: str) -> list[Any]:
    """Execute statements on the database of a fleet, and return the rows of the last one."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path, timeout=60)) as connection, connection:
            return [connection.execute(one).fetchall() for one in sqlite][-1]
    import psycopg

    with psycopg.connect(url, autocommit=True) as server:
        cursor = server.execute(postgres.encode())
        return cursor.fetchall() if cursor.description else []


class Case(Struct):
    """What happens in a history."""

    seed: int
    workers: int = 2
    runs: int = 8
    at_once: int = 2
    fleet_at_once: int | None = None
    usd: float | None = None
    kills: int = 0
    poison: int = 0
    skews: tuple[float, ...] = ()


def case_of(seed: int) -> Case:
    """Return the case of a seed."""
    chance = random.Random(seed)
    has_poison = chance.random() < 0.3
    return Case(
        seed=seed,
        workers=chance.choice([2, 2, 3]),
        runs=chance.randint(6, 10),
        at_once=chance.randint(1, 3),
        fleet_at_once=chance.choice([None, None, 3]),
        # A run costs 0.00021.
        usd=None if has_poison else chance.choice([None, None, 0.0004]),
        kills=chance.choice([0, 1, 1, 2]),
        poison=int(has_poison),
        skews=tuple(chance.choices([0.0, 2 * DAY, -2 * DAY], k=4)),
    )


async def play(
    case: Case, database: str, home: Path, options: dict[str, Any] | None = None
) -> History:
    """Let workers run the runs of a case, and return the history.

    ``options`` are those of the agent. Without them, it uses the fake CLI.
    """
    chance = random.Random(case.seed)
    with FakeCli.auto(transcripts=True) as cli:
        plan = HistoryPlan(
            directory=str(home),
            database=database,
            options=options or {"cli_path": cli.path, "cwd": str(home)},
            at_once=3,
            tenant_at_once=case.at_once,
            fleet_at_once=case.fleet_at_once,
            usd=case.usd,
            skews=case.skews,
        )
        async with plan.fleet() as fleet:
            await asyncio.to_thread(fleet._queue.open)
            await asyncio.to_thread(_execute, database, _SQLITE, _POSTGRES)
            workers = Workers(plan, case.workers)
            calls = plan.home / "calls"
            reviving = asyncio.create_task(_revive(workers, calls))
            killing = asyncio.create_task(_kill(workers, calls, case.kills, chance))
            try:
                submissions = await _submit(fleet, case, chance)
                await killing
                await _ended(fleet, {one.run_id for one in submissions if one.run_id})
            finally:
                for task in (reviving, killing):
                    task.cancel()
                await asyncio.wait([reviving, killing])
                workers.close()
            ends = [await _end(fleet, run.id) async for run in fleet.runs()]
            read = (_READ.format("history"),), _READ.format("bridle_fleet.history")
            rows = await asyncio.to_thread(_execute, database, *read)
    return History(
        at_once=case.at_once,
        fleet_at_once=case.fleet_at_once,
        usd=case.usd,
        kills=case.kills,
        submissions=submissions,
        changes=[Change(*row) for row in rows],
        calls=[Call(**one) for one in lines_of(calls)],
        ends=ends,
    )


async def _submit(fleet: Fleet, case: Case, chance: random.Random) -> list[Submission]:
    """Submit the runs of a case, some of them again, some keys with another prompt."""
    kinds = ["poison"] * case.poison + ["late"] + [""] * case.runs
    chance.shuffle(kinds)
    wanted = [
        Submission(
            line=f"{tenant or 'none'}{'-' + kind if kind else ''}-{number}",
            tenant=tenant,
            # Each key is used by several tenants.
            key=None if chance.random() < 0.2 else f"key{number // 2}-{kind}",
            delay=2 * DAY if kind == "late" else chance.choice([0.0, 0.0, 0.0, 1.5]),
        )
        for number, kind in enumerate(kinds)
        for tenant in [chance.choice(["acme", "globex", None])]
    ]
    for one in list(wanted):
        if one.key is not None and chance.random() < 0.3:
            wanted.append(structs.replace(one))
        if one.key is not None and chance.random() < 0.3:
            wanted.append(structs.replace(one, line=f"other-{one.line}"))
    lines: dict[tuple[str | None, str], str] = {}
    for one in wanted:
        if one.key is not None:
            one.before = lines.get((one.tenant, one.key))
        with contextlib.suppress(OptionsError):
            run = await fleet.submit(
                f"CALL mcp__tools__append {json.dumps({'line': one.line})}",
                key=one.key,
                tenant=one.tenant,
                delay=one.delay or None,
            )
            one.run_id = run.id
            if one.key is not None:
                lines.setdefault((one.tenant, one.key), one.line)
        await asyncio.sleep(chance.uniform(0, 0.2))
    return wanted


async def _kill(workers: Workers, calls: Path, count: int, chance: random.Random) -> None:
    """Kill workers at random moments after the first tool has run."""
    await until(lambda: not count or calls.exists(), _LIMIT)
    for _ in range(count):
        await asyncio.sleep(chance.uniform(0.1, 3.0))
        chance.choice(workers.processes).kill()


async def _revive(workers: Workers, calls: Path) -> None:
    """Start workers for those that have died, and write their death down."""
    while True:
        for pid in workers.revive():
            append_line(calls, {"event": "died", "pid": pid})
        await asyncio.sleep(0.05)


async def _ended(fleet: Fleet, ids: set[str]) -> None:
    """Wait until no run has anything to do."""

    async def look() -> bool:
        infos = [run.listed async for run in fleet.runs()]
        return len(infos) >= len(ids) and all(map(_is_done, infos))

    with contextlib.suppress(TimeoutError):
        await until(look, _LIMIT)


def _is_done(info: RunInfo | None) -> bool:
    assert info is not None, "the run was listed"
    is_late = (info.delayed_until or 0.0) > time.time() + 600.0
    return info.status.is_final or (info.status is RunStatus.DELAYED and is_late)


async def _end(fleet: Fleet, run_id: str) -> End:
    run = fleet.run(run_id)
    info = await run.info()
    return End(
        run_id=run_id,
        status=info.status,
        prompt=str(info.prompt),
        tenant=info.tenant,
        detail=info.detail or "",
        starts=info.starts,
        cost=info.cost_usd or 0.0,
        told=str([one.raw for one in await run.messages()]),
    )


if __name__ == "__main__":
    _plan = msgjson.decode(Path(sys.argv[1]).read_bytes(), type=HistoryPlan)
    _number = int(sys.argv[2])
    if _plan.skews:
        _skew(_plan.skews[(_number - 1) % len(_plan.skews)])
    asyncio.run(work_on(_plan, sys.argv[2]))
