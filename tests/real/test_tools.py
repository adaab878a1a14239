"""Tools that run in this process, called by the real CLI."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pydantic
import pytest
from tests.support.processes import run

from bridle import (
    Allow,
    BidirOptions,
    OutcomeReason,
    ToolContext,
    ToolFailure,
    ToolServer,
    start_session,
    tool,
)
from bridle.testing import ScriptedModel, text, tool_use

if TYPE_CHECKING:
    from tests.real.conftest import Lab

Json = dict[str, Any]


def adder(calls: list[Json]) -> Callable[[Json], Json]:
    """An MCP server by hand: one tool, ``add``. It notes its calls."""
    number = {"type": "number"}
    schema = {"type": "object", "properties": {"a": number, "b": number}}
    listed = {"name": "add", "description": "Adds.", "inputSchema": schema}

    def called(message: Json) -> Json:
        arguments = message["params"]["arguments"]
        calls.append(arguments)
        return {"content": [{"type": "text", "text": str(arguments["a"] + arguments["b"])}]}

    answers: Mapping[str, Callable[[Json], Json]] = {
        "initialize": lambda message: {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "calc", "version": "1"},
        },
        "tools/list": lambda message: {"tools": [listed]},
        "tools/call": called,
    }

    def handle(message: Json) -> Json:
        answer = answers.get(message["method"])
        result = answer(message) if answer else {}
        return {"jsonrpc": "2.0", "id": message.get("id"), "result": result}

    return handle


@pytest.mark.requirement("S082")
def test_a_raw_mcp_handler_is_called_and_the_model_reads_its_result(lab: Lab) -> None:
    """R425, R438, C34."""
    calls: list[Json] = []

    async def main() -> None:
        bidir = BidirOptions(
            mcp_servers={"calc": adder(calls)}, on_can_use_tool=lambda context: Allow()
        )
        script = [[tool_use("mcp__calc__add", a=40, b=2)], [text("42")]]
        async with (
            ScriptedModel(script) as model,
            start_session(lab.cli(model), lab.sdk, bidir) as session,
        ):
            outcome = await (await session.send_user_message("add"))
            assert outcome.text == "42"
            assert model.requests[1].last_tool_result == "42"

    run(main)
    assert calls == [{"a": 40, "b": 2}]


def test_functions_are_tools_of_the_model_with_their_arguments_checked(lab: Lab) -> None:
    """R425, R438, C46."""
    contexts: list[ToolContext] = []

    @tool
    async def add(a: float, b: float, context: ToolContext) -> float:
        """Add two numbers."""
        contexts.append(context)
        return a + b

    @tool
    def fail(how: str) -> str:
        """Fail, politely or not."""
        raise ToolFailure("politely") if how == "politely" else RuntimeError("rudely")

    async def main() -> None:
        bidir = BidirOptions(
            mcp_servers={"calc": ToolServer([add, fail])}, on_can_use_tool=lambda context: Allow()
        )
        calls = [
            tool_use("mcp__calc__add", a=40, b=2),
            tool_use("mcp__calc__add", a="forty", b=2),
            tool_use("mcp__calc__fail", how="politely"),
            tool_use("mcp__calc__fail", how="rudely"),
        ]
        async with (
            ScriptedModel([*([call] for call in calls), [text("done")]]) as model,
            start_session(lab.cli(model), lab.sdk, bidir) as session,
        ):
            assert (await (await session.send_user_message("calculate"))).text == "done"
            right, wrong, polite, rude = list(model.requests[-1].tool_results.values())
            assert float(right) == 42
            assert "a: Expected `float`" in wrong
            assert "politely" in polite
            assert ("RuntimeError" in rude, "Traceback" in rude) == (True, False)
            assert [(one.name, one.server) for one in contexts] == [("add", "calc")]
            assert contexts[0].session is session
            assert contexts[0].tool_use_id in model.requests[-1].tool_results

    run(main)


def test_an_interrupt_reaches_a_tool_that_is_still_at_work(lab: Lab) -> None:
    """R439."""

    async def main() -> None:
        called, cancelled = asyncio.Event(), asyncio.Event()

        @tool
        async def wait() -> None:
            """Wait for ever."""
            called.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        bidir = BidirOptions(
            mcp_servers={"slow": ToolServer([wait])}, on_can_use_tool=lambda context: Allow()
        )
        async with (
            ScriptedModel([[tool_use("mcp__slow__wait")], [text("next")]]) as model,
            start_session(lab.cli(model), lab.sdk, bidir) as session,
        ):
            turn = await session.send_user_message("go")
            await called.wait()
            await session.interrupt()
            assert (await turn).reason is OutcomeReason.INTERRUPTED
            await cancelled.wait()
            assert (await (await session.send_user_message("again"))).text == "next"

    run(main)


def test_the_tools_of_a_server_are_in_the_first_request_of_the_model(lab: Lab) -> None:
    """A newer CLI hides the tools of MCP servers behind its tool search unless a tool objects."""

    @tool
    def price(article: str) -> int:
        """Return the price of an article."""
        return 7

    @tool(always_load=False)
    def rare(article: str) -> int:
        """Do something that is seldom needed."""
        return 0

    async def main() -> None:
        bidir = BidirOptions(mcp_servers={"shop": ToolServer([price, rare])})
        # The CLI decides by the API's address whether to search; this setting decides for it.
        search = {"ENABLE_TOOL_SEARCH": "true"}
        async with (
            ScriptedModel([[text("hi")]]) as model,
            start_session(lab.cli(model, env=model.env | search), lab.sdk, bidir) as session,
        ):
            assert (await (await session.send_user_message("hello"))).ok
            offered = model.requests[0].tools
            assert "mcp__shop__price" in offered
            assert "mcp__shop__rare" not in offered

    run(main)


def test_a_large_result_reaches_the_model_whole_if_its_tool_says_so(lab: Lab) -> None:
    size = 300_000

    @tool(max_result_chars=400_000)
    def long() -> str:
        """Return a long text."""
        return "x" * size

    @tool
    def cut() -> str:
        """Return a long text that the CLI may cut."""
        return "y" * size

    async def main() -> None:
        bidir = BidirOptions(
            mcp_servers={"shop": ToolServer([long, cut])}, on_can_use_tool=lambda context: Allow()
        )
        script = [[tool_use("mcp__shop__long")], [tool_use("mcp__shop__cut")], [text("done")]]
        async with (
            ScriptedModel(script) as model,
            start_session(lab.cli(model), lab.sdk, bidir) as session,
        ):
            assert (await (await session.send_user_message("go"))).ok
            assert model.requests[1].last_tool_result == "x" * size
            assert len(model.requests[2].last_tool_result or "") < size

    run(main)


def test_arguments_of_a_plain_tool_are_validated_in_its_thread(lab: Lab) -> None:
    """The model reads the message of a validator that refuses, and the loop goes on meanwhile."""
    threads: list[threading.Thread] = []

    class Order(pydantic.BaseModel):
        count: int

        @pydantic.field_validator("count")
        @classmethod
        def check(cls, value: int) -> int:
            threads.append(threading.current_thread())
            if value > 10:
                raise ValueError("at most 10")
            return value

    def order(item: Any) -> str:
        threads.append(threading.current_thread())
        return f"{item.count} ordered"

    order.__annotations__["item"] = Order
    server = ToolServer([tool(order, description="Order something.")])

    async def main() -> None:
        bidir = BidirOptions(mcp_servers={"shop": server}, on_can_use_tool=lambda _: Allow())
        script = [
            [tool_use("mcp__shop__order", item={"count": 11})],
            [tool_use("mcp__shop__order", item={"count": 3})],
            [text("done")],
        ]
        async with (
            ScriptedModel(script) as model,
            start_session(lab.cli(model), lab.sdk, bidir) as session,
        ):
            assert (await (await session.send_user_message("order"))).text == "done"
            assert "at most 10" in (model.requests[1].last_tool_result or "")
            assert model.requests[2].last_tool_result == "3 ordered"

    run(main)
    assert len(threads) == 3
    assert threading.main_thread() not in threads
