"""A run keeps its session while it waits before it continues after a crash of the CLI."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.limits import SetLimits
from tests.support.processes import until
from tests.support.steps import ReplaceSteps

from bridle import Agent, Outcome, OutcomeReason, Retry, SessionInUseError, ToolContext, tool
from bridle._process.session_locks import lock_session
from bridle._records.session_store import Entry
from bridle._session.answers.attempt_plan import AnswerPlan
from bridle.sessions import MemoryStore, SessionKey
from bridle.sessions._journal import PromptEntry, encode_entry
from bridle.testing import FakeCli

ID = "00000000-0000-4000-8000-000000000001"
CALL = "CALL mcp__tools__act {}\nSAY done"
PROMPT = "00000000-0000-4000-8000-000000000002"
LEASE = 60.0


class Watched(MemoryStore):
    """A store that tells when somebody was refused the lease. Its time can pass."""

    ends_with_program = False

    def __init__(self) -> None:
        self.late = 0.0
        super().__init__(clock=lambda: time.time() + self.late)
        self.refused = asyncio.Event()
        #: Entries that were appended without a lease.
        self.unfenced: list[Entry] = []

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        self.unfenced += entries
        await super().append(key, entries)

    append_leased = MemoryStore.append_leased

    async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
        is_ours = await super().acquire(session_id, owner, seconds)
        if not is_ours:
            self.refused.set()
        return is_ours


class Scene:
    """A run whose CLI is killed by its tool, and other programs, during the pause."""

    def __init__(self, place: Path, cli: FakeCli, set_limits: SetLimits, steps: ReplaceSteps):
        self.place, self.cli, self.store = place, cli, Watched()
        #: The machine on which the tool has acted, for each time.
        self.acted: list[str] = []
        self.paused, self.go = asyncio.Event(), asyncio.Event()
        set_limits(lease=LEASE, lease_clock=lambda: time.monotonic() + self.store.late)
        plan = AnswerPlan.pause_after_crash

        def pause(*arguments: Any) -> float | None:
            return None if plan(*arguments) is None else 3600.0

        async def wait(_: float) -> None:
            self.paused.set()
            await self.go.wait()

        set_limits(pause_after_crash=pause)
        steps(wait_until=wait)

    def agent(self, machine: str) -> Agent:
        home = self.place / machine
        home.mkdir(exist_ok=True)

        @tool
        async def act(context: ToolContext) -> str:
            """Act, and kill the CLI the first time."""
            self.acted.append(machine)
            if len(self.acted) == 1:
                await until(lambda: str(context.tool_use_id) in self.transcript(home))
                await context.session.ping()  # its response follows the report
                os.kill(context.session.pid, 9)
                await asyncio.sleep(60)
            return "acted"

        return Agent(
            store=self.store,
            cli_path=self.cli.path,
            cwd=str(self.place),
            env={"HOME": str(home), "CLAUDE_CONFIG_DIR": str(home)},
            tools=[act],
        )

    def transcript(self, home: Path) -> str:
        return "".join(one.read_text() for one in home.glob("projects/*/*.jsonl"))

    def start(self, **options: Any) -> asyncio.Task[Outcome[Any]]:
        return asyncio.create_task(
            self.agent("a").run(CALL, retry=Retry(attempts=3), session_id=ID, **options)
        )

    async def finish(self, running: asyncio.Task[Outcome[Any]]) -> Outcome[Any]:
        self.go.set()
        return await running


@pytest.fixture
def scene(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    set_limits: SetLimits,
    replace_steps: ReplaceSteps,
) -> Any:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with FakeCli.auto(transcripts=True) as cli:
        yield Scene(tmp_path, cli, set_limits, replace_steps)


@pytest.mark.parametrize("machine", ["a", "b"])
async def test_no_other_program_continues_the_session_during_the_pause(
    scene: Scene, machine: str
) -> None:
    running = scene.start()
    await scene.paused.wait()
    with pytest.raises(SessionInUseError):
        await scene.agent(machine).run("SAY two", resume_session_id=ID)
    if machine == "a":  # the lock of this machine refuses at once
        with pytest.raises(SessionInUseError):
            await scene.agent(machine).recover(ID)
    outcome = await scene.finish(running)
    assert (outcome.reason, scene.acted) == (OutcomeReason.COMPLETED, ["a"])
    assert len(scene.cli.runs) == 2
    assert (await scene.agent(machine).run("SAY two", resume_session_id=ID)).text == "two"


async def test_a_recovery_that_waits_finds_the_finished_turn(scene: Scene) -> None:
    running = scene.start()
    await scene.paused.wait()
    recovering = asyncio.create_task(scene.agent("b").recover(ID))
    refused = asyncio.create_task(scene.store.refused.wait())
    await asyncio.wait([refused, recovering], return_when=asyncio.FIRST_COMPLETED)
    assert not recovering.done()
    outcome = await scene.finish(running)
    assert (outcome.ok, await recovering) == (True, [])
    assert (scene.acted, len(scene.cli.runs)) == (["a"], 2)


async def test_a_run_that_lost_its_session_in_the_pause_does_not_continue_it(scene: Scene) -> None:
    """The program was frozen, and another machine has finished the turn meanwhile."""
    running = scene.start()
    await scene.paused.wait()
    scene.store.late += LEASE + 1.0
    (finished,) = await scene.agent("b").recover(ID)
    assert finished.ok
    outcome = await scene.finish(running)
    assert outcome.reason is OutcomeReason.CLI_EXITED
    assert (scene.acted, len(scene.cli.runs)) == (["a"], 2)


async def test_the_lock_and_the_lease_are_given_back_after_a_cancelled_pause(scene: Scene) -> None:
    running = scene.start()
    await scene.paused.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    lock_session(str(scene.place / "a"), ID).release()
    assert await scene.store.acquire(ID, "another program", LEASE)


@pytest.mark.parametrize("is_recovery", [False, True])
async def test_nothing_is_appended_without_the_lease(scene: Scene, *, is_recovery: bool) -> None:
    """The file of the CLI has an entry that the store lacks."""
    if is_recovery:
        entry = PromptEntry(uuid="j1", at=time.time(), prompt_uuid=PROMPT, content=CALL, cwd="/")
        await scene.store.append(SessionKey(ID, "journal"), [encode_entry(entry)])
        scene.store.unfenced.clear()
        retry = Retry(attempts=3)
        running: asyncio.Task[Any] = asyncio.create_task(scene.agent("a").recover(ID, retry=retry))
    else:
        running = scene.start()
    await scene.paused.wait()
    (file,) = (scene.place / "a").glob("projects/*/*.jsonl")
    last = json.loads(file.read_text().splitlines()[-1])["uuid"]
    added = {"type": "system", "uuid": "added", "parentUuid": last, "sessionId": ID}
    with file.open("a") as lines:
        lines.write(json.dumps(added) + "\n")
    scene.go.set()
    _ = await running
    assert scene.acted == ["a"]
    assert "added" in [one.get("uuid") for one in await scene.store.load(SessionKey(ID)) or ()]
    assert scene.store.unfenced == []
