"""What a fleet reports: the facts of a run, and the log of workers and of DBOS."""

from __future__ import annotations

import logging
import sqlite3
import time
import traceback
from datetime import datetime

import pytest
from tests.shell.test_fleet import WAIT, Place, place, working
from tests.shell.test_fleet_kills import database_of
from tests.support.fleets import reach
from tests.support.limits import SetLimits
from tests.support.processes import run

from bridle.cli import main as command
from bridle.fleet import Fleet, RunStatus, TenantLimits
from bridle.fleet._queue.dbos_log import ExplainDbos

pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")

__all__ = ["place"]


def shown(place: Place, key: str, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The facts that ``bridle runs show`` prints, by their names."""
    database = f"sqlite:///{place.path}/runs.db"
    assert command(["runs", "show", key, "--database", database]) == 0
    lines = capsys.readouterr().out.splitlines()
    return {name: value.strip() for name, _, value in (one.partition(":") for one in lines)}


def test_the_detail_of_a_failed_run_is_shown(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    details: list[str] = []

    async def main() -> None:
        fleet = place.fleet()
        bad = await fleet.submit("FAIL 400", key="bad")
        gone = await fleet.submit("SAY Never.", key="gone", delay=3600)
        await gone.cancel()
        async with working(fleet):
            details.append((await bad.outcome(WAIT)).detail)
        assert (await bad.info()).detail == details[0] != ""
        assert (await gone.info()).detail == "the run was cancelled"
        await fleet.aclose()

    run(main)
    facts = shown(place, "bad", capsys)
    assert facts["outcome"] == "api_error"
    assert facts["detail"] == details[0]
    assert shown(place, "gone", capsys)["detail"] == "the run was cancelled"


def test_it_is_shown_why_a_run_is_delayed_and_until_when(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.time()

    async def main() -> None:
        fleet = place.fleet(tenants=TenantLimits(usd=0.00001, per=3600.0))
        await fleet.submit("SAY Later.", key="later", delay=7200)
        first = await fleet.submit("SAY Fine.", tenant="acme")
        async with working(fleet):
            await first.outcome(WAIT)
            poor = await fleet.submit("SAY Fine.", key="poor", tenant="acme")
            await reach(poor, RunStatus.DELAYED)

    run(main)

    def until(key: str) -> tuple[float, str]:
        words = shown(place, key, capsys)["delayed"].removeprefix("until ")
        at, _, reason = words.partition(": ")
        return datetime.fromisoformat(at).timestamp() - began, reason

    seconds, reason = until("later")
    assert 7199 <= seconds <= 7200 + WAIT
    assert reason == "it was submitted with a delay"
    seconds, reason = until("poor")
    assert 3500 <= seconds <= 3600 + WAIT
    assert reason == "the tenant has spent $1e-05 in 3600 s"


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_healthy_worker_that_is_stopped_does_not_report_a_lost_lock(
    kind: str,
    request: pytest.FixtureRequest,
    place: Place,
    set_limits: SetLimits,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The worker checks its lock all the time, also while it gives the lock back."""
    set_limits(lock_confirmation_pause=0.0005)
    database = database_of(kind, request, place.path)

    async def main() -> None:
        for _ in range(4):
            fleet = Fleet(place.agent(), database)
            one = await fleet.submit("SAY Fine.")
            async with working(fleet):
                assert (await one.outcome(WAIT)).ok

    run(main)
    assert [one.getMessage() for one in caplog.records if "lock" in one.getMessage()] == []


def test_what_dbos_reports_is_explained(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "bridle.fleet")
    dbos = logging.Logger("dbos")
    dbos.addHandler(ExplainDbos())
    for _ in range(3):
        dbos.warning("Database connection failed: gone\n[SQL: a secret]")
    dbos.warning("Asyncio task cancelled")
    dbos.info("DBOS launched")
    told = [(one.levelname, one.getMessage()) for one in caplog.records]
    assert [level for level, _ in told] == ["WARNING", "DEBUG"]
    assert "DBOS, the library that keeps the queue" in told[0][1]
    assert "Database connection failed: gone" in told[0][1]
    assert "check that the database answers" in told[0][1]
    assert "secret" not in caplog.text


def test_a_traceback_of_dbos_is_reported_as_the_name_of_its_exception(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A busy SQLite file makes DBOS log one now and then, and it tries again."""
    dbos = logging.Logger("dbos")
    dbos.addHandler(ExplainDbos())
    try:
        try:
            raise ValueError("first")
        except ValueError as first:
            raise sqlite3.OperationalError("a secret\n(Background: https://example)") from first
    except sqlite3.OperationalError:
        dbos.warning("Exception polling schedules: %s", traceback.format_exc())
    [told] = [one.getMessage() for one in caplog.records]
    assert "'Exception polling schedules: sqlite3.OperationalError'" in told
    assert "secret" not in told
