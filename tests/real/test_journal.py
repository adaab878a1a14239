"""The journal of a session with a store, on the real CLIs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.journals import brief, journal_of

import bridle
from bridle import Allow, Defer, Deny, Hook, HookOutput, PendingApproval, ToolContext, tool
from bridle.sessions import MemoryStore
from bridle.sessions._journal import (
    JournalEntry,
    OutcomeEntry,
    PromptEntry,
    ToolCallEntry,
    ToolResultEntry,
)
from bridle.testing import ModelRequest, Reply, ScriptedModel, repeat, text, tool_use
from bridle.tools import key_of_call

pytestmark = pytest.mark.longer

if TYPE_CHECKING:
    from tests.real.conftest import Lab


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep spool files of a test in its own directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def agent_of(lab: Lab, model: ScriptedModel, store: MemoryStore, **options: Any) -> bridle.Agent:
    given: dict[str, Any] = {
        "cli_path": lab.cli_path,
        "env": model.env,
        "cwd": str(lab.work),
        "model": "claude-sonnet-4-5",
        "inherit_env": ["PATH"],
        "store": store,
    }
    return bridle.Agent(**given | options)


def one(entries: list[JournalEntry], kind: type[Any]) -> Any:
    """Return the only entry of this kind."""
    (found,) = [entry for entry in entries if isinstance(entry, kind)]
    return found


@pytest.mark.longer
async def test_a_run_with_a_tool_is_written_down(lab: Lab) -> None:
    """The tool sees its own entry in the store when it runs, and has the key of it."""
    store = MemoryStore()
    seen: list[tuple[list[str], str]] = []

    @tool
    async def price(item: str, context: ToolContext) -> str:
        """Return the price of an item."""
        so_far = await journal_of(store, context.session.id)
        seen.append((brief(so_far), context.idempotency_key))
        return "30 " * 2000

    script = [[tool_use("mcp__tools__price", item="saddle")], [text("expensive")]]
    async with ScriptedModel(script) as model:
        agent = agent_of(lab, model, store, tools=[price])
        outcome = await agent.run("What does a saddle cost?")
        assert outcome.text == "expensive"
    entries = await journal_of(store, outcome.session_id)
    before = ["prompt #1 What does a saddle cost?", "call mcp__tools__price #1"]
    assert brief(entries) == [*before, "result ok", "outcome #1 completed", "received #1"]
    prompt, call = one(entries, PromptEntry), one(entries, ToolCallEntry)
    assert (prompt.prompt_uuid, prompt.cwd) == (outcome.uuid, str(lab.work.resolve()))
    assert (call.tool_input, call.agent_id) == ({"item": "saddle"}, None)
    assert seen == [(before, call.idempotency_key)]
    result = one(entries, ToolResultEntry)
    assert (result.tool_use_id, result.text) == (call.tool_use_id, ("30 " * 2000)[:4000])
    assert result.is_cut
    assert one(entries, OutcomeEntry).outcome.restored() == outcome


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("how", ["interrupt", "aclose", "end_input"])
async def test_the_result_of_a_call_that_is_stopped_is_not_that_of_the_tool(
    lab: Lab, how: str
) -> None:
    """The tool may have run."""
    store = MemoryStore()
    started = asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        started.set()
        await asyncio.sleep(60)
        return "paid"

    async with ScriptedModel([[tool_use("mcp__tools__pay")], repeat([text("done")])]) as model:
        session = await agent_of(lab, model, store, tools=[pay]).session()
        turn = await session.send_user_message("go")
        await started.wait()
        await getattr(session, how)()
        await turn
        await session.aclose()
    entries = await journal_of(store, session.id)
    result = one(entries, ToolResultEntry)
    assert (result.is_error, result.is_interrupted) == (True, True)


@pytest.mark.longer
async def test_denied_calls_are_written_down(lab: Lab) -> None:
    """A call that the callback denies has an entry. One that a hook refuses has only a result."""
    store = MemoryStore()

    def guard(context: bridle.PreToolUseContext) -> Any:
        command = context.tool_input["command"]
        if "refused" in command:
            return bridle.Block("no")
        return bridle.ModifyInput({**context.tool_input, "command": command + " changed"})

    calls = [tool_use("Bash", command=f"touch {name}") for name in ("denied", "refused")]
    async with ScriptedModel([[calls[0]], [calls[1]], [text("done")]]) as model:
        agent = agent_of(
            lab,
            model,
            store,
            on_pre_tool_use=guard,
            on_can_use_tool=lambda _: Deny("not now"),
        )
        outcome = await agent.run("go")
    entries = await journal_of(store, outcome.session_id)
    assert brief(entries)[1:] == [
        "call Bash #1",
        "result error",
        "result error",
        "outcome #1 completed",
        "received #1",
    ]
    assert one(entries, ToolCallEntry).tool_input["command"] == "touch denied changed"
    results = [entry for entry in entries if isinstance(entry, ToolResultEntry)]
    assert "not now" in results[0].text
    assert not any(entry.is_interrupted for entry in results)
    assert list(lab.work.iterdir()) == []


@pytest.mark.longer
async def test_a_call_that_a_hook_allows_is_written_down_too(lab: Lab) -> None:
    """A decision ends the list of the program's hooks, and the journal still follows."""
    store = MemoryStore()
    async with ScriptedModel([[tool_use("Bash", command="touch x")], [text("done")]]) as model:
        allow = Hook(lambda _: HookOutput(permission_decision="allow"))
        agent = agent_of(lab, model, store, hooks={"PreToolUse": [allow]})
        outcome = await agent.run("go")
    entries = brief(await journal_of(store, outcome.session_id))
    assert entries[1:3] == ["call Bash #1", "result ok"]
    assert [path.name for path in lab.work.iterdir()] == ["x"]


