"""Runs whose workers died: they are started alone, later each time, and given up in the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from tests.shell.test_fleet import WAIT, Place, place, working
from tests.shell.test_fleet_kills import database_of
from tests.shell.test_fleet_order import claimant
from tests.support.fleets import reach
from tests.support.limits import SetLimits
from tests.support.processes import run, until
from tests.support.steps import ReplaceSteps

import bridle
from bridle import OutcomeReason
from bridle.fleet import Fleet, Run, RunStatus
from bridle.fleet._decisions import GIVE_UP
from bridle.fleet._locks import FileLock, LockLost
from bridle.fleet._queue import dbos_queue as _dbos
from bridle.fleet._queue.dbos_queue import Queue

pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")

__all__ = ["place"]

KINDS = pytest.mark.parametrize("kind", ["sqlite", "postgres"])


@pytest.fixture
def database(kind: str, request: pytest.FixtureRequest, place: Place) -> str:
    return database_of(kind, request, place.path)


@contextlib.asynccontextmanager
async def queue_with(place: Place, database: str, runs: int) -> AsyncIterator[tuple[Queue, Any]]:
    """A queue with some runs, and a function that claims for a worker."""
    async with Fleet(place.agent(), database) as fleet:
        queue = fleet._queue
        for number in range(runs):
            await fleet.submit("SAY Fine.", key=f"run{number}")
        ids = {
            run_id: f"run{number}"
            for number in range(runs)
            for run_id in queue.ids_with(f"run{number}")
        }

        def take(executor: str, at_once: int = 4, **limits: Any) -> list[str]:
            who = claimant(queue, executor, at_once=at_once, **limits)
            return [ids[one] for one in queue.claim(who, ())[0]]

        yield queue, take


def die(queue: Queue, executor: str) -> None:
    queue.take_over(executor)


@KINDS
async def test_a_suspect_is_claimed_by_an_idle_worker_and_alone(
    database: str, place: Place, set_limits: SetLimits
) -> None:
    set_limits(freed_run_pause=lambda now, _: _freed(now, 0.0), overdue_run=10**9)
    async with queue_with(place, database, 4) as (queue, take):
        for worker in ("w1", "w2"):
            assert take(worker, 2) == ["run0", "run1"]
            die(queue, worker)
        assert take("w3") == ["run0"], "alone"
        assert take("w3") == [], "and it stays alone"
        assert take("w4") == ["run1"]
        assert take("w5") == ["run2", "run3"]
        die(queue, "w4")
        assert take("w5") == [], "a worker that has runs takes no suspect"
        assert take("w6") == ["run1"]


_freed = _dbos._freed


@pytest.mark.longer(after=1)
@KINDS
async def test_a_suspect_does_not_wait_for_ever_for_an_idle_worker(
    database: str, place: Place, set_limits: SetLimits
) -> None:
    set_limits(freed_run_pause=lambda now, _: _freed(now, 0.0), overdue_run=0)
    async with queue_with(place, database, 5) as (queue, take):
        assert take("busy", 1) == ["run0"]
        for worker in ("w1", "w2"):
            assert take(worker, 2) == ["run1", "run2"]
            die(queue, worker)
        assert take("busy") == ["run1"], "it waits there until run0 has ended"
        assert take("busy") == [], "and no other run is taken"
        assert take("other") == ["run2"]


@pytest.mark.longer(after=1)
@KINDS
async def test_the_limits_hold_for_suspects(
    database: str, place: Place, set_limits: SetLimits
) -> None:
    set_limits(freed_run_pause=lambda now, _: _freed(now, 0.0))
    async with queue_with(place, database, 3) as (queue, take):
        for worker in ("w1", "w2"):
            assert take(worker) == ["run0", "run1", "run2"]
            die(queue, worker)
        assert take("w3", tenant_at_once=1) == ["run0"]
        assert take("w4", tenant_at_once=1) == []
        assert take("w4", tenant_at_once=2, fleet_at_once=1) == []
        assert take("w4", tenant_at_once=2) == ["run1"]


@pytest.mark.longer(after=1)
@KINDS
async def test_a_run_whose_workers_died_goes_into_the_queue_later_each_time(
    database: str, place: Place
) -> None:
    async with queue_with(place, database, 1) as (queue, take):
        [one] = queue.ids_with("run0")
        assert take("w1") == ["run0"]
        die(queue, "w1")
        assert queue.rows([one])[one].status == "ENQUEUED", "at once after the first death"
        for number, seconds in enumerate((1.0, 2.0)):
            await until(partial(take, f"x{number}"))
            died_at = queue.now()
            die(queue, f"x{number}")
            row = queue.rows([one])[one]
            assert row.status == "DELAYED"
            assert "workers died" in row.attributes["delayed"]
            assert row.delayed_until is not None
            assert died_at + seconds <= row.delayed_until + 0.01 <= queue.now() + seconds + 0.02


@pytest.mark.longer(after=1)
@KINDS
async def test_only_the_runs_of_the_dead_worker_are_put_back(database: str, place: Place) -> None:
    async with queue_with(place, database, 3) as (queue, take):
        assert take("w1", 2) == ["run0", "run1"]
        assert take("w2", 2) == ["run2"]
        [cancelled] = queue.ids_with("run1")
        queue.cancel(cancelled)
        [first] = queue.ids_with("run0")
        assert {*queue.take_over("w1")} == {first}
        assert queue.take_over("w1") == {}
        assert [executor for _, executor in queue.running()] == ["w2"]
        assert queue.rows([cancelled])[cancelled].status == "CANCELLED"
        crashes = queue.rows([first])[first].attributes["crashes"]
        assert crashes == {"w1": 1}, "a cancelled run is no other run"


async def test_notes_about_a_run_keep_the_deaths_of_its_workers(place: Place) -> None:
    database = f"sqlite:///{place.path}/runs.db"
    async with queue_with(place, database, 1) as (queue, take):
        assert take("w1") == ["run0"]
        die(queue, "w1")
        assert take("w2") == ["run0"]
        [one] = queue.ids_with("run0")
        segment = queue.rows([one])[one].segment
        assert segment is not None
        queue.note(segment, "w2", {"running_usd": 1.0})
        assert queue.postpone(segment, "w2", 60.0, {"delayed": "poor"})
        row = queue.rows([one])[one]
        assert row.attributes["crashes"] == {"w1": 1}
        assert row.attributes["delayed"] == "poor"
        assert "running_usd" not in row.attributes
        assert row.starts == 1


def charge(place: Place, one: Run, workers: int) -> None:
    """Write down that workers have died while they had only this run."""
    with contextlib.closing(sqlite3.connect(place.path / "runs.db", timeout=30)) as file, file:
        dead = ", ".join(f'"w{number}": 1' for number in range(workers))
        file.execute(
            "UPDATE workflow_status SET attributes = json_set(attributes, '$.crashes', json(?))"
            " WHERE workflow_uuid = ?",
            (f"{{{dead}}}", one.id),
        )


async def test_a_run_that_has_killed_too_many_workers_fails_with_the_reason(place: Place) -> None:
    async with place.fleet() as fleet:
        one = await fleet.submit("SAY Never.")
        charge(place, one, GIVE_UP)
        other = await fleet.submit("SAY Fine.")
        async with working(fleet):
            outcome = await one.outcome(WAIT)
            assert (await other.outcome(WAIT)).ok
        assert outcome.reason is OutcomeReason.STOPPED
        assert f"{GIVE_UP} workers died while this run was the only one" in outcome.detail
        info = await one.info()
        assert (info.status, info.detail) == (RunStatus.FAILED, outcome.detail)
    assert place.prompts() == ["SAY Fine."]


async def test_a_suspect_starts_when_the_other_runs_of_its_worker_have_ended(
    place: Place, set_limits: SetLimits
) -> None:
    set_limits(overdue_run=-(10**9))
    running: list[str] = []
    seen: list[list[str]] = []

    @bridle.tool
    async def build(name: str) -> str:
        """Build."""
        running.append(name)
        seen.append([*running])
        await asyncio.sleep(1.0)
        running.remove(name)
        return "built"

    fleet = place.fleet(place.agent(tools=[build]))
    call = "CALL mcp__tools__build {}"
    first = await fleet.submit(call.format('{"name": "first"}'))
    suspect = await fleet.submit(call.format('{"name": "suspect"}'))
    charge(place, suspect, GIVE_UP - 1)
    last = await fleet.submit(call.format('{"name": "last"}'))
    async with working(fleet):
        for one in (first, suspect, last):
            assert (await one.outcome(WAIT)).ok
    assert seen == [["first"], ["suspect"], ["last"]]


async def test_a_suspect_that_waits_for_other_runs_can_be_handed_over(
    place: Place, set_limits: SetLimits
) -> None:
    set_limits(overdue_run=-(10**9))
    fleet = place.fleet()
    first = await fleet.submit("SLOW")
    suspect = await fleet.submit("SAY Fine.")
    charge(place, suspect, GIVE_UP - 1)
    async with working(fleet, drain=0.1):
        await reach(suspect, RunStatus.RUNNING)
    assert await suspect.status() is RunStatus.QUEUED
    await first.cancel()
    async with working(fleet):
        assert (await suspect.outcome(WAIT)).ok


# ---------------------------------------------------------------- workers that are not dead


def crashes(fleet: Fleet, one: Run) -> Any:
    return fleet._queue.rows([one.id])[one.id].attributes.get("crashes", {})


@pytest.mark.parametrize("stalled", [False, True])
def test_a_worker_that_has_only_lost_its_lock_is_not_counted_as_dead(
    place: Place,
    replace_steps: ReplaceSteps,
    set_limits: SetLimits,
    caplog: pytest.LogCaptureFixture,
    *,
    stalled: bool,
) -> None:
    """Unless the worker stood still: then the run may have been the reason."""
    caplog.set_level(logging.INFO, "bridle.fleet")
    set_limits(lock_confirmation_pause=0.05)  # long before the run ends
    confirm = FileLock.confirm
    lose: list[bool] = []

    async def losing(lock: FileLock) -> None:
        await confirm(lock)
        if lose:
            lose.clear()
            set_limits(worker_stall=-1.0 if stalled else WAIT)
            raise LockLost

    replace_steps(confirm_lock=losing)

    async def main() -> None:
        async with place.fleet() as fleet:
            one = await fleet.submit("SLOW 3")
            async with working(fleet):
                await until(lambda: place.prompts())
                [worker] = {executor for _, executor in fleet._queue.running()}
                # Another worker has found the lock free already.
                await asyncio.to_thread(fleet._queue.take_over, worker)
                lose.append(True)
                assert (await one.outcome(WAIT)).ok
                assert (crashes(fleet, one) == {worker: 1}) is stalled

    run(main)
    assert "has lost its lock" in caplog.text
