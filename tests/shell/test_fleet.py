"""A fleet on SQLite, with a worker in the same process, on the fake CLI."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleets import reach
from tests.support.limits import SetLimits
from tests.support.processes import run, until

import bridle
from bridle import Agent, Allow, OptionsError, OutcomeReason, Retry
from bridle.errors import StoreError, UsageError
from bridle.sessions import MemoryStore
from bridle.testing import FakeCli

pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")

from bridle.fleet import (
    Fleet,
    Run,
    RunChanged,
    RunEnded,
    RunInfo,
    RunMessage,
    RunStatus,
    TenantLimits,
)

WAIT = 60.0


class Place:
    """A directory with a database and a fake CLI."""

    def __init__(self, path: Path, cli: FakeCli) -> None:
        self.path = path
        self.cli = cli

    def agent(self, **options: Any) -> Agent:
        return Agent(cli_path=self.cli.path, cwd=str(self.path), **options)

    def fleet(self, agent: Agent | None = None, **options: Any) -> Fleet:
        return Fleet(agent or self.agent(), f"sqlite:///{self.path}/runs.db", **options)

    def prompts(self) -> list[str]:
        """The prompts that the CLIs got, in the order of the processes."""
        found: list[Any] = [one.members for run in self.cli.runs for one in run]
        # The CLI sends each prompt back.
        sent = {
            one["uuid"]: str(one["message"]["content"])
            for one in found
            if one.get("type") == "user" and "uuid" in one and "tool_result" not in str(one)
        }
        return [*sent.values()]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    with FakeCli.auto(transcripts=True) as cli:
        yield Place(tmp_path, cli)


@contextlib.asynccontextmanager
async def working(fleet: Fleet, at_once: int = 4, drain: float = 20.0) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(fleet.work(at_once, stop=stop, drain=drain))
    try:
        yield
    finally:
        stop.set()
        await task
        await fleet.aclose()


async def test_a_run_is_submitted_worked_on_and_read(place: Place) -> None:
    fleet = place.fleet()
    one = await fleet.submit("SAY Fine.", key="one", metadata={"pr": 12})
    again = await fleet.submit("SAY Fine.", key="one", metadata={"pr": 12})
    assert again.id == one.id
    assert await one.status() is RunStatus.QUEUED
    async with working(fleet):
        outcome = await one.outcome(WAIT)
        info = await one.info()
        assert (outcome.ok, outcome.text) == (True, "Fine.")
        assert outcome.session_id == info.session_id
        assert info.status is RunStatus.COMPLETED
        assert (info.key, info.metadata, info.starts) == ("one", {"pr": 12}, 1)
        assert info.worker is not None
        assert str(os.getpid()) in info.worker
        assert info.cost_usd == outcome.cost_usd
        assert [m.text for m in await one.messages() if isinstance(m, bridle.AssistantMessage)]
    assert place.prompts() == ["SAY Fine."]


async def test_runs_are_found_by_status_tenant_and_key(place: Place) -> None:
    fleet = place.fleet()
    good = await fleet.submit("SAY Fine.", key="good", tenant="a")
    bad = await fleet.submit("FAIL 400", key="bad", tenant="b")
    later = await fleet.submit("SAY Later.", delay=3600, tenant="a")
    gone = await fleet.submit("SAY Never.")
    await gone.cancel()
    await gone.cancel()
    async with working(fleet):
        await good.outcome(WAIT)
        await bad.outcome(WAIT)

        async def found(**filters: Any) -> set[str]:
            return {one.id async for one in fleet.runs(**filters)}

        assert await found() == {good.id, bad.id, later.id, gone.id}
        assert await found(status="completed") == {good.id}
        assert await found(status="failed") == {bad.id}
        assert await found(status="delayed") == {later.id}
        assert await found(status="cancelled") == {gone.id}
        assert await found(status="running") == await found(status="waiting") == set()
        assert await found(tenant="a") == {good.id, later.id}
        assert await found(key="bad") == {bad.id}
        assert len(await found(limit=2)) == 2
        with pytest.raises(OptionsError, match="status"):
            await found(status="lost")
        listed = [one.listed async for one in fleet.runs(key="bad")]
        assert listed == [await bad.info()]
        stopped = await gone.outcome(WAIT)
        assert stopped.reason is OutcomeReason.STOPPED
        assert (await bad.outcome()).reason is OutcomeReason.API_ERROR


async def test_a_running_run_is_cancelled(place: Place, set_limits: SetLimits) -> None:
    set_limits(ending=10**9)  # milliseconds: the worker must say that it has ended the run
    fleet = place.fleet(at_once=1, tenants=TenantLimits(at_once=1))
    one = await fleet.submit("SLOW")
    async with working(fleet):
        await reach(one, RunStatus.RUNNING)
        await one.cancel()
        assert (await one.outcome(WAIT)).reason is OutcomeReason.STOPPED
        following = await fleet.submit("SAY Next.")
        assert (await following.outcome(WAIT)).ok


async def test_a_run_is_followed(place: Place) -> None:
    fleet = place.fleet()
    one = await fleet.submit("SAY Fine.")
    async with working(fleet):
        events = [event async for event in one.events()]
    changes = [event.status for event in events if isinstance(event, RunChanged)]
    assert changes[-1] is RunStatus.COMPLETED
    texts = [
        event.message.text
        for event in events
        if isinstance(event, RunMessage) and isinstance(event.message, bridle.AssistantMessage)
    ]
    assert texts == ["Fine."]
    assert isinstance(events[-1], RunEnded)
    assert events[-1].outcome.text == "Fine."


async def test_runs_with_a_higher_priority_start_first(place: Place) -> None:
    fleet = place.fleet()
    numbers = (0, -5, 7)
    runs = [await fleet.submit(f"SAY {one}", priority=one) for one in numbers]
    async with working(fleet, at_once=1):
        for one in runs:
            await one.outcome(WAIT)
    assert place.prompts() == ["SAY 7", "SAY 0", "SAY -5"]


async def test_a_delayed_run_starts_at_its_time(place: Place) -> None:
    fleet = place.fleet()
    at = datetime.now(UTC) + timedelta(seconds=2)
    one = await fleet.submit("SAY Late.", at=at)
    assert await one.status() is RunStatus.DELAYED
    async with working(fleet):
        assert (await one.outcome(WAIT)).ok
    assert datetime.now(UTC) >= at


async def test_a_tenant_has_its_own_number_of_runs_at_once(place: Place) -> None:
    fleet = place.fleet(tenants=TenantLimits(at_once=1))
    first = await fleet.submit("SLOW", tenant="a")
    async with working(fleet):
        await reach(first, RunStatus.RUNNING)
        second = await fleet.submit("SAY Fine.", tenant="a")
        other = await fleet.submit("SAY Fine.", tenant="b")
        assert (await other.outcome(WAIT)).ok
        assert await second.status() is RunStatus.QUEUED
        await first.cancel()
        assert (await second.outcome(WAIT)).ok


async def test_a_tenant_that_has_spent_its_dollars_waits(place: Place) -> None:
    fleet = place.fleet(tenants=TenantLimits(usd=0.00001, per=3600.0))
    first = await fleet.submit("SAY Fine.", tenant="a")
    async with working(fleet):
        assert ((await first.outcome(WAIT)).cost_usd or 0) > 0.00001
        second = await fleet.submit("SAY Fine.", tenant="a")
        other = await fleet.submit("SAY Fine.", tenant="b")
        assert (await other.outcome(WAIT)).ok
        await reach(second, RunStatus.DELAYED)
        assert [one.id async for one in fleet.runs(status="delayed")] == [second.id]


async def test_a_tenant_that_has_spent_its_dollars_goes_on_later(place: Place) -> None:
    fleet = place.fleet(tenants=TenantLimits(usd=0.00001, per=1.0))
    first = await fleet.submit("SAY Fine.", tenant="a")
    second = await fleet.submit("SAY Fine.", tenant="a")
    async with working(fleet, at_once=1):
        assert (await first.outcome(WAIT)).ok
        assert (await second.outcome(WAIT)).ok
        assert len([one async for one in fleet.runs()]) == 2


async def test_a_worker_that_is_stopped_hands_its_runs_over(place: Place) -> None:
    began = asyncio.Event()
    keys: list[str] = []

    @bridle.tool
    async def build(context: bridle.ToolContext) -> str:
        """Build."""
        keys.append(context.idempotency_key)
        if not began.is_set():
            began.set()
            await asyncio.sleep(600)
        return "built"

    fleet = place.fleet(place.agent(tools=[build]))
    one = await fleet.submit("CALL mcp__tools__build")
    async with working(fleet, drain=0.1):
        async with asyncio.timeout(WAIT):
            await began.wait()
    assert await one.status() is RunStatus.QUEUED
    async with working(fleet):
        assert (await one.outcome(WAIT)).ok
        assert (await one.info()).starts == 2
    assert "mcp__tools__build" in place.prompts()[-1]
    assert "may have happened" in place.prompts()[-1]
    assert len(set(keys)) == 1


async def test_a_worker_that_is_stopped_finishes_runs(place: Place) -> None:
    fleet = place.fleet()
    one = await fleet.submit("SLOW 2")
    async with working(fleet):
        await until(lambda: place.prompts())
    assert await one.status() is RunStatus.COMPLETED
    await fleet.aclose()


async def test_an_outcome_of_the_journal_is_not_made_again(place: Place) -> None:
    """A worker may die after the journal has the outcome, and before the queue has it."""
    fleet = place.fleet()
    one = await fleet.submit("SAY Once.", key="one")
    agent = place.agent(store=fleet._store)
    await agent.run("SAY Once.", session_id=(await one.info()).session_id)
    async with working(fleet):
        assert (await one.outcome(WAIT)).text == "Once."
    assert place.prompts() == ["SAY Once."]


async def test_the_conversation_of_a_run_can_be_deleted(place: Place) -> None:
    fleet = place.fleet()
    one = await fleet.submit("SAY Fine.", key="one")
    async with working(fleet):
        outcome = await one.outcome(WAIT)
    info = await one.info()
    assert await one.messages()
    await bridle.sessions.delete(info.session_id, store=fleet.store)
    assert await one.messages() == []
    assert await one.info() == info
    assert await one.outcome() == outcome
    assert (await fleet.submit("SAY Fine.", key="one")).id == one.id
    assert await one.status() is RunStatus.COMPLETED
    await fleet.aclose()


async def test_a_run_gets_its_directory_from_prepare(place: Place) -> None:
    seen: list[RunInfo] = []

    def prepare(info: RunInfo) -> Path:
        seen.append(info)
        directory = place.path / str(info.metadata["name"])
        directory.mkdir()
        return directory

    fleet = place.fleet(prepare=prepare)
    one = await fleet.submit("SAY Fine.", metadata={"name": "here"})
    async with working(fleet):
        assert (await one.outcome(WAIT)).ok
    assert [info.id for info in seen] == [one.id]
    starts: list[Any] = [run[0].members for run in place.cli.runs]
    assert str(place.path / "here") in json.dumps(starts)


@dataclass
class Answer:
    number: int


async def test_the_output_type_of_the_agent_applies(place: Place) -> None:
    fleet = place.fleet(place.agent(output_type=Answer, output_retries=0))
    one = await fleet.submit("SAY no json")
    async with working(fleet):
        outcome = await one.outcome(WAIT)
    assert outcome.reason is OutcomeReason.OUTPUT_MISSING


async def test_a_run_that_cannot_start_has_an_outcome(place: Place) -> None:
    fleet = place.fleet(Agent(cli_path=str(place.path / "missing"), cwd=str(place.path)))
    one = await fleet.submit("SAY Fine.")
    async with working(fleet):
        outcome = await one.outcome(WAIT)
    assert outcome.reason is OutcomeReason.START_FAILED
    assert await one.status() is RunStatus.FAILED
    await fleet.aclose()


async def test_a_crashed_cli_is_retried(place: Place) -> None:
    fleet = place.fleet(retry=Retry(attempts=2))
    one = await fleet.submit("EXIT 3")
    async with working(fleet):
        outcome = await one.outcome(WAIT)
    assert outcome.reason is OutcomeReason.CLI_EXITED
    assert len(place.cli.runs) == 2


async def test_a_schedule_submits_runs(place: Place) -> None:
    fleet = place.fleet()
    await fleet.schedule("tick", "* * * * * *", "SAY Tick.")
    with pytest.raises(OptionsError, match="cron"):
        await fleet.schedule("tock", "often", "SAY Tock.")
    async with working(fleet):

        async def two_completed() -> list[Run]:
            done = [one async for one in fleet.runs(status="completed")]
            return done if len(done) >= 2 else []

        done: list[Run] = await until(two_completed)
        await fleet.unschedule("tick")
        infos = [one.listed for one in done if one.listed is not None]
        assert all((info.key or "").startswith("tick@") for info in infos)
        assert len({info.session_id for info in infos}) == len(done)


async def test_a_process_has_one_worker(place: Place) -> None:
    fleet = place.fleet()
    async with working(fleet):
        one = await fleet.submit("SAY Fine.")
        await one.outcome(WAIT)
        with pytest.raises(UsageError, match="worker"):
            await fleet.work()


def test_wrong_arguments_are_refused(place: Place) -> None:
    url = f"sqlite:///{place.path}/runs.db"
    wrong: list[tuple[Any, Any]] = [
        ((place.agent(store=MemoryStore()), url), {}),
        (("agent", url), {}),
        ((place.agent(), 3), {}),
        ((place.agent(), "mysql://x"), {}),
        ((place.agent(), "sqlite:///:memory:"), {}),
        ((place.agent(), url), {"name": "a b"}),
        ((place.agent(), url), {"at_once": 0}),
        ((place.agent(), url), {"tenants": 3}),
        ((place.agent(), url), {"tenants": TenantLimits(usd=0)}),
        ((place.agent(), url), {"tenants": TenantLimits(at_once=0)}),
    ]
    for arguments, options in wrong:
        with pytest.raises(OptionsError):
            Fleet(*arguments, **options)

    async def main() -> None:
        fleet = place.fleet()
        for options in (
            {"prompt": 3},
            {"priority": 5000},
            {"key": ""},
            {"tenant": 3},
            {"metadata": {"x": object()}},
            {"delay": "soon"},
            {"delay": float("inf")},
            {"delay": float("nan")},
            {"priority": True},
            {"priority": 1.0},
            {"key": "\ud800"},
            {"tenant": "a\0b"},
            {"at": "tomorrow"},
            {"at": datetime.now()},  # on purpose
        ):
            given: Any = {"prompt": "x"} | options
            with pytest.raises(OptionsError):
                await fleet.submit(**given)
        with pytest.raises(StoreError):
            await Fleet(place.agent(), "sqlite:////proc/runs.db").submit("x")
        with pytest.raises(UsageError, match="no run"):
            await fleet.run("00000000-0000-4000-8000-000000000000").status()
        one = await fleet.submit("SAY Fine.")
        with pytest.raises(UsageError, match="does not wait"):
            await one.approve(Allow())
        with pytest.raises(TimeoutError):
            await one.outcome(timeout=0.01)
        await fleet.aclose()

    run(main)
