"""Queries on the real CLI: everything goes in on stdin, and everything that comes out is heard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.support.processes import is_alive, run, until

from bridle import (
    AssistantMessage,
    CliOptions,
    Message,
    ResultMessage,
    TextBlock,
    query,
)
from bridle.testing import (
    ModelRequest,
    ScriptedModel,
    text,
    tool_use,
)

pytestmark = pytest.mark.longer

if TYPE_CHECKING:
    from tests.real.conftest import Lab

    from bridle.testing.script import Script


class Heard(NamedTuple):
    """What a query said, what it warned of, and what the model was asked."""

    messages: list[Message]
    warnings: list[str]
    requests: list[ModelRequest]

    @property
    def results(self) -> list[ResultMessage]:
        """The results among the messages."""
        return [message for message in self.messages if isinstance(message, ResultMessage)]

    @property
    def said(self) -> list[str]:
        """What the model, or the CLI in its place, said."""
        spoken = [message for message in self.messages if isinstance(message, AssistantMessage)]
        return [message.text for message in spoken if message.text]


def hear(lab: Lab, script: Script, prompt: Any = "go", **options: object) -> Heard:
    """Ask, and hear it to the end; no process is left then."""

    async def main() -> Heard:
        async with ScriptedModel(script) as model:
            stream = query(prompt, lab.cli(model, **options), lab.sdk)
            messages = [message async for message in stream]
            assert not is_alive(stream.pid or 0)
            warnings = [str(warning.kind) for warning in stream.warnings]
            return Heard(messages, warnings, model.requests)

    return run(main)


def outer_text(request: ModelRequest) -> str:
    """The last message of a request, as text."""
    return str(request.messages[-1]["content"])


# ---------------------------------------------------------------- in order


@pytest.mark.longer
@pytest.mark.requirement("S044")
def test_a_prompt_is_answered_with_messages_and_a_result(lab: Lab) -> None:
    """S003, S012."""
    heard = hear(lab, [[text("Hi there.")]], "Say hi, once.")
    assert (heard.said, heard.warnings) == (["Hi there."], [])
    (result,) = heard.results
    assert (result.subtype, result.result, result.is_error) == ("success", "Hi there.", False)
    assert result.raw["type"] == "result"
    assert "Say hi, once." in outer_text(heard.requests[0])
    assert not [message for message in heard.messages if message.type.startswith("control")]


def test_blocks_reach_the_model(lab: Lab) -> None:
    heard = hear(lab, [[text("Seen.")]], [TextBlock("part one"), TextBlock("part two")])
    assert [result.result for result in heard.results] == ["Seen."]
    assert "part one" in outer_text(heard.requests[0])
    assert "part two" in outer_text(heard.requests[0])


@pytest.mark.longer
def test_tools_run_if_they_are_allowed_and_are_denied_if_not(lab: Lab) -> None:
    """Nobody is asked: what was not allowed beforehand does not happen."""
    command = {"command": "touch made.txt", "description": "make a file"}
    script = [[tool_use("Bash", **command)], [text("done")]]
    heard = hear(lab, script)
    assert [len(result.permission_denials) for result in heard.results] == [1]
    assert (heard.warnings, (lab.work / "made.txt").exists()) == ([], False)
    heard = hear(lab, script, allowed_tools=["Bash(touch made.txt)"])
    assert [len(result.permission_denials) for result in heard.results] == [0]
    assert (lab.work / "made.txt").exists()


@pytest.mark.requirement("S089")
async def test_prompts_stream_in_and_each_gets_its_answer(lab: Lab) -> None:
    """R409."""
    answered = asyncio.Event()

    async def prompts() -> AsyncIterator[str | dict[str, object]]:
        yield "first"
        await answered.wait()
        yield {"type": "user", "message": {"role": "user", "content": "second"}}

    results: list[str | None] = []
    async with ScriptedModel([[text("to the first")], [text("to the second")]]) as model:
        async for message in query(prompts(), lab.cli(model), lab.sdk):
            if isinstance(message, ResultMessage):
                results.append(message.result)
                answered.set()
        assert results == ["to the first", "to the second"]
        assert ["first" in outer_text(model.requests[0]), len(model.requests)] == [True, 2]
        assert "second" in outer_text(model.requests[1])


# ---------------------------------------------------------------- not in order


async def test_an_option_the_cli_does_not_know_is_an_error(lab: Lab) -> None:
    """S027."""
    async with ScriptedModel([]) as model:
        cli: CliOptions = lab.cli(model, extra_args=["--no-such-option"])
        stream = query("go", cli, lab.sdk)
        with pytest.raises(Exception, match="--no-such-option") as caught:
            await anext(stream)
        assert type(caught.value).__name__ == "UnsupportedCliVersionError"
        assert not is_alive(stream.pid or 0)


# ---------------------------------------------------------------- leaving


@pytest.mark.longer
async def test_nothing_of_the_prompt_is_in_the_process_list_and_a_break_leaves_no_process(
    lab: Lab,
) -> None:
    """S013: the prompt, the schema and the agents are nobody else's business."""
    calls = [tool_use("Bash", command="tail -f /dev/null", description="wait")]
    options: dict[str, object] = {
        "allowed_tools": ["Bash"],
        "system_prompt": "secret-system",
        "json_schema": {"type": "object", "description": "secret-schema"},
    }
    async with ScriptedModel([calls]) as model:
        stream = query("secret-prompt", lab.cli(model, **options), lab.sdk)
        async for message in stream:
            if isinstance(message, AssistantMessage):
                break
        pid = stream.pid
        assert pid is not None
        await until(lambda: waiting_in(lab.work))
        assert "secret" not in Path(f"/proc/{pid}/cmdline").read_text("utf-8")
        del stream
        await until(lambda: not is_alive(pid))
        await until(lambda: not waiting_in(lab.work))


def waiting_in(work: Path) -> list[int]:
    """What the tool call has started in this directory, and still runs."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and is_alive(int(entry.name)):
            try:
                words = (entry / "cmdline").read_bytes()
                is_here = (entry / "cwd").readlink() == work
            except OSError:
                continue
            if is_here and words.startswith(b"tail\0"):
                found.append(int(entry.name))
    return found
