"""Promises about tools in the program's process."""

from __future__ import annotations

from bridle import ToolFailure, tool
from bridle.testing._verify.promises import expect, promise, require
from bridle.testing._verify.stage import DONE, Model, Stage, ended
from bridle.testing.script import text, tool_use


@promise(
    "tool.function",
    "A function is in the model's tool list from the start, and its result reaches the model.",
    depends="tools, ToolServer",
)
async def function(stage: Stage) -> str:
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async with Model([[tool_use("mcp__tools__add", a=2, b=40)], [text(DONE)]]) as model:
        outcome = await stage.agent(model, tools=[add]).run("go")
        first = model.asked[0].tools
        require("mcp__tools__add" in first, f"the model's tools were {', '.join(first):.200}")
        expect("the result", model.asked[1].last_tool_result, "42")
    return f"the model read the result; {ended(outcome)}"


@promise(
    "tool.arguments",
    "Arguments that do not fit the function are refused before it is called.",
    depends="tools, ToolServer",
)
async def arguments(stage: Stage) -> str:
    called: list[int] = []

    @tool
    def double(number: int) -> int:
        """Double a number."""
        called.append(number)
        return 2 * number

    script = [[tool_use("mcp__tools__double", number="many")], [text(DONE)]]
    async with Model(script) as model:
        await stage.agent(model, tools=[double]).run("go")
        told = model.asked[1].last_tool_result or ""
    expect("calls", called, [])
    require("number" in told, f"the model was told {told!r:.200}")
    return f"the model was told {told!r:.80}"


@promise(
    "tool.failure",
    "The text of a ToolFailure reaches the model as an error, and the turn goes on.",
    depends="ToolFailure",
)
async def failure(stage: Stage) -> str:
    @tool
    def fail() -> None:
        """Fail."""
        raise ToolFailure("the shop is closed")

    async with Model([[tool_use("mcp__tools__fail")], [text(DONE)]]) as model:
        outcome = await stage.agent(model, tools=[fail]).run("go")
        told = model.asked[1].last_tool_result or ""
        is_error = "'is_error': True" in str(model.asked[1].messages[-1])
    require("the shop is closed" in told, f"the model was told {told!r:.200}")
    require(is_error and outcome.ok, f"marked as an error: {is_error}; {ended(outcome)}")
    return f"the model was told {told!r:.80}"
