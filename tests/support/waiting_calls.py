"""Prompts to conversations whose tool call waits for approval, on a real CLI, in 24 combinations.

In each of them the prompt is refused, the call stays approvable, the tool runs once and after the
decision, and the model sees its result.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from tests.support.pools import pool_of

from bridle import (
    Agent,
    Allow,
    CanUseToolContext,
    Defer,
    Outcome,
    OutcomeReason,
    PendingApproval,
    PreToolUseContext,
    tool,
)
from bridle.errors import ApprovalPending
from bridle.sessions import MemoryStore
from bridle.testing import ScriptedModel, repeat, text, tool_use


class Combination(Struct, frozen=True):
    """How a conversation is resumed while a call of it waits."""

    #: Whether the agent that resumes has the hook that deferred the call.
    has_hook: bool
    has_store: bool
    #: ``Bash``, or a tool of this program.
    tool: str
    #: ``allowed``: the tool runs without a permission request. ``asked``: a callback allows it.
    #: ``pool``: by the key of a pool, whose process for it has ended.
    way: str

    def __str__(self) -> str:
        names = ("hook" if self.has_hook else "no_hook", "store" if self.has_store else "files")
        return "-".join((*names, self.tool, self.way))


ALL = [
    Combination(hook, store, tool, way)
    for hook, store, tool, way in product(
        (True, False), (True, False), ("Bash", "refund"), ("allowed", "asked", "pool")
    )
]

REPRESENTATIVE = [
    Combination(has_hook=False, has_store=False, tool="Bash", way="allowed"),
    Combination(has_hook=False, has_store=True, tool="refund", way="asked"),
    Combination(has_hook=True, has_store=True, tool="Bash", way="pool"),
    Combination(has_hook=False, has_store=False, tool="refund", way="pool"),
]

Resume = Callable[[PendingApproval], Any]


async def play(one: Combination, cli_path: str, work: Path) -> None:
    """Defer a call, send a prompt, decide, and continue the conversation."""
    is_bash = one.tool == "Bash"
    call = tool_use("Bash", command="echo x >> log; echo ran", description="d")
    if not is_bash:
        call = tool_use("mcp__tools__refund")
    async with ScriptedModel([[call], repeat([text("done")])]) as model:
        scene = _Scene(one, model, cli_path, work)
        async with scene.deferred() as (session_id, send, decide):
            with pytest.raises(ApprovalPending) as refused:
                await send("more")
            pending = refused.value.pending
            assert pending is not None
            assert pending.session_id == session_id
            assert not scene.log.exists(), "the tool ran without a decision"
            assert len(model.requests) == 1, "the prompt was sent"
            outcome = await decide(pending)
            assert outcome.ok, outcome
            assert scene.log.read_text() == "x\n"
            assert "ran" in str(model.requests[-1].messages[-1])
            assert (await send("more")).ok
            assert scene.log.read_text() == "x\n"


class _Scene:
    def __init__(self, one: Combination, model: ScriptedModel, cli_path: str, work: Path) -> None:
        self._one = one
        self.log = log = work / "log"
        is_asked = one.way == "asked"

        @tool(ask=is_asked)
        def refund() -> str:
            """Refund an order."""
            log.write_text((log.read_text() if log.exists() else "") + "x\n")
            return "ran"

        self._base: dict[str, Any] = {
            "cli_path": cli_path,
            "env": model.env,
            "cwd": str(work),
            "model": "claude-sonnet-4-5",
            "inherit_env": ["PATH"],
        }
        if one.tool == "refund":
            self._base["tools"] = [refund]
        if one.has_store:
            self._base["store"] = MemoryStore()
        if is_asked:
            self._base["on_can_use_tool"] = _allow
        else:
            self._base["allowed_tools"] = ["Bash"]
        self._has_deferred = False

    def _wait(self, _: PreToolUseContext) -> Defer | None:
        """Defer every call, or the first one only."""
        if self._has_deferred and not self._one.has_hook:
            return None
        self._has_deferred = True
        return Defer()

    @contextlib.asynccontextmanager
    async def deferred(self) -> AsyncGenerator[Any]:
        """Yield the session with the call, how to send a prompt to it, and how to decide."""
        agent = Agent(**self._base, on_pre_tool_use=self._wait)
        if self._one.way != "pool":
            first = _checked(await agent.run("go"))
            other = agent if self._one.has_hook else Agent(**self._base)
            yield (
                first.session_id,
                lambda prompt: other.run(prompt, resume_session_id=first.session_id),
                lambda pending: other.resume(pending, Allow()),
            )
            return
        async with pool_of(agent, size=1, ready=0) as pool:

            async def send(prompt: str) -> Outcome[Any]:
                async with pool.session(key="user-7") as session:
                    return await (await session.send_user_message(prompt))

            first = _checked(await send("go"))
            yield (
                first.session_id,
                send,
                lambda pending: pool.resume("user-7", Allow(), pending=pending),
            )


def _allow(_: CanUseToolContext) -> Allow:
    return Allow()


def _checked(outcome: Outcome[Any]) -> Outcome[Any]:
    assert outcome.reason is OutcomeReason.TOOL_DEFERRED, outcome
    return outcome
