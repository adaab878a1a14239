"""Queries with callbacks or in-process tools, on the real CLIs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes import is_alive

from bridle import (
    Allow,
    BidirOptions,
    Limits,
    Message,
    PreToolUseContext,
    ResultMessage,
    ToolContext,
    ToolServer,
    query,
    sync,
    tool,
)
from bridle import Block as Refuse
from bridle.errors import TurnsLimitError
from bridle.testing import Block, ScriptedModel, repeat, text, tool_use

pytestmark = pytest.mark.longer

if TYPE_CHECKING:
    from tests.real.conftest import Lab


def write(lab: Lab) -> Block:
    """The model writes a file."""
    return tool_use("Write", file_path=str(lab.work / "note.txt"), content="words")


def results(messages: list[Message]) -> list[str | None]:
    """The texts of the results among messages."""
    return [message.result for message in messages if isinstance(message, ResultMessage)]


async def test_a_hook_guards_in_a_query(lab: Lab) -> None:
    """R031: a query with callbacks runs as a session."""

    def guard(context: PreToolUseContext) -> Refuse:
        return Refuse("not here")

    async with ScriptedModel([[write(lab)], [text("I may not.")]]) as model:
        cli = lab.cli(model, permission_mode="acceptEdits")
        stream = query("go", cli, lab.sdk, BidirOptions(on_pre_tool_use=guard))
        messages = [message async for message in stream]
        assert stream.pid is not None
        assert not is_alive(stream.pid)
        assert "not here" in str(model.requests[1].messages[-1])
        assert results(messages) == ["I may not."]
    assert not (lab.work / "note.txt").exists()


@tool
def price(article: str, context: ToolContext) -> str:
    """Look up a price."""
    return f"{article}: 310, asked by {type(context.session).__module__}"


SCRIPT: Any = [[tool_use("mcp__shop__price", article="saddle")], [text("310 euros.")]]


def shop() -> BidirOptions:
    """Options with a tool, which the callback allows."""
    return BidirOptions(
        mcp_servers={"shop": ToolServer([price])}, on_can_use_tool=lambda context: Allow()
    )


@pytest.mark.longer
async def test_a_tool_is_called_in_a_query(lab: Lab) -> None:
    async with ScriptedModel(SCRIPT) as model:
        stream = query("go", lab.cli(model), lab.sdk, shop())
        messages = [message async for message in stream]
        assert "saddle: 310" in str(model.requests[1].messages[-1])
        assert results(messages) == ["310 euros."]


@pytest.mark.longer
def test_a_tool_of_a_blocking_query_gets_the_blocking_session(lab: Lab) -> None:
    with ScriptedModel(SCRIPT) as model:
        messages = list(sync.query("go", lab.cli(model), lab.sdk, shop()))
        assert "asked by bridle.sync" in str(model.requests[1].messages[-1])
    assert results(messages) == ["310 euros."]


async def test_several_prompts_are_answered_one_after_the_other(lab: Lab) -> None:
    messages: list[Message] = []
    answered = asyncio.Event()

    async def prompts() -> AsyncIterator[str]:
        yield "one"
        await answered.wait()
        yield "two"

    async with ScriptedModel([[text("first")], [text("second")]]) as model:
        async for message in query(prompts(), lab.cli(model), lab.sdk, shop()):
            messages.append(message)
            if isinstance(message, ResultMessage):
                answered.set()
    assert results(messages) == ["first", "second"]


@pytest.mark.longer
async def test_background_work_belongs_to_the_query(lab: Lab) -> None:
    call = tool_use("Bash", command="sleep 1", run_in_background=True, description="wait")
    async with ScriptedModel([[call], [text("started")], [text("it is done")]]) as model:
        stream = query("go", lab.cli(model), lab.sdk, shop())
        assert results([message async for message in stream])[-1] == "it is done"


async def _read_into(messages: list[Message], stream: AsyncIterator[Message]) -> None:
    async for message in stream:
        messages.append(message)


@pytest.mark.longer
async def test_a_limit_is_raised_after_the_messages(lab: Lab) -> None:
    messages: list[Message] = []
    async with ScriptedModel([repeat([tool_use("Bash", command="true")])]) as model:
        sdk = lab.sdk.replace(limits=Limits(turns=2))
        stream = query("go", lab.cli(model), sdk, shop())
        with pytest.raises(TurnsLimitError):
            await _read_into(messages, stream)
    assert messages
