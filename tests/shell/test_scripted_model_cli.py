"""The scripted model and the real CLI: every kind of answer, over plain pipes, without Bridle."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from bridle.testing import (
    Block,
    ModelRequest,
    Reply,
    ScriptedModel,
    ScriptFailure,
    disconnect,
    error,
    rate_limit_headers,
    redacted_thinking,
    refusal,
    repeat,
    stream_error,
    text,
    thinking,
    tool_use,
)
from bridle.testing.pytest_plugin import TEST_CLIS, named_clis

pytestmark = pytest.mark.longer

Json = dict[str, Any]

FLAGS = (
    "--output-format=stream-json",
    "--input-format=stream-json",
    "--verbose",
    "--permission-prompt-tool=stdio",
)
PATIENCE = 60.0
LINE_LIMIT = 1 << 24

# What a developer's shell may hold; `ScriptedModel.env` is laid over it. All made up.
HOSTILE = {
    "ANTHROPIC_AUTH_TOKEN": "made-up",
    "ANTHROPIC_CUSTOM_HEADERS": "x-hostile: 1",
    "ANTHROPIC_MODEL": "hostile-model",
    "CLAUDE_CODE_EXTRA_BODY": '{"temperature": 7}',
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "7",
    "CLAUDE_CODE_OAUTH_TOKEN": "made-up",
    "CLAUDE_CODE_USE_BEDROCK": "1",
    "CLAUDE_CODE_USE_FOUNDRY": "1",
    "CLAUDE_CODE_USE_VERTEX": "1",
    "ANTHROPIC_UNIX_SOCKET": "/nowhere",
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9"),
    **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9"),
    "NO_PROXY": "",
}

CLIS = [pytest.param(path, id=f"cli{number}") for number, path in enumerate(named_clis())] or [
    pytest.param(
        Path(), id="none", marks=pytest.mark.skip(f"set {TEST_CLIS} to the paths of real CLIs")
    )
]
with_each_cli = pytest.mark.parametrize("cli", CLIS)


class Cli:
    """A CLI on pipes: prompts in, lines out; allows every tool, serves `calc` with `add`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._news = asyncio.Event()
        self._seen = 0
        self.lines: list[Json] = []

    def write(self, frame: Json) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(frame).encode() + b"\n")

    def prompt(self, words: str) -> None:
        self.write({"type": "user", "message": {"role": "user", "content": words}})

    def ask(self, request_id: str, subtype: str, **fields: object) -> None:
        request = {"subtype": subtype, **fields}
        self.write({"type": "control_request", "request_id": request_id, "request": request})

    async def read(self) -> None:
        """Take in lines, and answer the questions among them, to the end."""
        assert self._process.stdout is not None
        while raw := await self._process.stdout.readline():
            line: Json = json.loads(raw)
            if line["type"] == "control_request":
                self._answer(line)
            self.lines.append(line)
            self._news.set()

    async def until(self, fits: Callable[[Json], bool]) -> Json:
        """The next line that fits."""
        while True:
            for line in self.lines[self._seen :]:
                self._seen += 1
                if fits(line):
                    return line
            self._news.clear()
            await self._news.wait()

    async def result(self) -> Json:
        return await self.until(lambda line: line["type"] == "result")

    async def turn(self, words: str) -> Json:
        self.prompt(words)
        return await self.result()

    def said(self, kind: str) -> list[Json]:
        """The assistant's blocks of a type, in order."""
        return [
            block
            for line in self.lines
            if line["type"] == "assistant"
            for block in line["message"]["content"]
            if block["type"] == kind
        ]

    def _answer(self, line: Json) -> None:
        request = line["request"]
        if request["subtype"] == "mcp_message":
            answer: Json = {"mcp_response": calculator(request["message"])}
        else:
            answer = {"behavior": "allow", "updatedInput": request.get("input")}
        body = {"subtype": "success", "request_id": line["request_id"], "response": answer}
        self.write({"type": "control_response", "response": body})


def calculator(message: Json) -> Json:
    results: dict[str, Callable[[], Json]] = {
        "initialize": lambda: {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "calc", "version": "1"},
        },
        "tools/list": lambda: {
            "tools": [{"name": "add", "description": "Add.", "inputSchema": {"type": "object"}}]
        },
        "tools/call": lambda: {
            "content": [{"type": "text", "text": str(sum(message["params"]["arguments"].values()))}]
        },
    }
    result = results.get(message["method"], dict)()
    return {"jsonrpc": "2.0", "id": message.get("id", 0), "result": result}


