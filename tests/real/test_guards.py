"""A guard stops what it is asked about on the real CLI, however many calls come at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.scenes import play

from bridle import Allow, BidirOptions, Block, CanUseToolContext, PreToolUseContext
from bridle.testing import ModelRequest, text, tool_use

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
