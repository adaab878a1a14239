"""Subagents, background shells and usage on the real CLIs."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes import LIMIT, run

import bridle
from bridle import AssistantMessage, Message, Outcome, ResultMessage
from bridle.messages import (
    LiveTask,
    TaskStartedMessage,
    TaskUpdatedMessage,
    UnknownMessage,
    UnknownSystemMessage,
)
from bridle.outcomes import SessionUsage
from bridle.testing import ModelRequest, Reply, ScriptedModel, text, tool_use

pytestmark = pytest.mark.longer

if TYPE_CHECKING:
    from tests.real.conftest import Lab

USAGE = {"input_tokens": 1000, "output_tokens": 100}
KIND = "general-purpose"


def agent(name: str) -> Any:
    return tool_use(
        "Task", description=name, prompt=f"<{name}>", subagent_type=KIND, run_in_background=False
    )


def first_text(request: ModelRequest) -> str:
    return str(request.messages[0])


def has_result(request: ModelRequest) -> bool:
    return "tool_result" in str(request.messages[-1])


def family(request: ModelRequest) -> Reply:
    """A main agent with the subagents one and two, of which one has the subagent inner."""
    words = first_text(request)
    if request.agent_id is None:
        blocks = [text("all done")] if has_result(request) else [agent("one"), agent("two")]
    elif "<one>" in words and not has_result(request):
        blocks = [text("one starts"), agent("inner")]
    elif "<one>" in words:
        blocks = [text("one is done")]
    elif "<two>" in words:
        blocks = [text("two is done")]
    else:
        blocks = [text("inner is done")]
    return Reply(blocks=tuple(blocks), usage=USAGE)


Seen = tuple[list[Message], list[list[LiveTask]], SessionUsage, Outcome[Any]]


async def watch(lab: Lab, model: ScriptedModel, **options: Any) -> Seen:
    """Send one prompt. Return the messages, the tasks at each of them, and the usage."""
    cli = lab.cli(model, permission_mode="bypassPermissions", **options)
    async with bridle.start_session(cli, lab.sdk) as session:
        turn = await session.send_user_message("go")
        messages: list[Message] = []
        tasks: list[list[LiveTask]] = []
        async for message in turn:
            messages.append(message)
            tasks.append(session.tasks.list())
        return messages, tasks, session.usage, await turn


@pytest.mark.both_clis
async def test_parallel_and_nested_subagents_have_their_paths(lab: Lab) -> None:
    async with ScriptedModel(family) as model:
        messages, _, _, outcome = await watch(lab, model, forward_subagent_text=True)
    assert outcome.text == "all done"
    assert not any(isinstance(each, UnknownMessage | UnknownSystemMessage) for each in messages)
    started = {
        message.description: message
        for message in messages
        if isinstance(message, TaskStartedMessage)
    }
    assert set(started) == {"one", "two", "inner"}
    names = {started[name].tool_use_id: name for name in started}
    assert {name: [names[each.id] for each in started[name].agent_path] for name in started} == {
        "one": ["one"],
        "two": ["two"],
        "inner": ["one", "inner"],
    }
    assert {step.type for each in started.values() for step in each.agent_path} == {KIND}
    said = {
        message.text: [names[each.id] for each in message.agent_path]
        for message in messages
        if isinstance(message, AssistantMessage) and message.text
    }
    expected = {
        "one starts": ["one"],
        "one is done": ["one"],
        "two is done": ["two"],
        "all done": [],
    }
    if lab.is_newest:  # the older CLI does not forward the text of nested subagents
        expected["inner is done"] = ["one", "inner"]
    assert said == expected


@pytest.mark.longer
async def test_running_subagents_are_listed_until_they_end(lab: Lab) -> None:
    async with ScriptedModel(family) as model:
        messages, tasks, _, _ = await watch(lab, model)
    seen = {task.description: task for listed in tasks for task in listed}
    assert set(seen) == {"one", "two", "inner"}
    assert {len(seen[name].agent_path) for name in ("one", "two")} == {1}
    assert {(task.task_type, task.subagent_type) for task in seen.values()} == {
        ("local_agent", KIND)
    }
    results = [number for number, each in enumerate(messages) if isinstance(each, ResultMessage)]
    assert tasks[results[0]] == []


@pytest.mark.longer
def test_the_usage_of_a_session_includes_subagents(lab: Lab) -> None:
    async def main() -> tuple[Seen, SessionUsage, int]:
        async with ScriptedModel(family) as model:
            seen = await watch(lab, model)
            calls = len(model.requests)
            cli = lab.cli(model, permission_mode="bypassPermissions")
            async with bridle.start_session(cli, lab.sdk) as session:
                for _ in range(2):
                    await (await session.send_user_message("go"))
                return seen, session.usage, calls

    (_, _, used, outcome), twice, calls = run(main)
    assert calls == 6
    assert (used.input_tokens, used.output_tokens) == (6 * 1000, 6 * 100)
    assert used.cost_usd == outcome.cost_usd == pytest.approx(6 * 0.0045)
    assert [turn.prompts for turn in used.turns] == [(outcome.uuid,)]
    assert outcome.usage is not None
    assert outcome.usage.input_tokens == 2 * 1000  # the main agent only
    first, second = twice.turns
    assert first.input_tokens == 6 * 1000
    assert twice.input_tokens == first.input_tokens + second.input_tokens
    assert twice.cost_usd == pytest.approx((first.cost_usd or 0) + (second.cost_usd or 0))


async def test_a_background_shell_is_listed_until_it_ends(lab: Lab) -> None:
    gate = lab.work / "gate"
    command = f"until [ -e {gate} ]; do sleep 0.05; done"
    shell = tool_use("Bash", command=command, description="wait", run_in_background=True)
    script = [[shell], [text("started")], [text("it ended")]]
    async with ScriptedModel(script) as model:
        cli = lab.cli(model, permission_mode="bypassPermissions")
        async with bridle.start_session(cli, lab.sdk) as session:
            messages = session.messages()
            turn = await session.send_user_message("go")
            outcome = await turn
            running = session.tasks.list()
            gate.touch()
            results = 0
            async with asyncio.timeout(LIMIT):
                async for message in messages:
                    results += isinstance(message, ResultMessage)
                    if results == 2:
                        break
            (task,), after, cost, total = (
                running,
                session.tasks.list(),
                outcome.cost_usd,
                session.usage.cost_usd,
            )
    assert (task.task_type, task.agent_path, task.status) == ("local_bash", (), "running")
    assert task.tool_use_id is not None
    assert after == []
    assert (total or 0) > (cost or 0) > 0


@pytest.mark.longer
async def test_callbacks_of_a_background_subagent_get_the_deps_of_its_own_prompt(lab: Lab) -> None:
    """Another prompt runs when the subagent calls its tool, and before the turn about its end."""
    sender: ContextVar[str] = ContextVar("sender", default="none")
    seen: list[tuple[str, str, str]] = []
    b_runs, b_has_its_answer, subagent_ended = (threading.Event() for _ in range(3))

    def play(request: ModelRequest) -> Reply:
        last = str(request.messages[-1])
        if request.agent_id is not None:
            if "tool_result" in last:
                return Reply(blocks=(text("done"),), hold=b_has_its_answer)
            return Reply(blocks=(tool_use("mcp__tools__who"),), hold=b_runs)
        if "tool_result" in last:
            if not b_runs.is_set() or subagent_ended.is_set():
                return Reply(blocks=(text("done"),))
            b_has_its_answer.set()
            return Reply(blocks=(text("done"),), hold=subagent_ended)
        if "<task-notification>" in last:
            return Reply(blocks=(tool_use("mcp__tools__who"),))
        if "PROMPT_B" in last:
            return Reply(blocks=(tool_use("mcp__tools__meet"),))
        start = {"description": "x", "prompt": "<x>", "subagent_type": KIND}
        return Reply(blocks=(tool_use("Task", **start, run_in_background=True),))

    met = asyncio.Event()

    async def who(context: bridle.ToolContext) -> str:
        """Tell who called."""
        seen.append(("who", context.deps, sender.get()))
        met.set()
        return "done"

    async def meet(context: bridle.ToolContext) -> str:
        """Wait until the subagent has called its tool."""
        seen.append(("meet", context.deps, sender.get()))
        b_runs.set()
        await met.wait()
        return "done"

    def hook(context: bridle.PreToolUseContext) -> None:
        seen.append((context.tool_name, context.deps, sender.get()))

    async with ScriptedModel(play) as model:
        cli = lab.cli(model, allowed_tools=["Task", "Agent"])
        async with bridle.Agent(
            cli=cli, sdk=lab.sdk, tools=[who, meet], on_pre_tool_use=hook
        ).session() as session:
            messages = session.messages()
            sender.set("A")
            await (await session.send_user_message("PROMPT_A", deps="A"))
            await model.wait_for_hold()
            sender.set("B")
            turn = await session.send_user_message("PROMPT_B", deps="B")
            async for message in messages:
                if isinstance(message, TaskUpdatedMessage) and "end_time" in message.patch:
                    subagent_ended.set()
                if isinstance(message, ResultMessage) and message.origin is not None:
                    break
            await turn
    assert seen == [
        ("Agent", "A", "A"),
        ("mcp__tools__meet", "B", "B"),
        ("meet", "B", "B"),
        ("mcp__tools__who", "A", "A"),
        ("who", "A", "A"),
        ("mcp__tools__who", "A", "A"),  # in the turn about the end of the subagent
        ("who", "A", "A"),
    ]
