"""Promises about interrupts: a turn ends in every phase, and the session goes on."""

from __future__ import annotations

import asyncio

from bridle import Allow, CanUseToolContext, OutcomeReason, PreToolUseContext, Session, Turn, tool
from bridle.testing._verify.promises import TESTED_SINCE, expect, promise, require
from bridle.testing._verify.stage import Model, Stage, ended, send
from bridle.testing.script import Reply, text, tool_use

_DEPENDS = "Session.interrupt, Turn.interrupt, limits"


async def _interrupted(session: Session, turn: Turn) -> str:
    """Interrupt a turn, and check that the next prompt is answered."""
    await session.interrupt()
    outcome = await turn
    expect("the reason", outcome.reason, OutcomeReason.INTERRUPTED)
    again = await send(session, "again")
    expect("the next answer", again.text, "next")
    return f"{ended(outcome)}; the next prompt was answered"


@promise("interrupt.stream", "An interrupt ends a turn while the model answers.", depends=_DEPENDS)
async def stream(stage: Stage) -> str:
    answer = Reply(blocks=(text("a long answer", chunks=4),), hold=True, hold_after=4)
    async with Model([answer, [text("next")]]) as model, stage.session(model) as session:
        turn = await session.send_user_message("go")
        await model.wait_for_hold()
        return await _interrupted(session, turn)


@promise("interrupt.tool", "An interrupt ends a turn while a tool runs.", depends=_DEPENDS)
async def in_tool(stage: Stage) -> str:
    called, cancelled = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> None:
        """Wait."""
        called.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    script = [[tool_use("mcp__tools__wait")], [text("next")]]
    async with (
        Model(script) as model,
        stage.agent(model, tools=[wait]).session() as session,
    ):
        turn = await session.send_user_message("go")
        await called.wait()
        observed = await _interrupted(session, turn)
        await cancelled.wait()
        return f"{observed}; the tool was cancelled"


@promise("interrupt.hook", "An interrupt ends a turn while a hook decides.", depends=_DEPENDS)
async def in_hook(stage: Stage) -> str:
    asked = asyncio.Event()

    async def think(_: PreToolUseContext) -> None:
        asked.set()
        await asyncio.Event().wait()

    script = [[stage.write()], [text("next")]]
    options = {"on_pre_tool_use": think, "permission_mode": "acceptEdits"}
    async with Model(script) as model, stage.session(model, **options) as session:
        turn = await session.send_user_message("go")
        await asked.wait()
        observed = await _interrupted(session, turn)
    expect("files", stage.files, [])
    return observed


@promise(
    "interrupt.permission",
    "An interrupt ends a turn while a permission request is open.",
    depends=_DEPENDS,
)
async def in_permission(stage: Stage) -> str:
    asked, withdrawn = asyncio.Event(), asyncio.Event()

    async def decide(context: CanUseToolContext) -> Allow:
        asked.set()
        await context.wait_cancelled()
        withdrawn.set()
        return Allow()

    script = [[stage.write()], [text("next")]]
    async with (
        Model(script) as model,
        stage.session(model, on_can_use_tool=decide) as session,
    ):
        turn = await session.send_user_message("go")
        await asked.wait()
        observed = await _interrupted(session, turn)
        await withdrawn.wait()
    expect("files", stage.files, [])
    return f"{observed}; the request was withdrawn"


@promise(
    "interrupt.queued",
    "An interrupt of a queued turn ends it, and not the one before it.",
    depends="Turn.interrupt",
    since=TESTED_SINCE,
)
async def queued(stage: Stage) -> str:
    first = Reply(blocks=(text("first"),), hold=True)
    async with Model([first, [text("next")]]) as model, stage.session(model) as session:
        one = await session.send_user_message("one")
        await model.wait_for_hold()
        two = await session.send_user_message("two")
        await session.ping()
        await two.interrupt()
        model.release()
        outcomes = await one, await two
        again = await send(session, "again")
        read = "\n".join(str(request.messages) for request in model.asked)
    reasons = [outcome.reason for outcome in outcomes]
    expect("the reasons", reasons, [OutcomeReason.COMPLETED, OutcomeReason.INTERRUPTED])
    expect("the answers", (outcomes[0].text, again.text), ("first", "next"))
    require("'two'" not in read, "the model read the prompt that was interrupted")
    return "the queued turn ended as interrupted, the first completed"