@pytest.mark.longer
@pytest.mark.both_clis
async def test_calls_of_a_subagent_are_written_down(lab: Lab) -> None:
    store = MemoryStore()

    def reply(request: ModelRequest) -> Reply:
        has_result = "tool_result" in str(request.messages[-1])
        if request.agent_id is None:
            kind: dict[str, Any] = {"subagent_type": "general-purpose", "run_in_background": False}
            task = tool_use("Task", description="d", prompt="look", **kind)
            return Reply(blocks=(text("done") if has_result else task,))
        inner = tool_use("Bash", command="touch inner")
        return Reply(blocks=(text("found") if has_result else inner,))

    async with ScriptedModel(reply) as model:
        agent = agent_of(lab, model, store, permission_mode="bypassPermissions")
        outcome = await agent.run("go")
    entries = await journal_of(store, outcome.session_id)
    calls = [entry for entry in entries if isinstance(entry, ToolCallEntry)]
    assert [(call.tool_name, call.agent_id is None) for call in calls] == [
        ("Agent" if lab.is_newest else calls[0].tool_name, True),
        ("Bash", False),
    ]
    assert {call.prompt_uuid for call in calls} == {outcome.uuid}
    finished = [entry.tool_use_id for entry in entries if isinstance(entry, ToolResultEntry)]
    assert finished == [calls[1].tool_use_id, calls[0].tool_use_id]


@pytest.mark.longer
async def test_queued_prompts_of_a_session_are_written_down_before_they_are_sent(lab: Lab) -> None:
    store = MemoryStore()
    slow = [tool_use("Bash", command="sleep 1")]
    async with ScriptedModel([slow, *([[text("done")]] * 4)]) as model:
        agent = agent_of(lab, model, store, allowed_tools=["Bash"])
        async with agent.session() as session:
            turns = [await session.send_user_message(f"prompt {n}") for n in (1, 2, 3)]
            uuids = [turn.uuid for turn in turns]
            written = brief(await journal_of(store, session.id), *uuids)
            assert [line for line in written if line.startswith("prompt")] == [
                f"prompt #{n} prompt {n}" for n in (1, 2, 3)
            ]
            outcomes = await asyncio.gather(*(turn.outcome() for turn in turns))
            last = await session.send_user_message("prompt 4")
            written = brief(await journal_of(store, session.id), *uuids, last.uuid)
            outcome = await last
            assert outcome.text == "done"
        entries = await journal_of(store, session.id)
    assert written[-4:-1] == ["received #1", "received #2", "received #3"]
    assert written[-1] == "prompt #4 prompt 4"
    assert brief(entries, *uuids, last.uuid)[-2:] == ["outcome #4 completed", "received #4"]
    restored = {
        entry.prompt_uuid: entry.outcome.restored()
        for entry in entries
        if isinstance(entry, OutcomeEntry)
    }
    assert restored == {one.uuid: one for one in [*outcomes, outcome]}


@pytest.mark.longer
async def test_a_correction_belongs_to_the_prompt_of_the_program(lab: Lab) -> None:
    store = MemoryStore()
    # The first two answers have no structured output. The CLI itself asks once more.
    answers = [[text("thirty")]] * 8
    async with ScriptedModel(answers) as model:
        agent = agent_of(lab, model, store)
        outcome = await agent.run("price?", output_type=int, output_retries=1)
    entries = await journal_of(store, outcome.session_id)
    assert brief(entries) == [
        "prompt #1 price?",
        "prompt #2 continues #1",
        "outcome #1 output_missing",
        "received #1",
    ]
    assert one(entries, OutcomeEntry).outcome.restored() == outcome


@pytest.mark.longer
async def test_an_approved_call_is_written_down_when_it_is_resumed(lab: Lab) -> None:
    """It has the same key each time that the call is resumed."""
    store = MemoryStore()
    keys: list[str] = []

    @tool
    def pay(amount: int, context: ToolContext) -> str:
        """Pay."""
        keys.append(context.idempotency_key)
        return "paid"

    script = [[tool_use("mcp__tools__pay", amount=1)], [text("done")]]
    async with ScriptedModel(script) as model:
        agent = agent_of(lab, model, store, tools=[pay], on_pre_tool_use=lambda _: Defer())
        deferred = await agent.run("go")
        assert deferred.pending is not None
        pending = PendingApproval.from_json(deferred.pending.to_json())
        outcome = await agent.resume(pending, Allow())
    entries = await journal_of(store, outcome.session_id)
    assert brief(entries) == [
        "prompt #1 go",
        "outcome #1 tool_deferred",
        "received #1",
        "turn #2 resumes",
        "call mcp__tools__pay #2",
        "result ok",
        "outcome #2 completed",
        "received #2",
    ]
    stored = next(e for e in entries if isinstance(e, OutcomeEntry)).outcome.restored()
    assert stored.pending == deferred.pending
    call = one(entries, ToolCallEntry)
    assert keys == [call.idempotency_key]
    assert keys == [key_of_call(outcome.session_id, call.tool_use_id)]
