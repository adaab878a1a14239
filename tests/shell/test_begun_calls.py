"""An approved call that was cut off does not run again when it is approved once more."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import structs
from tests.support.limits import SetLimits
from tests.support.processes import run, wait_until
from tests.support.steps import ReplaceSteps

from bridle import (
    Agent,
    Allow,
    Block,
    Defer,
    Deny,
    Limits,
    OutcomeReason,
    PendingApproval,
    ToolContext,
    tool,
)
from bridle._engine.shutdown import ShutdownStep
from bridle._records.session_store import Entry, SessionKey
from bridle.errors import CallMayHaveRun, SessionLoadError, StoreError, UsageError
from bridle.sessions import MemoryStore
from bridle.sessions._begun_calls import BegunCall
from bridle.sessions._outbox.spool import spool_name
from bridle.testing import FakeCli
from bridle.testing.fake_cli import FLAVOURS

PENDING = PendingApproval(
    session_id="01234567-89ab-4def-8123-456789abcdef",
    tool_name="Bash",
    tool_input={"command": "ls"},
    tool_use_id="toolu_1",
)
PAY = 'CALL mcp__tools__pay {"amount": 7}'


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits) -> Path:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    set_limits(lease=0.6)
    return tmp_path / "state"


class WithoutJournals(MemoryStore):
    has_journals = False


class JournalOnly(MemoryStore):
    """A store whose program died before it had the transcript."""

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        if key.subkey == "journal":
            await super().append(key, entries)


class WithoutOutcomes(MemoryStore):
    """A store whose program dies before the journal has the outcome of the turn."""

    is_dead = False

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        ends = ("outcome", "received") if self.is_dead else ()
        await super().append(key, [one for one in entries if one["type"] not in ends])


class SpooledCalls(MemoryStore):
    """A store that failed while the program wrote its calls, so that they are in a spool file."""

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        await super().append(key, [one for one in entries if one["type"] != "tool_call"])


def files(state: Path) -> list[Path]:
    return list(state.glob("bridle/approved/*"))


class Scene:
    """A tool that kills its CLI the first time, and the agents that defer and resume its call."""

    def __init__(self, cli: FakeCli, store: MemoryStore | None) -> None:
        #: The idempotency keys of the calls that have run.
        self.paid = paid = list[str]()

        @tool
        async def pay(amount: int, context: ToolContext) -> str:
            """Pay."""
            paid.append(context.idempotency_key)
            if len(paid) == 1:
                os.kill(context.session.pid, 9)
                await asyncio.sleep(60)
            return f"paid {amount}"

        self.agent = Agent(cli_path=cli.path, store=store, tools=[pay])

    async def deferred(self) -> PendingApproval:
        """A call that waits."""
        outcome = await self.agent.replace(on_pre_tool_use=lambda _: Defer()).run(PAY)
        assert outcome.pending is not None
        return outcome.pending

    async def cut_off(self) -> PendingApproval:
        """An approved call that was cut off."""
        pending = await self.deferred()
        outcome = await self.agent.resume(pending, Allow())
        assert (outcome.reason, outcome.pending) == (OutcomeReason.CLI_EXITED, None)
        return pending


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("kind", [MemoryStore, JournalOnly])
async def test_with_a_store_the_journal_tells_that_the_call_may_have_run(
    flavour: str, kind: type[MemoryStore]
) -> None:
    with FakeCli.auto(flavour=flavour, transcripts=True, lifetime=60) as cli:
        scene = Scene(cli, kind())
        pending = await scene.cut_off()
        for decision in (Allow(), Deny("no")):
            with pytest.raises(CallMayHaveRun) as refused:
                await scene.agent.resume(pending, decision)
            assert refused.value.tool_use_id == pending.tool_use_id
            assert f"agent.recover({pending.session_id!r})" in refused.value.fix
        assert len(scene.paid) == 1
        if kind is MemoryStore:
            (outcome,) = await scene.agent.recover(pending.session_id)
            assert outcome.ok
            with pytest.raises(UsageError) as decided:
                await scene.agent.resume(pending, Allow())
            assert not isinstance(decided.value, CallMayHaveRun)
        assert len(scene.paid) == 1


@pytest.mark.parametrize("damage", ["+not json\n", None])
async def test_a_call_is_not_approved_while_a_part_of_the_journal_cannot_be_read(
    damage: str | None, state: Path
) -> None:
    """That part may say that the call has begun."""
    store = SpooledCalls()
    with FakeCli.auto(transcripts=True, lifetime=60) as cli:
        scene = Scene(cli, store)
        pending = await scene.cut_off()
        spool = (
            state / "bridle/spool" / f"{spool_name(store, pending.session_id)}journal.dead.jsonl"
        )
        spool.parent.mkdir(parents=True, exist_ok=True)
        if damage is None:
            spool.symlink_to("elsewhere")  # cannot be opened
        else:
            spool.write_text(damage)
        for _ in range(2):
            with pytest.raises(SessionLoadError) as refused:
                await scene.agent.resume(pending, Allow())
            assert spool.name in str(refused.value)
            assert "move" in str(refused.value.fix)
        assert len(scene.paid) == 1
        assert (await scene.agent.resume(pending, Deny("it may have run"))).ok
        assert len(scene.paid) == 1


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("store", [None, WithoutJournals()])
async def test_without_a_journal_a_file_tells_that_the_call_may_have_run(
    flavour: str, store: MemoryStore | None, state: Path
) -> None:
    """A denial finishes the turn, because the tool does not run."""

    with FakeCli.auto(flavour=flavour, transcripts=True, lifetime=60) as cli:
        scene = Scene(cli, store)
        pending = await scene.cut_off()
        (file,) = files(state)
        assert (file.stat().st_mode & 0o777, file.stat().st_size) == (0o600, 0)
        with pytest.raises(CallMayHaveRun) as refused:
            await scene.agent.resume(pending, Allow())
        assert "Deny(reason)" in refused.value.fix
        outcome = await scene.agent.resume(pending, Deny("it may have run"))
        assert (outcome.ok, outcome.text) == (True, "it may have run")
        assert files(state) == []
        with pytest.raises(UsageError):
            await scene.agent.resume(pending, Allow())
        assert len(scene.paid) == 1


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_call_that_has_run_leaves_no_file(flavour: str, state: Path) -> None:
    with FakeCli.auto(flavour=flavour, transcripts=True, lifetime=60) as cli:
        scene = Scene(cli, None)
        scene.paid.append("an earlier call")
        outcome = await scene.agent.resume(await scene.deferred(), Allow())
        assert outcome.ok
        assert len(scene.paid) == 2
    assert files(state) == []


async def test_a_call_that_was_not_answered_before_the_cli_died_can_be_approved_again(
    state: Path, replace_steps: ReplaceSteps, caplog: pytest.LogCaptureFixture
) -> None:
    begin = BegunCall._create
    with FakeCli.auto(transcripts=True, lifetime=60) as cli:
        scene = Scene(cli, None)
        scene.paid.append("")  # the tool does not kill its CLI
        pending = await scene.deferred()

        def begin_and_kill(call: BegunCall) -> None:
            begin(call)
            assert files(state) != []
            pid = cli.pid
            assert pid is not None
            os.kill(pid, 9)
            wait_until(lambda: "the session failed" in caplog.text)

        replace_steps(begin_call=begin_and_kill)
        outcome = await scene.agent.resume(pending, Allow())
        assert (outcome.reason, outcome.pending) == (OutcomeReason.CLI_EXITED, pending)
        assert files(state) == []
        replace_steps(begin_call=begin)
        assert (await scene.agent.resume(pending, Allow())).ok
        assert len(scene.paid) == 2


async def test_a_decision_that_was_refused_keeps_the_file_of_the_call(state: Path) -> None:
    """In a pool, too, which closes the session that was refused."""
    with FakeCli.auto(transcripts=True, lifetime=60) as cli:
        scene = Scene(cli, None)
        asked: list[object] = []

        def defer_once(context: object) -> Defer | None:
            asked.append(context)
            return Defer() if len(asked) == 1 else None

        async with scene.agent.replace(on_pre_tool_use=defer_once).pool(size=1) as pool:
            async with pool.session(key="k") as session:
                pending = (await (await session.send_user_message(PAY))).pending
            assert (await pool.resume("k", Allow())).reason is OutcomeReason.CLI_EXITED
            for _ in range(3):
                with pytest.raises(CallMayHaveRun):
                    await pool.resume("k", Allow(), pending=pending)
        assert len(scene.paid) == 1
    assert len(files(state)) == 1


async def test_a_call_that_a_hook_refuses_has_not_begun(state: Path) -> None:
    with FakeCli.auto(transcripts=True, lifetime=60) as cli:
        scene = Scene(cli, None)
        pending = await scene.deferred()
        guarded = scene.agent.replace(on_pre_tool_use=lambda _: Block("never"))
        assert (await guarded.resume(pending, Allow())).ok
        assert scene.paid == []
    assert files(state) == []


async def test_a_call_does_not_run_if_its_file_cannot_be_created(state: Path) -> None:
    state.write_text("not a directory")
    with FakeCli.auto(transcripts=True, lifetime=60) as cli:
        scene = Scene(cli, None)
        outcome = await scene.agent.resume(await scene.deferred(), Allow())
        assert scene.paid == []
        assert "was not run" in outcome.text


async def test_only_the_entry_of_the_call_creates_its_file(state: Path) -> None:
    begun, other = BegunCall(PENDING), BegunCall(structs.replace(PENDING, session_id="other"))
    await begun.write({"type": "prompt"})
    await begun.write({"type": "tool_call", "tool_use_id": "toolu_2"})
    begun.put({"type": "tool_result", "tool_use_id": "toolu_1"})
    begun.refuse()
    await begun.write({"type": "tool_call", "tool_use_id": "toolu_1"})
    with pytest.raises(CallMayHaveRun):
        BegunCall(PENDING).refuse()
    other.refuse()
    begun.forget()
    begun.refuse()
    begun.forget()


def test_a_file_that_cannot_be_created_is_an_error(state: Path) -> None:
    state.write_text("not a directory")
    with pytest.raises(StoreError, match="Not a directory"):
        run(lambda: BegunCall(PENDING).write({"type": "tool_call", "tool_use_id": "toolu_1"}))


@pytest.mark.parametrize("kind", [None, JournalOnly])
async def test_a_call_that_began_does_not_run_again_after_a_limit_ended_its_turn(
    kind: type[MemoryStore] | None, set_limits: SetLimits
) -> None:
    """The CLI did not react at the limit and was killed, so its transcript has no result."""
    set_limits(shutdown_steps=dict.fromkeys(ShutdownStep, 0.01))
    stopped = asyncio.Event()

    @tool
    async def pay(amount: int, context: ToolContext) -> str:
        """Pay."""
        assert not stopped.is_set(), "the call ran again"
        stopped.set()
        os.kill(context.session.pid, signal.SIGSTOP)
        await asyncio.sleep(60)
        return f"paid {amount}"

    with FakeCli.auto(transcripts=True, lifetime=60) as cli:
        agent = Agent(cli_path=cli.path, store=None if kind is None else kind(), tools=[pay])
        pending = (await agent.replace(on_pre_tool_use=lambda _: Defer()).run(PAY)).pending
        assert pending is not None
        outcome = await agent.resume(pending, Allow(), limits=Limits(total=2.0))
        assert stopped.is_set(), outcome
        assert (outcome.reason, outcome.pending) == (OutcomeReason.LIMIT_TOTAL, None)
        for _ in range(2):
            with pytest.raises(CallMayHaveRun):
                await agent.resume(pending, Allow())
        denying = agent.replace(store=None)
        assert (await denying.resume(pending, Deny("it may have run"))).ok


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_after_a_recovery_has_finished_the_turn_a_decision_is_only_late(flavour: str) -> None:
    """The CLI had finished the turn when the program died, so only the journal lacks its end."""
    with FakeCli.auto(flavour=flavour, transcripts=True, lifetime=60) as cli:
        store = WithoutOutcomes()
        scene = Scene(cli, store)
        scene.paid.append("an earlier call")
        pending = await scene.deferred()
        store.is_dead = True
        assert (await scene.agent.resume(pending, Allow())).ok
        store.is_dead = False
        with pytest.raises(CallMayHaveRun):
            await scene.agent.resume(pending, Allow())
        (outcome,) = await scene.agent.recover(pending.session_id)
        assert outcome.ok
        with pytest.raises(UsageError) as late:
            await scene.agent.resume(pending, Allow())
        assert not isinstance(late.value, CallMayHaveRun)
        assert len(scene.paid) == 2