@contextlib.asynccontextmanager
async def running(path: Path, model: ScriptedModel, *flags: str) -> AsyncIterator[Cli]:
    """A CLI that has been greeted; reaped in the end, whatever happened."""
    process = await asyncio.create_subprocess_exec(
        path,
        *FLAGS,
        *flags,
        env={"PATH": os.environ["PATH"], **HOSTILE, **model.env},
        cwd=model.home,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=LINE_LIMIT,
    )
    cli = Cli(process)
    reading = asyncio.ensure_future(cli.read())
    try:
        cli.ask("greeting", "initialize", sdkMcpServers=["calc"])
        await cli.until(lambda line: line["type"] == "control_response")
        yield cli
        assert process.stdin is not None
        process.stdin.close()
        await reading
        await process.wait()
    finally:
        if process.returncode is None:
            # Not `process.kill`: it would look first whether the process has ended, and reap it
            # before the loop does.
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()
        await reading


# ---------------------------------------------------------------- what the model says


@with_each_cli
async def test_a_text_arrives_and_the_request_passes_every_check(cli: Path) -> None:
    async with ScriptedModel([[text("Hello there", chunks=3)]]) as model:
        async with running(cli, model) as session:
            result = await session.turn("Say hello")
        assert result["result"] == "Hello there"
        [request] = model.requests
        assert request.last_user_text == "Say hello"
        assert request.stream
        assert request.agent_id is None
        assert "Bash" in request.tools
        assert "Claude" in request.system_text
        assert request.headers["x-api-key"] == "[redacted]"
        assert model.rejected == []


@with_each_cli
async def test_nothing_inherited_gets_through(cli: Path) -> None:
    """The CLI starts with every hostile variable set; the model's environment masks them all."""
    async with ScriptedModel([[text("hi")]]) as model:
        async with running(cli, model) as session:
            await session.turn("x")
        [request] = model.requests
        assert "authorization" not in request.headers
        assert "x-hostile" not in request.headers
        assert request.model.startswith("claude-")
        assert request.max_tokens != 7
        assert "temperature" not in request.raw


@pytest.mark.longer
@with_each_cli
async def test_the_settings_outrank_those_of_a_project(cli: Path) -> None:
    async with ScriptedModel([[text("mine")]]) as model:
        project = model.home / ".claude"  # the CLI works in its home
        project.mkdir()
        elsewhere = {"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}}
        (project / "settings.local.json").write_text(json.dumps(elsewhere))
        chosen = model.home / "chosen.json"
        chosen.write_text(json.dumps(model.settings))
        async with running(cli, model) as session:
            assert (await session.turn("x"))["is_error"]
        async with running(cli, model, f"--settings={chosen}") as session:
            assert (await session.turn("x"))["result"] == "mine"


@with_each_cli
async def test_a_tool_is_called_and_its_result_comes_back(cli: Path) -> None:
    script = [[tool_use("mcp__calc__add", a=1, b=2)], [text("3")]]
    async with ScriptedModel(script) as model:
        async with running(cli, model) as session:
            result = await session.turn("add")
        assert result["result"] == "3"
        assert model.requests[0].last_tool_result is None
        assert model.requests[1].last_tool_result == "3"
        assert [call["id"] for call in session.said("tool_use")] == list(
            model.requests[1].tool_results
        )


@with_each_cli
async def test_tools_called_in_one_turn_are_all_answered(cli: Path) -> None:
    calls = [text("Let me see."), *(tool_use("mcp__calc__add", a=n, b=n) for n in range(3))]
    async with ScriptedModel([calls, [text("done")]]) as model:
        async with running(cli, model) as session:
            await session.turn("add")
        assert list(model.requests[1].tool_results.values()) == ["0", "2", "4"]


@with_each_cli
async def test_thinking_arrives_with_its_signature_and_is_sent_back(cli: Path) -> None:
    thought = [thinking("Hm.", "c2ln"), redacted_thinking(), tool_use("mcp__calc__add", a=1)]
    async with ScriptedModel([thought, [text("done")]]) as model:
        async with running(cli, model) as session:
            result = await session.turn("think")
        assert result["result"] == "done"
        [block] = session.said("thinking")
        assert (block["thinking"], block["signature"]) == ("Hm.", "c2ln")
        kinds = [
            block["type"]
            for message in model.requests[1].messages
            if message["role"] == "assistant"
            for block in message["content"]  # type: ignore[attr-defined]  # JSON
        ]
        assert kinds == ["thinking", "redacted_thinking", "tool_use"]


@with_each_cli
async def test_deltas_are_streamed_in_the_requested_sizes(cli: Path) -> None:
    async with ScriptedModel([[text("abc", chunks=["a", "bc"])]]) as model:
        async with running(cli, model, "--include-partial-messages") as session:
            await session.turn("x")
        deltas = [
            line["event"]["delta"]["text"]
            for line in session.lines
            if line["type"] == "stream_event" and line["event"]["type"] == "content_block_delta"
        ]
        assert deltas == ["a", "bc"]


@with_each_cli
async def test_usage_reaches_the_result(cli: Path) -> None:
    reply = Reply(blocks=(text("x"),), usage={"input_tokens": 1234, "output_tokens": 56})
    async with ScriptedModel([reply]) as model, running(cli, model) as session:
        result = await session.turn("x")
        assert result["usage"]["input_tokens"] == 1234
        assert result["usage"]["output_tokens"] == 56


@pytest.mark.longer
@with_each_cli
async def test_a_subagent_takes_a_turn_and_can_be_distinguished(cli: Path) -> None:
    call = tool_use(
        "Agent", description="d", prompt="look", run_in_background=False,
        subagent_type="general-purpose",
    )  # fmt: skip
    async with ScriptedModel([[call], [text("seen")], [text("done")]]) as model:
        async with running(cli, model) as session:
            result = await session.turn("delegate")
        assert result["result"] == "done"
        main, sub, again = model.requests
        assert sub.agent_id is not None
        assert sub.last_user_text == "look"
        assert (main.agent_id, again.agent_id) == (None, None)
        assert "seen" in (again.last_tool_result or "")


# ---------------------------------------------------------------- when it goes wrong


@pytest.mark.longer(after=2)
@with_each_cli
@pytest.mark.parametrize("status", [401, 403, 413, 429, 500, 529])
async def test_an_error_takes_one_turn_and_ends_the_turn_of_the_cli(cli: Path, status: int) -> None:
    async with ScriptedModel([error(status, message="scripted woe")]) as model:
        async with running(cli, model) as session:
            result = await session.turn("x")
        assert result["is_error"]
        assert result["api_error_status"] == status
        assert len(model.requests) == 1


@pytest.mark.longer(after=1)
@with_each_cli
@pytest.mark.parametrize("status", [400, 404])
async def test_an_error_the_cli_tries_to_get_around_may_be_repeated(cli: Path, status: int) -> None:
    async with ScriptedModel([repeat(error(status))]) as model:
        async with running(cli, model) as session:
            result = await session.turn("x")
        assert result["api_error_status"] == status


@with_each_cli
async def test_the_cli_tries_again_as_often_as_it_may(cli: Path) -> None:
    # Without `retry-after` the CLI would wait for half a second and more.
    busy = error(529, headers={"retry-after": "0"})
    async with ScriptedModel([busy, [text("at last")]], retries=1) as model:
        async with running(cli, model) as session:
            result = await session.turn("x")
        assert result["result"] == "at last"
        assert len(model.requests) == 2


@pytest.mark.longer(after=1)
@with_each_cli
@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(disconnect(), id="at-once"),
        pytest.param(Reply(blocks=(text("abcd"),), cut_after=4), id="mid-stream"),
        pytest.param(stream_error(blocks=[text("abcd")]), id="error-event"),
    ],
)
async def test_a_broken_answer_ends_in_an_error_when_it_stays_broken(
    cli: Path, broken: Reply
) -> None:
    async with ScriptedModel([repeat(broken)]) as model:
        async with running(cli, model) as session:
            result = await session.turn("x")
        assert result["is_error"]


