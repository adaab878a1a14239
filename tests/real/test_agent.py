"""`Agent` on the real CLIs: functions as tools, conversations, and many prompts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import bridle
from bridle import Agent, CanUseToolContext, Deny, ResultMessage, sync
from bridle.testing import ScriptedModel, text, tool_use

pytestmark = pytest.mark.longer

if TYPE_CHECKING:
    from tests.real.conftest import Lab


def options(lab: Lab, model: ScriptedModel) -> dict[str, Any]:
    """The options by name that every test needs."""
    return {
        "cli_path": lab.cli_path,
        "env": model.env,
        "cwd": str(lab.work),
        "model": "claude-sonnet-4-5",
        "inherit_env": ["PATH"],
    }


def price(item: str) -> float:
    """Return the price of an item."""
    return 300.0 + len(item)


@pytest.mark.longer
async def test_a_function_is_in_the_first_request_and_runs_without_permission(lab: Lab) -> None:
    asked: list[str] = []

    def decide(ctx: CanUseToolContext) -> Deny:
        asked.append(ctx.tool_name)
        return Deny("no")

    script = [
        [tool_use("mcp__tools__price", item="saddle")],
        [tool_use("Bash", command="touch x", description="touch")],
        [text("It costs 306.")],
    ]
    async with ScriptedModel(script) as model:
        agent = Agent(**options(lab, model), tools=["Bash", price], on_can_use_tool=decide)
        outcome = await agent.run("What does a saddle cost?")
        assert (outcome.ok, outcome.text) == (True, "It costs 306.")
        assert set(model.requests[0].tools) == {"Bash", "mcp__tools__price"}
        assert model.requests[1].last_tool_result == "306"
    assert asked == ["Bash"]


@pytest.mark.longer(after=1)
@pytest.mark.parametrize(("tools", "has_bash"), [([price], True), ([], False)])
async def test_only_names_choose_the_built_in_tools(lab: Lab, tools: Any, has_bash: bool) -> None:
    async with ScriptedModel([[text("hello")]]) as model:
        outcome = await bridle.run("hi", **options(lab, model), tools=tools)
        assert outcome.ok
        listed = set(model.requests[0].tools)
        assert ("Bash" in listed) is has_bash
        assert ("mcp__tools__price" in listed) is bool(tools)


@pytest.mark.longer
async def test_an_agent_resumes_the_conversation_that_a_call_names(lab: Lab) -> None:
    async with ScriptedModel([[text("one")], [text("two")], [text("three")]]) as model:
        agent = Agent(**options(lab, model))
        first = await agent.run("first prompt")
        again = await agent.run("second prompt", resume_session_id=first.session_id)
        assert again.session_id == first.session_id
        assert "first prompt" in str(model.requests[1].messages)
        new = await agent.run("third prompt")
        assert new.session_id != first.session_id
        assert "first prompt" not in str(model.requests[2].messages)


@pytest.mark.longer
async def test_queries_sessions_and_twins_share_an_agent(lab: Lab) -> None:
    replies = [[text(word)] for word in ("one", "two", "three")]
    async with ScriptedModel(replies) as model:
        agent = Agent(**options(lab, model))
        messages = [message async for message in agent.query("x")]
        results = [one.result for one in messages if isinstance(one, ResultMessage)]
        assert results == ["one"]
        async with agent.session() as session:
            assert (await (await session.send_user_message("x"))).text == "two"
        blocking = await asyncio.to_thread(lambda: agent.sync.run("x"))
        assert blocking.text == "three"


@pytest.mark.longer
async def test_many_prompts_run_some_at_a_time(lab: Lab) -> None:
    async with ScriptedModel([[text("done")]] * 4) as model:
        agent = Agent(**options(lab, model))
        running: list[int] = []
        prompts = (f"prompt {number}" for number in range(4))
        outcomes = agent.run_many(prompts, 2, lambda now: running.append(now.running))
        ended = {prompt: outcome.text async for prompt, outcome in outcomes}
        assert ended == {f"prompt {number}": "done" for number in range(4)}
        assert max(running) == 2


async def test_the_blocking_doors_take_options_by_name(lab: Lab) -> None:
    async with ScriptedModel([[tool_use("mcp__tools__price", item="x")], [text("301")]]) as api:
        named = options(lab, api)
        outcome = await asyncio.to_thread(lambda: sync.run("x", tools=[price], **named))
        assert (outcome.ok, outcome.text) == (True, "301")
        assert api.requests[1].last_tool_result == "301"
