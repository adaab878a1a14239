"""A fleet on the real CLIs: workers are killed, and runs wait for a person."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from tests.support.fleets import (
    FleetPlan,
    another_line,
    check_all,
    info_when,
    model_of,
    reach,
    submit_all,
    working,
)
from tests.support.processes import run, until
from tests.support.steps import ReplaceSteps

from bridle import Agent, Allow, Deny
from bridle.cli import main as command
from bridle.errors import StoreError, UsageError
from bridle.fleet import RunStatus
from bridle.sessions import SessionKey
from bridle.testing import ScriptedModel, text

if TYPE_CHECKING:
    from tests.real.conftest import Lab

    from bridle.fleet import Fleet
    from bridle.testing import ModelRequest

pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")

WAIT = 180.0


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def plan_of(cli_path: str, places: Path, model: ScriptedModel) -> FleetPlan:
    work = places / "work"
    work.mkdir(exist_ok=True)
    environment = {**model.env, "HOME": str(places), "CLAUDE_CONFIG_DIR": str(places / "config")}
    options: dict[str, Any] = {
        "cli_path": cli_path,
        "env": environment,
        "cwd": str(work),
        "inherit_env": ["PATH"],
        "model": "claude-sonnet-4-5",
    }
    database = f"sqlite:///{places}/runs.db"
    return FleetPlan(directory=str(places), database=database, options=options, at_once=2)


@pytest.mark.longer
def test_a_deferred_run_is_approved_after_all_workers_were_restarted(
    lab: Lab, places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        with ScriptedModel(model_of) as model:
            plan = plan_of(lab.cli_path, places, model)
            async with plan.fleet() as fleet:
                prompt = 'CALL mcp__tools__append {{"line": "{}"}}'
                asked = await fleet.submit(prompt.format("ask1"), key="one")
                denied = await fleet.submit(prompt.format("ask2"), key="two")
                async with working(plan, 1) as workers:
                    for one in (asked, denied):
                        await reach(one, RunStatus.WAITING, WAIT)
                    assert workers.stop() == [0]
                info = await asked.info()
                assert info.pending is not None
                assert info.pending.tool_input == {"line": "ask1"}
                assert plan.appended == []
                listed = [one.id async for one in fleet.runs(status="waiting")]
                assert sorted(listed) == sorted([asked.id, denied.id])
                words = ["runs", "approve", "one", "--database", plan.database, "--call"]
                assert await asyncio.to_thread(command, [*words, "toolu_other"]) != 0
                with pytest.raises(UsageError, match=info.pending.tool_use_id):
                    await asked.approve(Allow(), pending=(await denied.info()).pending)
                assert await asked.status() == "waiting"
                words.append(info.pending.tool_use_id)
                assert await asyncio.to_thread(command, words) == 0
                assert 'mcp__tools__append {"line": "ask1"}' in capsys.readouterr().out
                assert await asked.status() == "queued"
                with pytest.raises(UsageError):
                    await asked.approve(Deny("too late"))
                deny = (denied.approve(Deny("no")) for _ in range(3))
                decided = await asyncio.gather(*deny, return_exceptions=True)
                assert sorted(map(type, decided), key=str) == [type(None), UsageError, UsageError]
                async with working(plan, 1) as workers:
                    assert (await asked.outcome(WAIT)).ok
                    spent = (await asked.info()).cost_usd or 0.0
                    assert spent > ((await asked.outcome()).cost_usd or 0.0), "of both segments"
                    assert (await denied.outcome(WAIT)).ok
                    assert workers.stop() == [0]
                assert [one["line"] for one in plan.appended] == ["ask1"]
                assert [one async for one in fleet.runs(status="waiting")] == []
                words = ["runs", "show", "one", "--database", plan.database]
                assert await asyncio.to_thread(command, words) == 0
                shown = capsys.readouterr().out
                assert "completed" in shown
                assert "Done." in shown

    run(main, timeout=600)


@pytest.mark.longer
def test_a_decision_about_a_call_that_waits_no_more_ends_the_run_with_that_reason(
    lab: Lab, places: Path
) -> None:
    """Another program sent a prompt to the conversation. The worker goes on with other runs."""

    async def main() -> None:
        with ScriptedModel(model_of) as model:
            plan = plan_of(lab.cli_path, places, model)
            async with plan.fleet() as fleet, working(plan, 1):
                one = await fleet.submit('CALL mcp__tools__append {"line": "ask"}')
                await reach(one, RunStatus.WAITING, WAIT)
                key = SessionKey((await one.info()).session_id, "", "")
                entries = await fleet.store.load(key) or []
                prompt = next(entry for entry in entries if entry.get("type") == "user")
                last = next(entry["uuid"] for entry in reversed(entries) if "uuid" in entry)
                again = {**prompt, "uuid": str(uuid4()), "parentUuid": last}
                await fleet.store.append(key, [again])
                await one.approve(Allow())
                outcome = await one.outcome(WAIT)
                assert outcome.reason == "start_failed"
                assert "does not wait for approval" in outcome.detail
                assert (await (await fleet.submit("Say hello.")).outcome(WAIT)).ok
                assert plan.appended == []

    run(main, timeout=600)


@pytest.mark.longer
def test_a_run_that_waits_is_cancelled(lab: Lab, places: Path) -> None:
    async def main() -> None:
        with ScriptedModel(model_of) as model:
            plan = plan_of(lab.cli_path, places, model)
            async with plan.fleet() as fleet, working(plan, 1):
                one = await fleet.submit('CALL mcp__tools__append {"line": "ask"}')
                await reach(one, RunStatus.WAITING, WAIT)
                await one.cancel()
                assert await one.status() == "cancelled"
                assert (await one.outcome(WAIT)).reason == "stopped"
                assert [found.id async for found in fleet.runs(status="cancelled")] == [one.id]
                assert plan.appended == []

    run(main, timeout=600)


@pytest.mark.longer
def test_the_runs_of_a_killed_worker_end_once(lab: Lab, places: Path) -> None:
    kill_workers(lab.cli_path, places, runs=4, kills=1, seed=1)


@pytest.mark.longer
def test_a_run_that_was_taken_over_counts_what_it_cost_before(lab: Lab, places: Path) -> None:
    """The worker is killed while the model answers for the second time."""
    is_asked, may_answer = threading.Event(), threading.Event()

    def answer(request: ModelRequest) -> Any:
        if "tool_result" in str(request.messages[-1]) and not may_answer.is_set():
            is_asked.set()
            may_answer.wait(WAIT)
        return model_of(request)

    async def main() -> None:
        with ScriptedModel(answer) as model:
            plan = plan_of(lab.cli_path, places, model)
            async with plan.fleet() as fleet, working(plan, 1) as workers:
                one = await fleet.submit('CALL mcp__tools__append {"line": "one"}')
                await until(is_asked.is_set, WAIT)
                before = (await info_when(one, lambda info: info.cost_usd, WAIT)).cost_usd or 0.0
                workers.kill(random.Random(1))
                # The first CLI must not get the answer.
                await info_when(one, lambda info: info.starts == 2, WAIT)
                may_answer.set()
                outcome = await one.outcome(WAIT)
                info = await one.info()
                assert outcome.ok
                assert info.starts == 2
                assert outcome.result is not None
                after = sum(one.cost_usd for one in outcome.result.model_usage.values())
                assert after > 0
                assert info.cost_usd == outcome.cost_usd == pytest.approx(before + after)
                assert workers.stop() == [0]

    run(main, timeout=600)


def kill_workers(cli_path: str, places: Path, *, runs: int, kills: int, seed: int) -> list[str]:
    """Run a fleet with two workers, and kill some. Return the lines that were repeated."""
    chance = random.Random(seed)
    found: list[str] = []

    async def main() -> None:
        with ScriptedModel(model_of) as model:
            plan = plan_of(cli_path, places, model)
            async with plan.fleet() as fleet, working(plan, 2) as workers:
                submitted = await submit_all(fleet, runs)
                for _ in range(kills):
                    await another_line(plan, runs, WAIT)
                    await asyncio.sleep(chance.uniform(0.0, 2.0))
                    workers.kill(chance)
                found.extend(await check_all(plan, submitted, timeout=WAIT))
                assert workers.stop() == [0, 0]

    run(main, timeout=900)
    return found


@pytest.mark.longer
def test_a_key_is_another_run_in_another_database(lab: Lab, places: Path) -> None:
    """The CLI refuses the id of a session whose transcript is on the machine."""

    async def main() -> None:
        with ScriptedModel(model_of) as model:
            plan = plan_of(lab.cli_path, places, model)
            sessions: set[str] = set()
            for name in ("a", "b"):
                plan.database = f"sqlite:///{places}/{name}.db"
                async with plan.fleet() as fleet, working(plan, 1):
                    one = await fleet.submit("Say hello.", key="pr-12")
                    outcome = await one.outcome(WAIT)
                    assert outcome.ok, outcome
                    info = await one.info()
                    assert outcome.session_id == info.session_id
                    assert await one.messages()
                    sessions.add(info.session_id)
            assert len(sessions) == 2

    run(main, timeout=600)


@pytest.mark.longer
def test_a_run_whose_journal_is_in_a_spool_file_is_continued(
    lab: Lab, places: Path, replace_steps: ReplaceSteps
) -> None:
    """The store fails while the worker sends the prompt. Then the worker is stopped."""
    from bridle.fleet import Fleet
    from bridle.fleet._store import FleetStore

    append: Any = FleetStore.append
    is_broken = threading.Event()
    is_broken.set()

    async def faulty(*arguments: Any) -> None:
        if is_broken.is_set():
            raise StoreError("Fleet", "append", "disk full")
        await append(*arguments)

    replace_steps(store_of_fleet_append=faulty)
    is_asked, may_answer = threading.Event(), threading.Event()
    prompts: list[str] = []

    def answer(request: ModelRequest) -> list[Any]:
        prompts.append(str(request.messages))
        is_asked.set()
        may_answer.wait(WAIT)
        return [text("Done.")]

    async def main() -> None:
        with ScriptedModel(answer) as model:
            plan = plan_of(lab.cli_path, places, model)
            fleet = Fleet(Agent(**plan.options), plan.database)
            one = await fleet.submit("Say hello.")
            async with serving(fleet, drain=0.0):
                await until(is_asked.is_set, WAIT)
                await until(lambda: is_in_transcript(places, "Say hello."), WAIT)
            assert await one.status() == "queued"
            is_broken.clear()
            may_answer.set()
            async with serving(fleet):
                outcome = await one.outcome(WAIT)
            assert (outcome.reason, outcome.text) == ("completed", "Done.")
            assert "program that runs this conversation stopped" in prompts[-1]
            await fleet.aclose()

    run(main, timeout=600)


def is_in_transcript(places: Path, prompt: str) -> bool:
    """Return whether a CLI has saved a prompt on this machine."""
    files = (places / "config").rglob("*.jsonl")
    return any(prompt in file.read_text() for file in files)


@contextlib.asynccontextmanager
async def serving(fleet: Fleet, drain: float = 20.0) -> AsyncIterator[None]:
    """Have a worker in this process."""
    stop = asyncio.Event()
    task = asyncio.create_task(fleet.work(1, stop=stop, drain=drain))
    try:
        yield
    finally:
        stop.set()
        await task
