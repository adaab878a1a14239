"""Workers and programs with a wrong clock: the clock of the database counts."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pytest
from tests.shell.test_fleet import WAIT, Place, place, working
from tests.shell.test_fleet_kills import database_of
from tests.support.fleets import reach
from tests.support.limits import SetLimits
from tests.support.processes import until

from bridle.fleet import Fleet, RunInfo, RunStatus, TenantLimits

pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")

__all__ = ["place"]

KINDS = pytest.mark.parametrize("kind", ["sqlite", "postgres"])


@pytest.fixture
def database(kind: str, request: pytest.FixtureRequest, place: Place) -> str:
    return database_of(kind, request, place.path)


@pytest.mark.longer(after=1)
@KINDS
async def test_a_worker_with_a_wrong_clock_starts_no_delayed_run(
    database: str, place: Place, set_limits: SetLimits
) -> None:
    async with Fleet(place.agent(), database) as fleet:
        later = await fleet.submit("SAY Later.", delay=86400)
        now = time.time
        set_limits(clock=lambda: now() + 2 * 86400)
        soon = await fleet.submit("SAY Soon.", delay=1.5)
        began = now()
        async with working(fleet):
            assert (await soon.outcome(WAIT)).ok
            assert now() - began > 1.0
            # DBOS looks for delayed runs once a second.
            await asyncio.sleep(2.5)
            info = await later.info()
            assert info.status is RunStatus.DELAYED
        assert 86000 < (info.delayed_until or 0) - now() < 86401


@pytest.mark.longer(after=1)
@KINDS
async def test_a_worker_with_a_wrong_clock_keeps_the_dollars_of_a_tenant(
    database: str, place: Place, set_limits: SetLimits
) -> None:
    limits = TenantLimits(usd=0.00001, per=86400.0)
    async with Fleet(place.agent(), database, tenants=limits) as fleet:
        now = time.time
        set_limits(clock=lambda: now() + 2 * 86400)
        first = await fleet.submit("SAY Fine.", tenant="acme")
        second = await fleet.submit("SAY Never.", tenant="acme")
        async with working(fleet, at_once=1):
            assert (await first.outcome(WAIT)).ok
            info = await reach(second, RunStatus.DELAYED)
        assert 86000 < (info.delayed_until or 0) - now() < 86401
    assert place.prompts() == ["SAY Fine."]


async def test_a_worker_with_a_wrong_clock_runs_no_schedule_too_early(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ahead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + timedelta(days=2)

    monkeypatch.setattr("dbos._scheduler.datetime", Ahead)
    async with place.fleet() as fleet:
        await fleet.schedule("tick", "* * * * * *", "SAY Tick.")
        async with working(fleet):

            async def delayed() -> list[RunInfo | None]:
                return [one.listed async for one in fleet.runs(status="delayed")]

            runs: list[RunInfo | None] = await until(delayed)
            await fleet.unschedule("tick")
        for info in runs:
            assert info is not None
            assert (info.key or "").startswith("tick@")
            assert 86400 < (info.delayed_until or 0) - time.time() < 3 * 86400
    assert place.prompts() == []


async def test_a_program_with_a_wrong_clock_submits_a_run_for_the_right_time(
    place: Place, set_limits: SetLimits
) -> None:
    at = datetime.now(UTC) + timedelta(days=1)
    now = time.time
    set_limits(clock=lambda: now() + 2 * 86400)
    async with place.fleet() as fleet:
        given = await fleet.submit("SAY At.", at=at)
        later = await fleet.submit("SAY Later.", delay=86400)
        for one in (given, later):
            info = await one.info()
            assert info.status is RunStatus.DELAYED
            assert abs((info.delayed_until or 0) - at.timestamp()) < 60.0


@KINDS
async def test_a_time_before_1970_is_over(database: str, place: Place) -> None:
    async with Fleet(place.agent(), database) as fleet:
        one = await fleet.submit("SAY Fine.", at=datetime(1, 1, 1, tzinfo=UTC))
        async with working(fleet):
            assert (await one.outcome(WAIT)).ok
