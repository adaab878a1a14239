"""Several workers: runs start in the order they were submitted, and never more than the limits."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.shell.test_fleet_kills import database_of
from tests.support.fleets import FleetPlan, Workers, working
from tests.support.limits import SetLimits
from tests.support.processes import run

from bridle import Agent
from bridle.fleet import Fleet, Run
from bridle.fleet._queue.claims import Claimant
from bridle.fleet._queue.dbos_queue import Queue
from bridle.testing import FakeCli

pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")

WAIT = 120.0
WORKERS = 3

KINDS = pytest.mark.parametrize("kind", ["sqlite", "postgres"])


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path


class History:
    """What the tool of the runs has written: when each run began and ended, in this order."""

    def __init__(self, plan: FleetPlan) -> None:
        self.events = [(str(one["line"]), str(one["event"])) for one in plan.calls]

    @property
    def starts(self) -> list[str]:
        return [name for name, event in self.events if event == "start"]

    def most_at_once(self, tenant: str = "") -> int:
        """How many runs of a tenant have overlapped. Their names begin with that of the tenant."""
        open_, most = 0, 0
        for name, event in self.events:
            if name.startswith(tenant):
                open_ += 1 if event == "start" else -1
                most = max(most, open_)
        return most

    def check_order(self, submitted: list[str], at_once: int) -> None:
        """Check that a run began only when fewer than ``at_once`` of those before it had to end."""
        ended: set[str] = set()
        for name, event in self.events:
            if event == "end":
                ended.add(name)
            elif name in submitted:
                before = submitted[: submitted.index(name)]
                unfinished = [one for one in before if one not in ended]
                assert len(unfinished) < at_once, (name, unfinished, self.events)


async def submit(fleet: Fleet, name: str, **options: Any) -> Run:
    prompt = f"CALL mcp__tools__append {json.dumps({'line': name})}"
    return await fleet.submit(prompt, key=name, **options)


def work(
    kind: str,
    request: pytest.FixtureRequest,
    places: Path,
    names: list[tuple[str, dict[str, Any]]],
    at_once: int = 4,
    **limits: Any,
) -> tuple[History, Workers]:
    """Submit runs, start workers, and return the history of the runs."""
    database = database_of(kind, request, places)
    found: list[tuple[History, Workers]] = []

    async def main() -> None:
        with FakeCli.auto(transcripts=True) as cli:
            plan = FleetPlan(
                directory=str(places),
                database=database,
                options={"cli_path": cli.path, "cwd": str(places)},
                at_once=at_once,
                **limits,
            )
            async with plan.fleet() as fleet:
                runs = [await submit(fleet, name, **options) for name, options in names]
                async with working(plan, WORKERS) as workers:
                    for one in runs:
                        assert (await one.outcome(WAIT)).ok
                    assert workers.stop() == [0] * WORKERS
                    assert "Traceback" not in workers.errors()
                    assert "dbos" not in workers.errors().lower()
                    assert "lost its lock" not in str(plan.log)
                    found.append((History(plan), workers))

    run(main, timeout=600)
    return found[0]


@pytest.mark.longer(after=1)
@KINDS
@pytest.mark.longer
def test_the_runs_of_a_tenant_start_in_their_order(
    kind: str, request: pytest.FixtureRequest, places: Path
) -> None:
    names = [f"a{number}" for number in range(6)]
    submitted = [(name, {"tenant": "acme"}) for name in names]
    history, _ = work(kind, request, places, submitted, tenant_at_once=1)
    assert history.starts == names


@pytest.mark.longer
@KINDS
def test_the_limit_of_a_tenant_is_exact_and_tenants_take_turns_by_submission(
    kind: str, request: pytest.FixtureRequest, places: Path
) -> None:
    names = [f"{'ab'[number % 2]}{number:02}" for number in range(20)]
    submitted = [(name, {"tenant": name[0]}) for name in names]
    history, _ = work(kind, request, places, submitted, tenant_at_once=2)
    assert history.most_at_once("a") == history.most_at_once("b") == 2
    for tenant in "ab":
        history.check_order([name for name in names if name[0] == tenant], 2)


@pytest.mark.longer
@KINDS
def test_the_limit_of_a_fleet_is_exact(
    kind: str, request: pytest.FixtureRequest, places: Path
) -> None:
    names = [f"a{number:02}" for number in range(16)]
    history, _ = work(kind, request, places, [(name, {}) for name in names], fleet_at_once=3)
    assert history.most_at_once() == 3
    history.check_order(names, 3)


@pytest.mark.longer
@KINDS
def test_a_higher_priority_goes_before_the_order(
    kind: str, request: pytest.FixtureRequest, places: Path
) -> None:
    ranks = {"a0": 0, "a1": 0, "b2": 5, "a3": 5, "b4": 0, "a5": 9}
    submitted = [(name, {"tenant": name[0], "priority": rank}) for name, rank in ranks.items()]
    history, _ = work(kind, request, places, submitted, fleet_at_once=1, tenant_at_once=1)
    assert history.starts == ["a5", "b2", "a3", "a0", "a1", "b4"]


@pytest.mark.longer(after=1)
@KINDS
async def test_a_cancelled_run_counts_until_its_worker_has_ended_it(
    kind: str, request: pytest.FixtureRequest, places: Path, set_limits: SetLimits
) -> None:
    database = database_of(kind, request, places)
    async with Fleet(Agent(), database) as fleet:
        queue = fleet._queue
        queue.open()
        runs = [await fleet.submit("SAY Fine.", tenant="a") for _ in range(4)]
        ids = [one.id for one in runs]
        limited = [
            claimant(queue, "w2", at_once=4, fleet_at_once=1),
            claimant(queue, "w2", at_once=4, tenant_at_once=1),
        ]
        assert queue.claim(claimant(queue, "w1", at_once=1), ())[0] == ids[:1]
        await runs[0].cancel()
        await runs[3].cancel()  # no worker has it
        for who in limited:
            assert queue.claim(who, ())[0] == []
        segment = queue.rows(ids[:1])[ids[0]].segment
        assert segment is not None
        queue.note(segment, "w1", {"running_usd": 0.5})  # its worker still writes down costs
        queue.let_go(ids[0], "another worker")
        for who in limited:
            assert queue.claim(who, ())[0] == []
        queue.let_go(ids[0], "w1")
        assert queue.claim(limited[0], ())[0] == ids[1:2]
        await runs[1].cancel()  # the worker dies and says nothing
        assert queue.claim(limited[1], ())[0] == []
        set_limits(ending=-5000)  # milliseconds
        assert queue.claim(limited[1], ())[0] == ids[2:3]
        assert [(await one.info()).cost_usd for one in runs[:2]] == [0.5, None]


@KINDS
@pytest.mark.parametrize("moment", [1, 2])
async def test_a_run_that_is_claimed_while_it_is_cancelled_counts_as_well(
    kind: str, request: pytest.FixtureRequest, places: Path, moment: int
) -> None:
    """The worker claims it when the n-th transaction of the cancellation begins."""
    from sqlalchemy import event

    database = database_of(kind, request, places)
    async with Fleet(Agent(), database) as fleet, Fleet(Agent(), database) as other:
        ids = [(await fleet.submit("SAY Fine.", tenant="a")).id for _ in range(2)]
        queue, worker = fleet._queue, other._queue
        worker.open()
        begun: list[Any] = []
        claimed: list[str] = []

        def begin(connection: Any) -> None:
            begun.append(connection)
            if len(begun) == moment:
                claimed.extend(worker.claim(claimant(worker, "w1", at_once=1), ())[0])

        engine = queue._client._sys_db.engine
        event.listen(engine, "begin", begin)
        queue.cancel(ids[0])
        event.remove(engine, "begin", begin)
        assert queue.states(ids[:1])[ids[0]][0] == "CANCELLED"
        next_one = worker.claim(claimant(worker, "w2", at_once=1, tenant_at_once=1), ())[0]
        assert next_one == ([] if claimed else ids[1:])


def claimant(queue: Queue, executor: str, **limits: Any) -> Claimant:
    chosen: dict[str, Any] = {"fleet_at_once": None, "tenant_at_once": None, **limits}
    return Claimant(application=queue.name, version=queue.version, executor=executor, **chosen)


@KINDS
def test_claims_at_the_same_time_do_not_pass_a_limit(
    kind: str, request: pytest.FixtureRequest, places: Path
) -> None:
    """Each worker claims in a thread with connections of its own, all at the same moment."""
    database = database_of(kind, request, places)
    workers, rounds = 6, 8
    barrier = threading.Barrier(workers)

    async def submit_all() -> list[str]:
        async with Fleet(Agent(), database) as fleet:
            tenants = ["ab"[number % 2] for number in range(4 * rounds)]
            return [(await fleet.submit("SAY Fine.", tenant=one)).id for one in tenants]

    def work_in(number: int) -> list[list[str]]:
        queue = Queue(Fleet(Agent(), database)._queue.url, "default")
        queue.open()
        who = claimant(queue, f"w{number}", at_once=2, fleet_at_once=3, tenant_at_once=2)
        found: list[list[str]] = []
        try:
            for _ in range(rounds):
                barrier.wait()
                ids, _ = queue.claim(who, ())
                found.append(ids)
                barrier.wait()
                for one in ids:
                    queue.cancel(one)
                    queue.let_go(one, who.executor)
        finally:
            if len(found) < rounds:
                barrier.abort()  # a claim has failed: the others must not wait for it
            queue.close()
        return found

    submitted = asyncio.run(submit_all())
    with ThreadPoolExecutor(workers) as threads:
        histories = list(threads.map(work_in, range(workers)))
    places_of = {one: place for place, one in enumerate(submitted)}
    before: set[int] = set()
    for claims in zip(*histories, strict=True):
        claimed = {places_of[one] for ids in claims for one in ids}
        assert len(claimed) == 3, claims
        assert all(len(ids) <= 2 for ids in claims), "no worker has more than it may have"
        for tenant in (0, 1):
            count = len([one for one in claimed if one % 2 == tenant])
            assert count <= 2, "no tenant has more than it may have"
        assert claimed == {*[one for one in range(len(submitted)) if one not in before][:3]}
        before |= claimed


@pytest.mark.parametrize("is_analyzed", [False, True])
async def test_a_claim_reads_only_the_runs_that_it_takes(
    request: pytest.FixtureRequest, places: Path, *, is_analyzed: bool
) -> None:
    """PostgreSQL has no statistics of a queue that has just been filled."""
    from sqlalchemy import event

    database = database_of("postgres", request, places)
    claims: list[tuple[str, Any]] = []
    async with Fleet(Agent(), database) as fleet:
        runs = [await fleet.submit("SAY Fine.") for _ in range(4)]
        late = await fleet.submit("SAY Fine.", delay=3600)
        gone = await fleet.submit("SAY Fine.")
        await gone.cancel()
        queue: Any = fleet._queue
        engine = queue._client._sys_db.engine
        with engine.begin() as connection:
            for one in (runs[3].id, late.id, gone.id):
                connection.exec_driver_sql(_COPY, {"id": one, "count": 10_000})
        if is_analyzed:
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql("ANALYZE bridle_fleet.workflow_status")
        who = claimant(queue, "e", at_once=3, tenant_at_once=5)

        def keep(_: Any, __: Any, statement: str, given: Any, *___: Any) -> None:
            if statement.startswith("SELECT") and "workflow_status" in statement:
                claims.append((statement, given))

        event.listen(engine, "before_cursor_execute", keep)
        assert queue.claim(who, ())[0] == [one.id for one in runs[:3]]
        event.remove(engine, "before_cursor_execute", keep)
        assert len(claims) == 5, "delayed, queued, running and ending runs, and the choice"
        with engine.begin() as connection:
            for statement, given in claims:
                explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
                ((plans,),) = connection.exec_driver_sql(explain, given)
                assert most_rows(plans[0]["Plan"]) <= 3 + 1, statement


_COPY = """
INSERT INTO bridle_fleet.workflow_status (workflow_uuid, status, name, created_at, updated_at,
    recovery_attempts, priority, queue_name, queue_partition_key, application_name,
    application_version, delay_until_epoch_ms, attributes, completed_at)
SELECT gen_random_uuid(), status, name, created_at + number, updated_at, 0, priority, queue_name,
    queue_partition_key, application_name, application_version, delay_until_epoch_ms, attributes,
    completed_at - 3600000
FROM bridle_fleet.workflow_status, generate_series(1, %(count)s) AS number
WHERE workflow_uuid = %(id)s
"""
"""Copies a run, each a millisecond later. The copies of one that has ended did so an hour ago."""


def most_rows(plan: dict[str, Any]) -> int:
    """How many rows a step of a plan has read at most."""
    own = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    return int(max(own, *map(most_rows, plan.get("Plans", ())), 0))
