"""Promises about the other hooks: they are called, and what they decide takes effect."""

from __future__ import annotations

from bridle import (
    Allow,
    Block,
    CanUseToolContext,
    Hook,
    HookContext,
    HookOutput,
    OutcomeReason,
    PostToolUseContext,
    StopContext,
    UserPromptSubmitContext,
)
from bridle.testing._verify.promises import TESTED_SINCE, expect, promise, require
from bridle.testing._verify.stage import BESIDE, DONE, Stage, ended
from bridle.testing.model_request import ModelRequest
from bridle.testing.script import Block as Content
from bridle.testing.script import text, tool_use

_REASON = "one more thing"


@promise(
    "hook.prompt_blocked",
    "Block from a UserPromptSubmit hook keeps the prompt from the model.",
    depends="on_user_prompt_submit",
)
async def prompt_blocked(stage: Stage) -> str:
    def guard(context: UserPromptSubmitContext) -> Block | None:
        return Block(_REASON) if "secret" in context.prompt else None

    (blocked, answered), model = await stage.ask(
        [[text(DONE)]], "the secret is 7", "hello", on_user_prompt_submit=guard
    )
    expect("the reason", blocked.reason, OutcomeReason.PROMPT_BLOCKED)
    expect("the next answer", answered.text, DONE)
    require("secret is 7" not in str(model.asked[0].messages), "the model read the prompt")
    return f"{ended(blocked)}; the next prompt was answered"


@promise(
    "hook.feedback",
    "Block from a PostToolUse hook is read by the model.",
    depends="on_post_tool_use",
)
async def feedback(stage: Stage) -> str:
    def review(_: PostToolUseContext) -> Block:
        return Block(_REASON)

    [outcome], model = await stage.ask(
        stage.script(stage.write()), on_post_tool_use=review, permission_mode="acceptEdits"
    )
    require(_REASON in str(model.asked[1].messages), "the model did not read the reason")
    return f"the model read the reason; {ended(outcome)}"


@promise(
    "hook.stop_blocked",
    "Block from a Stop hook makes the model continue the same turn.",
    depends="on_stop",
)
async def stop_blocked(stage: Stage) -> str:
    def insist(context: StopContext) -> Block | None:
        return None if context.stop_hook_active else Block(_REASON)

    [outcome], model = await stage.ask([[text("hello")], [text("goodbye")]], on_stop=insist)
    expect("the answer", outcome.text, "goodbye")
    require(_REASON in str(model.asked[1].messages), "the model did not read the reason")
    return "the turn went on and ended with the second answer"


@promise(
    "hook.context",
    "Context that a hook adds is read by the model.",
    depends="HookOutput.additional_context",
)
async def context(stage: Stage) -> str:
    def add(_: UserPromptSubmitContext) -> HookOutput:
        return HookOutput(additional_context=_REASON)

    _, model = await stage.ask([[text(DONE)]], on_user_prompt_submit=add)
    require(_REASON in str(model.asked[0].messages), "the model did not read the context")
    return "the model read the context"


_EVENTS = (
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "SubagentStop",
    "Stop",
    "PreCompact",
)
_NEWER_EVENTS = (
    "SessionStart",
    "SubagentStart",
    "PermissionRequest",
    "PostToolUseFailure",
    "PostToolBatch",
    "MessageDisplay",
    "PostCompact",
)


def _family(request: ModelRequest) -> list[Content]:
    """Start a subagent, then make a call that fails, then answer."""
    if request.agent_id is not None:
        return [text("the agent's report")]
    if request.last_user_text != "go" and not request.answers_tool_call:
        return [text(BESIDE)]  # the request for a summary
    results = len(request.tool_results)
    if results == 0:
        task = {"description": "look", "prompt": "look around", "run_in_background": False}
        return [tool_use("Task", subagent_type="general-purpose", **task)]
    if results == 1:
        return [tool_use("Bash", command="exit 3", description="fail")]
    return [text(DONE)]


def _allow(_: CanUseToolContext) -> Allow:
    return Allow()


async def _arrived(stage: Stage, events: tuple[str, ...]) -> str:
    seen: set[str] = set()

    def note(context: HookContext) -> None:
        seen.add(context.hook_event_name)

    await stage.ask(
        _family,
        "go",
        "/compact",
        hooks={event: [Hook(note)] for event in events},
        on_can_use_tool=_allow,
    )
    missing = [event for event in events if event not in seen]
    require(not missing, f"not called: {', '.join(missing)}")
    return f"called: {', '.join(events)}"


@promise(
    "hook.events",
    f"Hooks are called for {', '.join(_EVENTS[:-1])} and {_EVENTS[-1]}.",
    depends="all on_... callbacks of hooks",
    since=TESTED_SINCE,
)
async def events(stage: Stage) -> str:
    return await _arrived(stage, _EVENTS)


@promise(
    "hook.newer_events",
    f"Hooks are called for {', '.join(_NEWER_EVENTS[:-1])} and {_NEWER_EVENTS[-1]}.",
    depends="BidirOptions.hooks",
    since=TESTED_SINCE,
)
async def newer_events(stage: Stage) -> str:
    return await _arrived(stage, _NEWER_EVENTS)
