"""Promises about permission requests, questions, plans and elicitations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from bridle import (
    Accept,
    Allow,
    Answers,
    Block,
    CanUseToolContext,
    Deny,
    Edit,
    ElicitationRequestContext,
    Hook,
    PlanContext,
    QuestionContext,
)
from bridle.testing._verify.asking_server import server_config
from bridle.testing._verify.promises import TESTED_SINCE, expect, promise, require
from bridle.testing._verify.stage import DONE, Stage, ended
from bridle.testing.script import text, tool_use

_REASON = "not today"


async def _decided(
    stage: Stage, decide: Callable[[CanUseToolContext], Any] | None, **options: Any
) -> tuple[list[str], str]:
    """Let the model write a file that needs a permission. Return the requests and its result."""
    asked: list[str] = []

    async def note(context: CanUseToolContext) -> Any:
        assert decide is not None, "the session has a callback"
        asked.append(context.tool_name)
        decision = decide(context)
        return await decision if inspect.isawaitable(decision) else decision

    callback = None if decide is None else note
    [outcome], model = await stage.ask(
        stage.script(stage.write()), on_can_use_tool=callback, **options
    )
    require(outcome.ok, ended(outcome))
    return asked, model.asked[1].last_tool_result or ""


def _allow(_: CanUseToolContext) -> Allow:
    return Allow()


def _deny(_: CanUseToolContext) -> Deny:
    return Deny(_REASON)


@promise(
    "permission.allow",
    "A permission callback that allows lets the tool run.",
    depends="on_can_use_tool",
)
async def allow(stage: Stage) -> str:
    asked, _ = await _decided(stage, _allow)
    expect("requests", asked, ["Write"])
    expect("files", stage.files, ["note.txt"])
    return "one request, and the tool ran"


@promise(
    "permission.deny",
    "A permission callback that denies stops the tool, and the model reads why.",
    depends="on_can_use_tool",
)
async def deny(stage: Stage) -> str:
    asked, told = await _decided(stage, _deny)
    expect("requests and files", (asked, stage.files), (["Write"], []))
    require(_REASON in told, f"the model was told {told!r:.200}")
    return "one request, and the tool did not run"


@promise(
    "permission.raises",
    "A permission callback that raises, or returns an invalid value, denies.",
    depends="on_can_use_tool",
)
async def raises(stage: Stage) -> str:
    def fail(_: CanUseToolContext) -> Allow:
        raise RuntimeError("the callback failed")

    def answer(_: CanUseToolContext) -> Any:
        return True

    for decide in (fail, answer):
        asked, _ = await _decided(stage, decide)
        expect("requests and files", (asked, stage.files), (["Write"], []))
    expect("warnings", stage.warned.count("permission_failed"), 2)
    return "the tool did not run, with warnings"


@promise(
    "permission.no_callback",
    "Without a permission callback, a call that needs a permission does not run.",
    depends="sessions without on_can_use_tool",
)
async def no_callback(stage: Stage) -> str:
    await _decided(stage, None)
    expect("files", stage.files, [])
    return "the tool did not run"


@promise(
    "permission.edit",
    "A permission callback that edits the input changes what the tool gets.",
    depends="Edit",
)
async def edit(stage: Stage) -> str:
    def change(context: CanUseToolContext) -> Edit:
        return Edit({**context.tool_input, "content": "edited"})

    await _decided(stage, change)
    expect("files", stage.files, ["note.txt"])
    expect("content", (stage.work / "note.txt").read_text("utf-8"), "edited")
    return "the tool wrote the edited content"


def _refuse(_: object) -> Block:
    return Block(_REASON)


@promise(
    "permission.hook_blocks",
    "Block from a PermissionRequest hook stops the tool.",
    depends="PermissionRequest hooks",
    since=TESTED_SINCE,
)
async def hook_blocks(stage: Stage) -> str:
    async def wait(context: CanUseToolContext) -> Allow:
        await context.wait_cancelled()  # so that only the hook can decide
        return Allow()

    _, told = await _decided(
        stage, wait, hooks={"PermissionRequest": [Hook(_refuse)]}, permission_timeout=8.0
    )
    expect("files", stage.files, [])
    require(_REASON in told, f"the model was told {told!r:.200}")
    return "the tool did not run, and the model read the reason"


@promise(
    "permission.hook_wins",
    "Block from a PermissionRequest hook holds against a callback that allows.",
    depends="PermissionRequest hooks beside on_can_use_tool",
    since=TESTED_SINCE,
)
async def hook_wins(stage: Stage) -> str:
    await _decided(stage, _allow, hooks={"PermissionRequest": [Hook(_refuse)]})
    expect("files", stage.files, [])
    return "the tool did not run"


@promise(
    "permission.question",
    "The answers to a question of the model reach it.",
    depends="on_question",
    since=TESTED_SINCE,
)
async def question(stage: Stage) -> str:
    asked = {
        "question": "Which colour?",
        "header": "Colour",
        "multiSelect": False,
        "options": [
            {"label": "Red", "description": "warm"},
            {"label": "Blue", "description": "cold"},
        ],
    }

    def answer(context: QuestionContext) -> Answers:
        return Answers({one.question: one.options[1].label for one in context.questions})

    script = [[tool_use("AskUserQuestion", questions=[asked])], [text(DONE)]]
    [outcome], model = await stage.ask(script, on_question=answer)
    told = model.asked[1].last_tool_result or ""
    require("Blue" in told and "Red" not in told, f"the model was told {told!r:.200}")
    return f"the model read the answer; {ended(outcome)}"


@promise(
    "permission.plan",
    "A plan is approved, or sent back with a reason.",
    depends="on_plan",
)
async def plan(stage: Stage) -> str:
    asked: list[PlanContext] = []

    def decide(context: PlanContext) -> Allow | Deny:
        asked.append(context)
        return Deny(_REASON) if len(asked) == 1 else Allow()

    plans = [[tool_use("ExitPlanMode", plan=words)] for words in ("a plan", "a better plan")]
    [outcome], model = await stage.ask(
        [*plans, [text(DONE)]], on_plan=decide, permission_mode="plan"
    )
    told = [request.last_tool_result or "" for request in model.asked[1:]]
    require(_REASON in told[0], f"after the refusal the model was told {told[0]!r:.200}")
    require(_REASON not in told[1], f"after the approval the model was told {told[1]!r:.200}")
    return f"one plan was sent back, one approved; {ended(outcome)}"


@promise(
    "permission.elicitation",
    "An MCP server gets the program's answer to what it asks the user.",
    depends="on_elicitation",
    since=TESTED_SINCE,
)
async def elicitation(stage: Stage) -> str:
    def answer(_: ElicitationRequestContext) -> Accept:
        return Accept({"name": "Ada"})

    _, model = await stage.ask(
        [[tool_use("mcp__form__ask")], [text(DONE)]],
        on_elicitation=answer,
        allowed_tools=["mcp__form__ask"],
        mcp_config={"mcpServers": {"form": server_config(stage.directory, asks=True)}},
    )
    told = model.asked[1].last_tool_result
    expect("the server's answer", told, '{"action": "accept", "content": {"name": "Ada"}}')
    return "the server got the answer"
