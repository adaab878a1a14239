"""The dollars of a tenant, if the CLI ends before it has reported the cost of a run."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial

import pytest
from tests.shell.test_fleet import WAIT, Place, place, working
from tests.support.fleets import info_when, reach
from tests.support.limits import SetLimits
from tests.support.processes import until
from tests.support.sabotaged_cli import rewriting_cli

import bridle
from bridle import Agent, OutcomeReason
from bridle.fleet import RunStatus, TenantLimits

pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")

__all__ = ["place"]

SMALL = TenantLimits(usd=0.00001, per=3600.0)
LARGE = TenantLimits(usd=1000.0, per=3600.0)


class Build:
    """An agent whose tool waits, so that its CLI can be killed after a model call."""

    def __init__(self, place: Place, *, reports: bool) -> None:
        self.began = asyncio.Event()
        self.pid = 0
        path = place.cli.path
        if not reports:
            broken = {"get_usage": "Unsupported control request subtype: get_usage"}
            path = rewriting_cli(place.path / "claude", path, rejected=broken)

        @bridle.tool
        async def build(context: bridle.ToolContext) -> str:
            """Build."""
            assert isinstance(context.session, bridle.Session)
            self.pid = context.session.pid or 0
            self.began.set()
            await asyncio.sleep(600)
            return "built"

        self.agent = Agent(cli_path=path, cwd=str(place.path), tools=[build])

    async def kill_cli(self) -> None:
        async with asyncio.timeout(WAIT):
            await self.began.wait()
        os.kill(self.pid, signal.SIGKILL)


async def test_a_run_whose_cost_is_unknown_uses_up_the_dollars_of_its_tenant(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    build = Build(place, reports=False)
    fleet = place.fleet(build.agent, tenants=LARGE)
    first = await fleet.submit("CALL mcp__tools__build", tenant="a")
    async with working(fleet):
        await build.kill_cli()
        assert (await first.outcome(WAIT)).reason is OutcomeReason.CLI_EXITED
        second = await fleet.submit("SAY Never.", tenant="a")
        other = await fleet.submit("SAY Fine.", tenant="b")
        assert (await other.outcome(WAIT)).ok
        info = await reach(second, RunStatus.DELAYED)
    expected = "the cost of a run of the tenant in the last 3600 s is unknown"
    assert info.delay_reason == expected
    assert f"the cost of run {first.id} is unknown" in caplog.text


async def test_what_the_cli_reported_before_it_was_killed_counts(place: Place) -> None:
    build = Build(place, reports=True)
    fleet = place.fleet(build.agent, tenants=SMALL)
    first = await fleet.submit("CALL mcp__tools__build", tenant="a")
    async with working(fleet):
        cost = (await info_when(first, lambda info: info.cost_usd)).cost_usd
        await build.kill_cli()
        assert (await first.outcome(WAIT)).cost_usd == cost
        assert (await first.info()).cost_usd == cost
        second = await fleet.submit("SAY Never.", tenant="a")
        info = await reach(second, RunStatus.DELAYED)
    assert info.delay_reason == "the tenant has spent $1e-05 in 3600 s"


async def test_a_cancelled_run_whose_cost_is_unknown_uses_up_the_dollars(
    place: Place, set_limits: SetLimits
) -> None:
    set_limits(cost_report_pause=0.5)
    build = Build(place, reports=False)
    fleet = place.fleet(build.agent, tenants=LARGE)
    first = await fleet.submit("CALL mcp__tools__build", tenant="a")
    async with working(fleet):
        async with asyncio.timeout(WAIT):
            await build.began.wait()
        os.kill(build.pid, signal.SIGSTOP)  # it does not answer an interrupt
        await first.cancel()
        row = partial(fleet._queue.rows, [first.id])
        await until(lambda: "cost_unknown" in row()[first.id].attributes)
        second = await fleet.submit("SAY Never.", tenant="a")
        await reach(second, RunStatus.DELAYED)