@pytest.mark.longer
@with_each_cli
async def test_the_stop_reason_reports_a_refusal_and_a_full_answer(cli: Path) -> None:
    full = Reply(blocks=(text("cut sho"),), stop_reason="max_tokens")
    stops: list[Reply] = [refusal("No."), full]
    for stop in stops:
        async with ScriptedModel([repeat(stop)]) as model:
            async with running(cli, model, "--include-partial-messages") as session:
                await session.turn("x")
            reasons = {
                line["event"]["delta"]["stop_reason"]
                for line in session.lines
                if line["type"] == "stream_event" and line["event"]["type"] == "message_delta"
            }
            assert reasons == {stop.stop_reason}


@pytest.mark.longer
@with_each_cli
@pytest.mark.parametrize("said", ["No.", ""])
async def test_a_newer_cli_asks_once_more_after_a_refusal(cli: Path, said: str) -> None:
    async with ScriptedModel([repeat(refusal(said))]) as model:
        async with running(cli, model) as session:
            await session.turn("x")
        assert len(model.requests) == (1 if "2.1.197" in str(cli) else 2)


@pytest.mark.longer
@with_each_cli
async def test_a_request_tells_a_tool_result_from_a_prompt(cli: Path) -> None:
    def answer(request: ModelRequest) -> list[Block]:
        if request.answers_tool_call:
            return [text("done")]
        return [tool_use("Read", file_path="/nothing/there")]

    async with ScriptedModel(answer) as model:
        async with running(cli, model) as session:
            await session.turn("one")
            await session.turn("two")
        asked = [request.answers_tool_call for request in model.requests]
        assert asked == [False, True, False, True]


