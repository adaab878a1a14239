"""The program of the tour: ordinary code that uses Bridle.

The tour shows parts of this source on the screen, so its lines are short. A coroutine is shown
without its first and last lines, which connect it to the tour. Everything else is shown in full.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from bridle import (
    Agent,
    Block,
    CanUseToolContext,
    CliOptions,
    Continue,
    Deny,
    Edit,
    Hook,
    HookResult,
    Outcome,
    PermissionResult,
    PreToolUseContext,
    Session,
    Turn,
    run,
)


class Print(Protocol):
    """Like the builtin, but prints on the screen of the tour."""

    def __call__(self, value: object, /, *, end: str = "\n", flush: bool = False) -> None: ...


# ---------------------------------------------------------------- functions the CLI calls


def guard(use: PreToolUseContext) -> HookResult:
    if "rm -rf" in use.tool_input.get("command", ""):
        return Block("Nothing is deleted here.")
    return Continue()


def decide(ask: CanUseToolContext) -> PermissionResult:
    if ask.tool_name != "Write":
        return Deny("Only files may be written.")
    content = ask.tool_input["content"]
    fixed = content.replace("True", "False")
    return Edit({**ask.tool_input, "content": fixed})


ORDERS: list[str] = []


def order(article: str) -> int:
    """Order an article and return its order number."""
    ORDERS.append(article)
    return len(ORDERS)


# ---------------------------------------------------------------- a session and its options


@asynccontextmanager
async def open_session(cli: CliOptions) -> AsyncGenerator[Session]:
    blocking = Hook(guard, on_error="block")
    agent = Agent(
        cli=cli,
        tools=[order],  # a tool
        hooks={"PreToolUse": [blocking]},
        on_can_use_tool=decide,  # a permission callback
    )
    async with agent.session() as session:
        yield session


async def stream(session: Session, prompt: str, print: Print) -> Turn:
    turn = await session.send_user_message(prompt)
    async for delta in turn.text_stream():
        print(delta, end="", flush=True)
    return turn


async def stop_early(session: Session, prompt: str, print: Print) -> Turn:
    turn = await session.send_user_message(prompt)
    length = 0
    async for delta in turn.text_stream():
        print(delta, end="", flush=True)
        length += len(delta)
        if length > 100:
            await session.interrupt()
            break
    return turn


# ---------------------------------------------------------------- one call, one typed outcome


@dataclass
class Bill:
    customer: str
    count: int
    total: float


async def extract(cli: CliOptions, prompt: str, print: Print) -> Outcome[Bill]:
    outcome = await run(prompt, cli=cli, output_type=Bill)
    print(outcome.output)
    return outcome
