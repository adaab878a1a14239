"""A guard stops what it is asked about on the real CLI, however many calls come at once."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.scenes import play

from bridle import (
    Allow,
    BidirOptions,
    Block,
    CanUseToolContext,
    Deny,
    Hook,
    ModifyInput,
    PreToolUseContext,
    Session,
    start_session,
)
from bridle.testing import ModelRequest, ScriptedModel, text, tool_use

if TYPE_CHECKING:
    from tests.real.conftest import Lab

CALLS = 60
SECRET = "the content of file"


def many_reads(directory: Path) -> list[Any]:
    """Write files and return the calls with which the model reads them all in one message."""
    directory.mkdir(exist_ok=True)
    reads = []
    for number in range(CALLS):
        path = directory / f"{number}.txt"
        path.write_text(f"{SECRET} {number}\n")
        reads.append(tool_use("Read", file_path=str(path)))
    return reads


def results(request: ModelRequest) -> list[str]:
    """The tool results that the model reads, as text."""
    content: Any = request.messages[-1]["content"]
    return [str(block) for block in content if block["type"] == "tool_result"]


def blocking(seen: list[str], form: str) -> Callable[[PreToolUseContext], Any]:
    async def slow(context: PreToolUseContext) -> Block:
        seen.append(context.tool_input["file_path"])
        await asyncio.sleep(0.5)
        return Block("no file is read here")

    def slow_in_thread(context: PreToolUseContext) -> Block:
        seen.append(context.tool_input["file_path"])
        time.sleep(0.5)
        return Block("no file is read here")

    return slow if form == "async def" else slow_in_thread


@pytest.mark.longer
@pytest.mark.parametrize("form", ["async def", "def"])
def test_a_slow_guard_stops_every_one_of_sixty_parallel_calls(lab: Lab, form: str) -> None:
    seen: list[str] = []
    script = [many_reads(lab.work), [text("done")]]
    scene = play(lab, script, BidirOptions(on_pre_tool_use=blocking(seen, form)))
    told = results(scene.requests[1])
    read = [one for one in told if SECRET in one]
    assert (len(told), len(read), len(set(seen)), len(seen)) == (CALLS, 0, CALLS, CALLS)
    assert all("no file is read here" in one for one in told)
    assert scene.kinds == []


@pytest.mark.longer
@pytest.mark.parametrize("form", ["async def", "def"])
def test_sixty_parallel_permission_requests_all_get_the_callbacks_answer(
    lab: Lab, tmp_path: Path, form: str
) -> None:
    asked: list[str] = []

    async def allow(context: CanUseToolContext) -> Allow:
        asked.append(context.tool_input["file_path"])
        await asyncio.sleep(0.5)
        return Allow()

    def allow_in_thread(context: CanUseToolContext) -> Allow:
        asked.append(context.tool_input["file_path"])
        time.sleep(0.5)
        return Allow()

    # Outside the working directory the CLI asks before it reads.
    script = [many_reads(tmp_path / "elsewhere"), [text("done")]]
    decide = allow if form == "async def" else allow_in_thread
    scene = play(lab, script, BidirOptions(on_can_use_tool=decide))
    told = results(scene.requests[1])
    read = [one for one in told if SECRET in one]
    assert (len(told), len(read), len(set(asked)), len(asked)) == (CALLS, CALLS, CALLS, CALLS)
    assert scene.kinds == []


# ---------------------------------------------------------------- other words


def write(lab: Lab, name: str = "note.txt") -> Any:
    """The call with which the model writes a file."""
    return tool_use("Write", file_path=str(lab.work / name), content="written")


def written(lab: Lab) -> list[str]:
    """The files that were really written."""
    return sorted(path.name for path in lab.work.iterdir() if path.is_file())


DENIAL = {
    "hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": "not in this house",
    }
}


@pytest.mark.longer
@pytest.mark.parametrize(
    ("result", "warned"),
    [
        (Deny("not in this house"), []),
        ({"decision": "block", "reason": "not in this house"}, []),
        (DENIAL, []),
        ({"continue_": False, "stopReason": "not in this house"}, []),
        (False, ["hook_failed"]),
        ({"decision": "deny"}, ["hook_failed"]),
        (ModifyInput({}), ["hook_failed"]),
    ],
    ids=["Deny", "block", "deny", "end", "False", "malformed", "empty input"],
)
def test_a_guard_that_says_no_in_other_words_stops_the_tool(
    lab: Lab, result: Any, warned: list[str]
) -> None:
    script = [[write(lab)], [text("understood")]]
    bidir = BidirOptions(on_pre_tool_use=lambda _: result)
    scene = play(lab, script, bidir, permission_mode="acceptEdits")
    assert (written(lab), scene.kinds) == ([], warned)
    if isinstance(result, dict) and "continue_" not in result and not warned:
        assert "not in this house" in (scene.requests[1].last_tool_result or "")


@pytest.mark.longer
def test_a_guard_judges_the_input_that_an_earlier_hook_has_changed(lab: Lab) -> None:
    seen: list[str] = []

    def redirect(context: PreToolUseContext) -> ModifyInput:
        target = str(lab.work / "elsewhere.txt")
        context.tool_input["content"] = "changed in place, which changes nothing"
        return ModifyInput({"file_path": target, "content": "redirected"})

    def guard(context: PreToolUseContext) -> Block | None:
        seen.append(Path(context.tool_input["file_path"]).name)
        return Block("not there") if len(seen) == 1 else None

    hooks = {"PreToolUse": [Hook(redirect), Hook(guard)]}
    script = [[write(lab, "a.txt")], [write(lab, "b.txt")], [text("done")]]
    scene = play(lab, script, BidirOptions(hooks=hooks), permission_mode="acceptEdits")
    assert seen == ["elsewhere.txt", "elsewhere.txt"]
    assert written(lab) == ["elsewhere.txt"]
    assert (lab.work / "elsewhere.txt").read_text() == "redirected"
    assert "not there" in (scene.requests[1].last_tool_result or "")


# ---------------------------------------------------------------- whose call it is

SENDER: contextvars.ContextVar[str] = contextvars.ContextVar("sender", default="nobody")


@pytest.mark.longer
async def test_callbacks_see_the_context_variables_of_the_code_that_sent_the_prompt(
    lab: Lab,
) -> None:
    seen: list[str] = []

    def note(_: object) -> None:
        seen.append(SENDER.get())

    async def note_async(_: object) -> Allow:
        seen.append(SENDER.get())
        return Allow()

    async def send(session: Session, who: str) -> None:
        SENDER.set(who)
        assert (await (await session.send_user_message("go"))).ok

    script = [[write(lab, "a.txt")], [text("1")], [write(lab, "b.txt")], [text("2")]]
    bidir = BidirOptions(
        on_user_prompt_submit=note, on_pre_tool_use=note, on_can_use_tool=note_async
    )
    SENDER.set("the start")
    async with (
        ScriptedModel(script) as model,
        start_session(lab.cli(model), lab.sdk, bidir) as session,
    ):
        for who in ("anna", "bert"):
            await asyncio.create_task(send(session, who))
    assert seen == ["anna"] * 3 + ["bert"] * 3