@with_each_cli
async def test_a_request_beyond_the_script_fails_the_cli_and_the_test(cli: Path) -> None:
    results: list[Json] = []

    async def overrun() -> None:
        async with ScriptedModel([[text("one")]]) as model, running(cli, model) as session:
            results.append(await session.turn("first"))
            results.append(await session.turn("second"))

    with pytest.raises(ScriptFailure, match=r"no turn for request 1.*'second'"):
        await overrun()
    assert [result["is_error"] for result in results] == [False, True]
    assert "ScriptedModel: the script has no turn" in results[1]["result"]


@with_each_cli
async def test_limits_of_a_subscriber_are_reported(cli: Path) -> None:
    limits = rate_limit_headers("allowed_warning", utilization=0.95, threshold=0.9)
    reply = Reply(blocks=(text("hi"),), headers=limits)
    async with ScriptedModel([reply], login="oauth") as model:
        async with running(cli, model) as session:
            await session.turn("x")
        [event] = [line for line in session.lines if line["type"] == "rate_limit_event"]
        assert event["rate_limit_info"]["status"] == "allowed_warning"
        assert event["rate_limit_info"]["rateLimitType"] == "five_hour"
        assert "x-api-key" not in model.requests[0].headers


# ---------------------------------------------------------------- time under control


@with_each_cli
async def test_a_held_stream_waits_for_its_release(cli: Path) -> None:
    reply = Reply(blocks=(text("ab", chunks=2),), hold=True, hold_after=4)
    async with ScriptedModel([reply]) as model:
        async with running(cli, model, "--include-partial-messages") as session:
            session.prompt("x")
            await model.wait_for_hold()
            first = await session.until(lambda line: "delta" in line.get("event", {}))
            assert first["event"]["delta"]["text"] == "a"
            model.release()
            result = await session.result()
        assert result["result"] == "ab"


@with_each_cli
async def test_an_interrupted_stream_does_not_keep_the_next_from_its_release(cli: Path) -> None:
    held = Reply(blocks=(text("never"),), hold=True, hold_after=4)
    again = Reply(blocks=(text("after"),), hold=True)
    async with ScriptedModel([held, again]) as model:
        async with running(cli, model) as session:
            session.prompt("x")
            await model.wait_for_hold()
            session.ask("stop", "interrupt")
            await session.result()
            session.prompt("y")
            await model.wait_for_hold(2)
            model.release()
            result = await session.result()
        assert result["result"] == "after"


# ---------------------------------------------------------------- requests beside the conversation


@with_each_cli
async def test_requests_beside_the_conversation_take_no_turn(cli: Path) -> None:
    """Titles, token counts and (newer CLIs) a probe for an unknown model."""

    def answered(request_id: str) -> Callable[[Json], bool]:
        return lambda line: line.get("response", {}).get("request_id") == request_id

    async with ScriptedModel([[text("only turn")]]) as model:
        async with running(cli, model) as session:
            session.ask("title", "generate_session_title", description="fix the bug")
            title = await session.until(answered("title"))
            assert title["response"]["response"]["title"] == "Scripted session"
            session.ask("usage", "get_context_usage", detail="full")
            await session.until(answered("usage"))
            session.ask("model", "set_model", model="claude-unheard-of")
            await session.until(answered("model"))
            result = await session.turn("x")
        assert result["result"] == "only turn"
        assert len(model.requests) == 1
        paths = {request.path for request in model.side_requests}
        assert paths >= {"/v1/messages", "/v1/messages/count_tokens"}


@pytest.mark.longer
@with_each_cli
async def test_a_conversation_of_many_turns_passes_every_check(cli: Path) -> None:
    """Text, tools, thinking and prompts in turn: whatever the CLI makes of them is accepted."""

    def chat(turn: int) -> list[list[Block]]:
        call = tool_use("Bash", command=f"echo {turn}", description="d")
        return [[thinking("Hm."), text("Let me."), call], [text(f"answer {turn}")]]

    script = [reply for turn in range(3) for reply in chat(turn)]
    for flags in ([], ["--model=claude-sonnet-4-5"], ["--model=claude-haiku-4-5"]):
        async with ScriptedModel(script) as model:
            async with running(cli, model, *flags) as session:
                for turn in range(3):
                    result = await session.turn(f"prompt {turn}")
                    assert result["result"] == f"answer {turn}"
            assert model.requests[-1].last_tool_result == "2"


async def test_the_driver_leaves_no_process_behind(tmp_path: Path) -> None:
    """The helper of this file is held to the rule it helps to test."""
    pid = tmp_path / "pid"
    fake = tmp_path / "fake"
    fake.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"open({str(pid)!r}, 'w').write(str(os.getpid()))\n"
        "sys.stdin.readline()\n"
        "print(json.dumps({'type': 'control_response', 'response': {}}), flush=True)\n"
        "sys.stdin.read()\n"
    )
    fake.chmod(0o755)
    async with ScriptedModel([]) as model, running(fake, model):
        pass
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
