"""Promises about PreToolUse hooks: a guard that refuses a call stops it, however it says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from bridle import (
    Block,
    Deny,
    EndTurn,
    Hook,
    ModifyInput,
    Outcome,
    OutcomeReason,
    PreToolUseContext,
)
from bridle.testing._verify.promises import expect, promise, require
from bridle.testing._verify.stage import DONE, Stage, ended
from bridle.testing.script import Block as Content
from bridle.testing.script import text, tool_use

_CALLS = 60
_REASON = "not in this house"


def _returning(result: Any) -> Callable[[PreToolUseContext], Any]:
    """Return a hook that returns this."""

    def hook(_: PreToolUseContext) -> Any:
        return result

    return hook


async def _guarded(stage: Stage, hook: Any, **options: Any) -> tuple[Outcome[Any], str]:
    """Let the model write a file past a hook. Return the outcome and what the model was told."""
    hooks = {"PreToolUse": [hook if isinstance(hook, Hook) else Hook(hook)]}
    [outcome], model = await stage.ask(
        stage.script(stage.write()), permission_mode="acceptEdits", hooks=hooks, **options
    )
    expect("files", stage.files, [])
    told = model.asked[1].last_tool_result if len(model.asked) > 1 else None
    return outcome, told or ""


@promise(
    "guard.parallel",
    f"A guard that blocks stops every one of {_CALLS} parallel tool calls.",
    depends="on_pre_tool_use under load",
)
async def parallel(stage: Stage) -> str:
    reads: list[Content] = []
    for number in range(_CALLS):
        path = stage.work / f"{number}.txt"
        path.write_text(f"content {number}")
        reads.append(tool_use("Read", file_path=str(path)))
    seen: list[str] = []

    async def slow(context: PreToolUseContext) -> Block:
        seen.append(context.tool_input["file_path"])
        await asyncio.sleep(0.2)
        return Block(_REASON)

    _, model = await stage.ask([reads, [text(DONE)]], on_pre_tool_use=slow)
    told = list(model.asked[1].tool_results.values())
    passed = [one for one in told if _REASON not in one]
    expect("calls that the guard saw", len(set(seen)), _CALLS)
    expect("results", (len(told), len(passed)), (_CALLS, 0))
    return f"{len(seen)} calls asked about, none ran"


@promise(
    "guard.block",
    "Block from a PreToolUse hook stops the tool, and the model reads the reason.",
    depends="on_pre_tool_use",
)
async def block(stage: Stage) -> str:
    outcome, told = await _guarded(stage, _returning(Block(_REASON)))
    require(_REASON in told, f"the model was told {told!r:.200}")
    return f"the tool did not run; {ended(outcome)}"


@promise("guard.deny", "Deny from a PreToolUse hook stops the tool.", depends="on_pre_tool_use")
async def deny(stage: Stage) -> str:
    outcome, told = await _guarded(stage, _returning(Deny(_REASON)))
    require(_REASON in told, f"the model was told {told!r:.200}")
    return f"the tool did not run; {ended(outcome)}"


_OFFICIAL: list[dict[str, Any]] = [
    {"decision": "block", "reason": _REASON},
    {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": _REASON,
        }
    },
]


@promise(
    "guard.official_output",
    "The official SDK's hook outputs that refuse a call stop the tool.",
    depends="hooks that return dicts, bridle.compat",
)
async def official_output(stage: Stage) -> str:
    for output in _OFFICIAL:
        _, told = await _guarded(stage, _returning(output))
        require(_REASON in told, f"for {output}, the model was told {told!r:.200}")
    return f"the tool did not run for {len(_OFFICIAL)} outputs"


@promise(
    "guard.end_turn",
    "EndTurn from a PreToolUse hook stops the tool and ends the turn.",
    depends="EndTurn, outcomes with reason stopped_by_hook",
)
async def end_turn(stage: Stage) -> str:
    outcome, told = await _guarded(stage, _returning(EndTurn(_REASON)))
    expect("the reason", outcome.reason, OutcomeReason.STOPPED_BY_HOOK)
    require(_REASON in outcome.detail, f"the detail was {outcome.detail!r:.200}")
    require(not told, "the model was asked again")
    return ended(outcome)


@promise(
    "guard.invalid_result",
    "A PreToolUse hook that returns an invalid value stops the tool.",
    depends="on_pre_tool_use",
)
async def invalid_result(stage: Stage) -> str:
    outcome, _ = await _guarded(stage, _returning("no"))
    require("hook_failed" in stage.warned, f"the warnings were {stage.warned}")
    return f"the tool did not run, with a warning; {ended(outcome)}"


@promise(
    "guard.raises",
    'A guard with on_error="block" that raises stops the tool.',
    depends='Hook(on_error="block")',
)
async def raises(stage: Stage) -> str:
    def fail(_: PreToolUseContext) -> None:
        raise RuntimeError("the guard failed")

    outcome, _ = await _guarded(stage, Hook(fail, on_error="block"))
    require("hook_failed" in stage.warned, f"the warnings were {stage.warned}")
    return f"the tool did not run, with a warning; {ended(outcome)}"


@promise(
    "guard.timeout",
    'A guard with on_error="block" that misses its deadline stops the tool.',
    depends='Hook(on_error="block", timeout=...)',
)
async def timeout(stage: Stage) -> str:
    async def sleep(_: PreToolUseContext) -> None:
        await asyncio.Event().wait()

    outcome, _ = await _guarded(stage, Hook(sleep, timeout=0.3, on_error="block"))
    require("hook_timed_out" in stage.warned, f"the warnings were {stage.warned}")
    return f"the tool did not run, with a warning; {ended(outcome)}"


@promise(
    "guard.modify_input",
    "ModifyInput from a PreToolUse hook changes the input that the tool gets.",
    depends="ModifyInput",
    since="2.0.10",
)
async def modify_input(stage: Stage) -> str:
    def change(context: PreToolUseContext) -> ModifyInput:
        return ModifyInput({**context.tool_input, "content": "changed"})

    await stage.ask(
        stage.script(stage.write()), permission_mode="acceptEdits", on_pre_tool_use=change
    )
    expect("files", stage.files, ["note.txt"])
    content = (stage.work / "note.txt").read_text("utf-8")
    expect("the content that was written", content, "changed")
    return "the tool wrote the changed content"
