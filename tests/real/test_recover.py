"""`Agent.recover` and `run(retry=...)` after a crash of the real CLIs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from msgspec import structs
from tests.support.journals import brief, journal_of
from tests.support.limits import SetLimits
from tests.support.processes import until

import bridle
from bridle import Allow, Defer, Retry, ToolContext, tool
from bridle.outcomes import OutcomeReason
from bridle.sessions import MemoryStore, SessionKey
from bridle.sessions._journal import PromptEntry, encode_entry
from bridle.testing import ModelRequest, Reply, ScriptedModel, text, tool_use

if TYPE_CHECKING:
    from tests.real.conftest import Lab

LATER = 2.0
"""Seconds after which a CLI has written a tool call to its transcript."""

NAMED = '- mcp__tools__crash {"line":"a"}'


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    set_limits(lease=1.0)


def options(lab: Lab, model: ScriptedModel) -> dict[str, Any]:
    return {
        "cli_path": lab.cli_path,
        "env": model.env,
        "cwd": str(lab.work),
        "model": "claude-sonnet-4-5",
        "inherit_env": ["PATH"],
    }


def crash_after(seconds: float) -> tuple[Any, list[str]]:
    """A tool that kills its CLI the first time, and the idempotency keys of its calls."""
    keys: list[str] = []

    @tool
    async def crash(line: str, context: ToolContext) -> str:
        """Kill the CLI."""
        keys.append(context.idempotency_key)
        if len(keys) == 1:
            await asyncio.sleep(seconds)
            os.kill(context.session.pid, 9)
            await asyncio.sleep(60)
        return f"went on with {line}"

    return crash, keys


def model_of(request: ModelRequest) -> Reply:
    """Call the tool in answer to a prompt that asks for it."""
    last = str(request.messages[-1])
    if "crash now" in last and "tool_result" not in last:
        return Reply(blocks=(tool_use("mcp__tools__crash", line="a"),))
    return Reply(blocks=(text("done"),))


def told(model: ScriptedModel) -> str:
    """The last message of the last request, with plain quotation marks."""
    return str(model.requests[-1].messages).replace('\\"', '"')


@pytest.mark.longer
@pytest.mark.parametrize("has_store", [False, True])
@pytest.mark.parametrize("seconds", [0.0, LATER])
async def test_a_run_continues_in_a_new_process_after_a_crash(
    lab: Lab, has_store: bool, seconds: float
) -> None:
    """The prompt that continues names the call, also on CLIs that forget it."""
    store = MemoryStore() if has_store else None
    crash, keys = crash_after(seconds)
    with ScriptedModel(model_of) as model:
        agent = bridle.Agent(**options(lab, model), store=store, tools=[crash])
        outcome = await agent.run("crash now", retry=Retry(attempts=2, max_wait=0.1))
        assert (outcome.ok, outcome.text) == (True, "done"), outcome
        assert NAMED in told(model)
        assert str(model.requests[-1].messages).count("crash now") == 1
        assert len(set(keys)) == 1
        # Without a wait, the transcript may lack the prompt, which is then sent again.
        assert len(keys) == 1 or not seconds


@pytest.mark.longer
async def test_a_turn_that_was_cut_off_is_continued_in_another_directory(lab: Lab) -> None:
    store = MemoryStore()
    crash, _ = crash_after(LATER)
    with ScriptedModel(model_of) as model:
        given = options(lab, model)
        agent = bridle.Agent(**given, store=store, tools=[crash])
        session = await agent.session()
        turn = await session.send_user_message("crash now")
        assert (await turn).reason is OutcomeReason.CLI_EXITED
        await session.aclose()
        other = lab.work.parent / "elsewhere"
        other.mkdir()
        env = {**model.env, "HOME": str(other), "CLAUDE_CONFIG_DIR": str(other / ".claude")}
        given |= {"cwd": str(other), "env": env}
        away = bridle.Agent(**given, store=store, tools=[crash])
        (outcome,) = await away.recover(str(session.id))
        assert (outcome.text, outcome.uuid) == ("done", turn.uuid)
        assert NAMED in told(model)
        assert "crash now" in str(model.requests[-1].messages)
        lines = brief(await journal_of(store, session.id))
        assert lines[-3:] == ["prompt #2 continues #1", "outcome #1 completed", "received #1"]
        assert await away.recover(str(session.id)) == []


@pytest.mark.longer
async def test_a_session_with_nothing_to_continue_is_recovered(lab: Lab) -> None:
    """Its journal has the id that the CLI uses."""
    store = MemoryStore()
    crash, _ = crash_after(LATER)
    with ScriptedModel(model_of) as model:
        agent = bridle.Agent(**options(lab, model), store=store, tools=[crash])
        session = await agent.session(continue_session=True)
        turn = await session.send_user_message("crash now")
        assert (await turn).reason is OutcomeReason.CLI_EXITED
        await session.aclose()
        assert await store.load(SessionKey("", "journal")) is None
        (outcome,) = await agent.recover(str(session.id))
        assert (outcome.text, outcome.uuid) == ("done", turn.uuid)
        assert NAMED in told(model)


@pytest.mark.longer
async def test_a_finished_turn_is_read_from_the_transcript(lab: Lab) -> None:
    """The journal lost the outcome, as if the program had died before it was written."""

    class Forgetful(MemoryStore):
        async def append(self, key: SessionKey, entries: Any) -> None:
            kept = [one for one in entries if one.get("type") not in ("outcome", "received")]
            await super().append(key, kept)

    store = Forgetful()
    with ScriptedModel([[text("one")], [tool_use("StructuredOutput", value=4)]]) as model:
        agent = bridle.Agent(**options(lab, model), store=store)
        first = await agent.run("first")
        second = await agent.run("second", output_type=int, resume_session_id=first.session_id)
        assert second.output == 4
        found = await agent.recover(str(first.session_id), output_type=int)
        assert [(one.uuid, one.text, one.output) for one in found] == [
            (first.uuid, "one", None),
            (second.uuid, "", 4),
        ]
        assert len(model.requests) == 2


@pytest.mark.longer
async def test_an_approved_call_that_was_cut_off_is_named_and_not_run_again(lab: Lab) -> None:
    store = MemoryStore()
    crash, keys = crash_after(LATER)

    def defer(_: object) -> Defer:
        return Defer()

    with ScriptedModel(model_of) as model:
        agent = bridle.Agent(**options(lab, model), store=store, tools=[crash])
        careful = agent.replace(on_pre_tool_use=defer)
        deferred = await careful.run("crash now")
        assert deferred.pending is not None
        outcome = await agent.resume(deferred.pending, Allow())
        assert (outcome.reason, len(keys)) == (OutcomeReason.CLI_EXITED, 1), outcome
        (outcome,) = await agent.recover(str(deferred.session_id))
        assert (outcome.text, len(keys)) == ("done", 1)
        assert NAMED in told(model)


async def test_a_call_that_waits_for_approval_is_returned_by_a_recovery(lab: Lab) -> None:
    store = MemoryStore()
    crash, keys = crash_after(0)

    def defer(_: object) -> Defer:
        return Defer()

    with ScriptedModel(model_of) as model:
        agent = bridle.Agent(
            **options(lab, model), store=store, tools=[crash], on_pre_tool_use=defer
        )
        session = await agent.session()
        turn = await session.send_user_message("crash now")
        pending = (await turn).pending
        assert pending is not None
        os.kill(session.pid or 0, 9)
        await until(lambda: not session.alive)
        # The program is still there, and has not closed the session.
        await session._actor.wait_gone()
        (outcome,) = await agent.recover(str(session.id))
        assert (outcome.reason, outcome.pending) == (OutcomeReason.TOOL_DEFERRED, pending)
        assert keys == []


@pytest.mark.longer
async def test_a_waiting_call_is_not_dropped_although_its_outcome_was_not_written(lab: Lab) -> None:
    """The program died before, and an older prompt is open."""
    before, store = MemoryStore(), MemoryStore()
    calls: list[str] = []

    @tool
    async def crash(line: str) -> str:
        """Note the call."""
        calls.append(line)
        return "fine"

    def defer(_: object) -> Defer:
        return Defer()

    with ScriptedModel(model_of) as model:
        agent = bridle.Agent(**options(lab, model), store=before, tools=[crash])
        deferred = await agent.replace(on_pre_tool_use=defer).run("crash now")
        session_id = str(deferred.session_id)
        sent = (await journal_of(before, session_id))[0]
        assert isinstance(sent, PromptEntry)
        older = structs.replace(sent, uuid="x", prompt_uuid=str(uuid4()), content="hello")
        entries = await before.load(SessionKey(session_id))
        await store.append(SessionKey(session_id), entries or [])
        journal = SessionKey(session_id, "journal")
        await store.append(journal, [encode_entry(older), encode_entry(sent)])
        agent = agent.replace(store=store)
        requests = len(model.requests)
        first, second = await agent.recover(session_id)
        assert first.reason is second.reason is OutcomeReason.TOOL_DEFERRED
        assert first.pending is not None
        assert first.pending == second.pending
        assert (len(model.requests), calls) == (requests, [])
        assert (await agent.resume(first.pending, Allow())).ok
        assert calls == ["a"]
        (outcome,) = await agent.recover(session_id)
        assert (outcome.uuid, outcome.ok) == (older.prompt_uuid, True)
        assert calls == ["a"]
