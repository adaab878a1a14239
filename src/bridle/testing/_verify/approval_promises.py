"""Promises about tool calls that wait for a person."""

from __future__ import annotations

from typing import Any

from bridle import (
    Agent,
    Allow,
    Defer,
    Deny,
    Outcome,
    OutcomeReason,
    PendingApproval,
    PreToolUseContext,
    ToolServer,
    tool,
)
from bridle.errors import ApprovalPending
from bridle.testing._verify.promises import TESTED_SINCE, Broken, expect, promise, require
from bridle.testing._verify.stage import DONE, Model, Stage, ended
from bridle.testing.script import Script, repeat, text, tool_use

_DEPENDS = "Defer, Agent.resume, approvals in fleets"
_SINCE = TESTED_SINCE


def _wait(_: PreToolUseContext) -> Defer:
    return Defer()


def _touch() -> Script:
    call = tool_use("Bash", command="touch made; echo ran", description="make a file")
    return [[call], repeat([text(DONE)])]


def _pending(outcome: Outcome[Any]) -> PendingApproval:
    """Return the call that waits, read from its stored form."""
    expect("the reason", outcome.reason, OutcomeReason.TOOL_DEFERRED)
    if outcome.pending is None:
        raise Broken("the outcome has no pending call")
    return PendingApproval.from_json(outcome.pending.to_json())


async def _deferred(stage: Stage, model: Model) -> tuple[Agent[Any], PendingApproval]:
    agent = stage.agent(model, on_pre_tool_use=_wait)
    pending = _pending(await agent.run("go"))
    expect("files while the call waits", stage.files, [])
    return agent, pending


@promise(
    "approval.allow",
    "A deferred call ends the turn, and runs when a person allows it.",
    depends=_DEPENDS,
    since=_SINCE,
)
async def allow(stage: Stage) -> str:
    async with Model(_touch()) as model:
        agent, pending = await _deferred(stage, model)
        outcome = await agent.resume(pending, Allow())
        told = model.asked[-1].last_tool_result
    require(outcome.ok, ended(outcome))
    expect("files and result", (stage.files, told), (["made"], "ran"))
    return "the call waited, ran once allowed, and the turn completed"


@promise(
    "approval.deny",
    "A deferred call that a person denies does not run, and the model reads why.",
    depends=_DEPENDS,
    since=_SINCE,
)
async def deny(stage: Stage) -> str:
    async with Model(_touch()) as model:
        agent, pending = await _deferred(stage, model)
        outcome = await agent.resume(pending, Deny("not today"))
        told = model.asked[-1].last_tool_result
    require(outcome.ok, ended(outcome))
    expect("files and result", (stage.files, told), ([], "not today"))
    return "the call did not run"


@promise(
    "approval.prompt_refused",
    "While a call waits, a prompt to its session raises ApprovalPending.",
    depends=_DEPENDS,
    since=_SINCE,
)
async def prompt_refused(stage: Stage) -> str:
    async with Model(_touch()) as model:
        agent = stage.agent(model, on_pre_tool_use=_wait)
        async with agent.session() as session:
            pending = _pending(await (await session.send_user_message("go")))
            try:
                await (await session.send_user_message("more"))
            except ApprovalPending as error:
                expect("the call in the error", error.tool_use_id, pending.tool_use_id)
            else:
                raise Broken("the prompt was sent")
        outcome = await agent.resume(pending, Allow())
    require(outcome.ok, ended(outcome))
    expect("files", stage.files, ["made"])
    return "ApprovalPending; the call ran once allowed"


@promise(
    "approval.after_resume",
    "A prompt to a resumed conversation with a waiting call raises ApprovalPending.",
    depends=_DEPENDS,
    since=_SINCE,
)
async def after_resume(stage: Stage) -> str:
    async with Model(_touch()) as model:
        agent, pending = await _deferred(stage, model)
        try:
            outcome = await agent.run("more", resume_session_id=pending.session_id)
        except ApprovalPending as error:
            expect("the call in the error", error.tool_use_id, pending.tool_use_id)
        else:
            raise Broken(f"the prompt was sent, and {ended(outcome)}")
        outcome = await agent.resume(pending, Allow())
    require(outcome.ok, ended(outcome))
    expect("files", stage.files, ["made"])
    return "ApprovalPending; the call ran once allowed"


def _fail(_: PreToolUseContext) -> None:
    raise RuntimeError("a hook that fails")


@promise(
    "approval.rule",
    "A call that a rule of approve names waits, also if a hook raises.",
    depends="approve=[...]",
    since=_SINCE,
)
async def rule(stage: Stage) -> str:
    async with Model(_touch()) as model:
        agent = stage.agent(model, approve=["Bash(touch *)"], on_pre_tool_use=_fail)
        pending = _pending(await agent.run("go"))
        expect("files while the call waits", stage.files, [])
        outcome = await agent.resume(pending, Allow())
    require(outcome.ok, ended(outcome))
    expect("files", stage.files, ["made"])
    return "the call waited although the hook raised, and ran once allowed"


@promise(
    "approval.tool",
    "A call of a tool with approval=True waits, and runs once when a person allows it.",
    depends="@tool(approval=True)",
    since=_SINCE,
)
async def approved_tool(stage: Stage) -> str:
    calls: list[str] = []

    @tool(approval=True)
    def pay(to: str) -> str:
        """Pay."""
        calls.append(to)
        return "paid"

    script: Script = [[tool_use("mcp__bank__pay", to="Ann")], repeat([text(DONE)])]
    async with Model(script) as model:
        agent = stage.agent(model, mcp_servers={"bank": ToolServer([pay])})
        pending = _pending(await agent.run("go"))
        expect("calls while it waits", calls, [])
        outcome = await agent.resume(pending, Allow())
    require(outcome.ok, ended(outcome))
    expect("calls", calls, ["Ann"])
    return "the call waited, and ran once allowed"
