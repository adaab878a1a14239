"""What the page about moving says about the official SDK, shown on the package itself.

`SHOWN` lists the rows of the page's two tables of differences, each with the test or the program
(`programs/`, which the suite runs on the official SDK, too) that shows its cell.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import claude_agent_sdk as official
import mcp.server
import mcp.types
import pydantic
import pytest
from claude_agent_sdk._internal.query import Query
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport
from tests.support.line_cli import line_cli
from tests.support.official import (
    LEAVES_TRANSPORTS,
    ask,
    ask_small_cli,
    call_tool,
    connected,
    place,
)
from tests.support.processes import is_alive, until
from tests.support.sdk_runs import OLDER_CLI, newest_cli

from bridle.testing import Block, error, repeat, text, tool_use

REPOSITORY = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.longer,  # the official SDK is the subject, not Bridle
    LEAVES_TRANSPORTS,
    pytest.mark.skipif(newest_cli() is None, reason="no CLI: `make setup` installs it"),
]
__all__ = ["place"]  # a fixture

BASH = tool_use("Bash", command="touch ran")


def client_of(place: Path, behaviour: str = "", **options: Any) -> Any:
    given = official.ClaudeAgentOptions(cli_path=line_cli(place, behaviour), **options)
    return official.ClaudeSDKClient(given)


def pids() -> list[int]:
    return [int(line) for line in Path("pids").read_text().split()]


async def until_exists(name: str) -> None:
    await until(lambda: Path(name).exists())


def hooks(event: str, *callbacks: Any, **options: Any) -> dict[str, Any]:
    return {event: [official.HookMatcher(hooks=[one], **options) for one in callbacks]}


async def messages_of(call: Block, **options: Any) -> list[Any]:
    async with connected([[call], [text("done")]], allowed_tools=["Bash"], **options) as (
        client,
        _,
    ):
        return await ask(client)


def informational(messages: list[Any]) -> list[str]:
    return [
        str(message.data)
        for message in messages
        if isinstance(message, official.SystemMessage) and message.subtype == "informational"
    ]


# ---------------------------------------------------------------- the process and its lines


async def test_a_request_stays_open_when_the_cli_has_exited(place: Path) -> None:
    async with client_of(place, "if kind == 'interrupt': sys.exit(0)") as client:
        asking = asyncio.create_task(client.interrupt())
        await client._query._read_task.wait()
        assert not asking.done()
        asking.cancel()
    assert Query._send_control_request.__defaults__ == (60.0,)


async def test_a_loop_goes_on_when_the_cli_closes_its_output(place: Path) -> None:
    behaviour = """\
if kind == 'user':
    import signal
    result()
    os.close(1)
    open('closed', 'w').close()
    signal.pause()"""
    asking = asyncio.create_task(ask_small_cli(place, behaviour))
    await until_exists("closed")
    done, _ = await asyncio.wait([asking], timeout=0.5)
    assert not done
    os.kill(pids()[0], signal.SIGKILL)
    with contextlib.suppress(official.ClaudeSDKError):
        await asking


def test_an_exit_without_a_result_ends_the_loop(place: Path) -> None:
    assert asyncio.run(ask_small_cli(place, "if kind == 'user': sys.exit(0)")) == []


def test_any_item_is_sent_as_a_prompt(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    keep = "if kind not in ('initialize', 'user'): open('sent', 'a').write(line); continue"

    async def prompts() -> AsyncIterator[Any]:
        yield {"type": "not_a_prompt"}
        yield {"type": "user", "message": object()}
        raise AssertionError("the input is closed")

    with caplog.at_level(logging.ERROR):
        assert asyncio.run(ask_small_cli(place, keep, prompts())) == []
    assert json.loads(Path("sent").read_text()) == {"type": "not_a_prompt"}
    assert "closing stdin" in caplog.text


async def test_a_list_of_prompts_waits(place: Path) -> None:
    prompt = {"type": "user", "message": {"role": "user", "content": "go"}}
    asking = asyncio.create_task(ask_small_cli(place, "", [prompt]))
    await until_exists("pids")
    done, _ = await asyncio.wait([asking], timeout=0.5)
    assert not done
    assert not Path("prompts").exists()
    os.kill(pids()[0], signal.SIGKILL)
    with contextlib.suppress(official.ClaudeSDKError):
        await asking


@pytest.mark.parametrize(
    "line",
    [
        "say(type='system', subtype='large', text='x' * (2 << 20))",
        'print(\'{"type": "assistant", broken}\', flush=True)',
    ],
    ids=["too long", "not JSON"],
)
def test_a_line_that_is_too_long_or_not_json_ends_the_session(place: Path, line: str) -> None:
    with pytest.raises(official.CLIJSONDecodeError):
        asyncio.run(ask_small_cli(place, f"if kind == 'user': {line}"))


def test_bytes_that_are_not_utf_8_end_the_session(place: Path) -> None:
    with pytest.raises(UnicodeDecodeError):
        asyncio.run(ask_small_cli(place, r"if kind == 'user': os.write(1, b'{\xff}\n')"))


async def test_a_second_connect_leaves_the_first_cli_running(place: Path) -> None:
    client = client_of(place)
    await client.connect()
    first = client._query
    await client.connect()
    assert [is_alive(pid) for pid in pids()] == [True, True]
    await client.disconnect()
    await first.close()
    first.close_receive_stream()


async def test_a_loop_that_cancels_its_task_gets_no_further_message(place: Path) -> None:
    behaviour = (
        "if kind == 'user':\n    for number in range(3): say(type='system', subtype='status')"
    )
    seen: list[Any] = []
    task = asyncio.current_task()
    assert task is not None
    async with client_of(place, behaviour) as client:
        await client.query("go")
        await until(lambda: client._query._message_send.statistics().current_buffer_used >= 4)
        with contextlib.suppress(asyncio.CancelledError):
            async for message in client.receive_response():
                seen.append(message)
                task.cancel()
        task.uncancel()
    assert len(seen) == 1


KILLED = """
import asyncio, os, signal
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient

async def main():
    await ClaudeSDKClient(ClaudeAgentOptions(cli_path="./claude")).connect()
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def test_a_cli_that_ignores_the_end_of_its_input_outlives_a_killed_program(place: Path) -> None:
    stay = "import atexit, signal; atexit.register(signal.pause)"
    line_cli(place, stay)
    subprocess.run([sys.executable, "-c", KILLED], cwd=place, check=False)
    [pid] = pids()
    try:
        assert is_alive(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


async def test_a_control_request_that_fails_raises_a_plain_exception(place: Path) -> None:
    succeed = "if kind == 'set_model': answer(asked, subtype='success', response={}); continue"
    async with client_of(place, succeed) as client:
        assert await client.set_model("x") is None
        with pytest.raises(Exception, match="not today") as caught:
            await client.interrupt()
        assert type(caught.value) is Exception


def test_the_stderr_of_a_process_error_is_a_fixed_text(place: Path) -> None:
    with pytest.raises(official.ProcessError) as caught:
        asyncio.run(ask_small_cli(place, "if kind == 'user': sys.exit('out of hay')"))
    assert caught.value.stderr == "Check stderr output for details"


def test_the_cli_writes_to_the_stderr_of_the_program(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(ask_small_cli(place, "if kind == 'user': print('hay', file=sys.stderr)"))
    assert "hay" in capfd.readouterr().err


def test_a_prompt_has_no_id_and_the_system_prompt_is_empty(place: Path) -> None:
    keep = "if kind == 'user': open('sent', 'w').write(json.dumps([sys.argv, asked]))"
    asyncio.run(ask_small_cli(place, keep))
    argv, prompt = json.loads(Path("sent").read_text())
    assert "uuid" not in prompt
    assert argv[argv.index("--system-prompt") + 1] == ""


def test_the_cli_of_the_package_is_started() -> None:
    transport = SubprocessCLITransport(prompt="go", options=official.ClaudeAgentOptions())
    assert Path(transport._find_cli()).parent == Path(official.__file__).parent / "_bundled"


# ---------------------------------------------------------------- callbacks


def test_a_hook_that_raises_is_reported_by_the_cli(place: Path) -> None:
    async def fail(*_: object) -> Any:
        raise ValueError("oops")

    messages = asyncio.run(messages_of(BASH, hooks=hooks("PreToolUse", fail)))
    assert "PreToolUse" in str(informational(messages))
    assert Path("ran").exists()


def test_an_unknown_on_failure_is_read_as_block_and_reported(place: Path) -> None:
    async def fail(*_: object) -> Any:
        raise ValueError("oops")

    given = hooks("PreToolUse", fail, on_failure="stop")
    assert informational(asyncio.run(messages_of(BASH, hooks=given)))
    assert not Path("ran").exists()


@pytest.mark.skipif(not OLDER_CLI.exists(), reason="no CLI 2.1.197: `make setup` fetches it")
def test_on_failure_needs_a_cli_that_supports_it(place: Path) -> None:
    async def hook(*_: object) -> Any:
        return {}

    given = hooks("PreToolUse", hook, on_failure="block")
    with pytest.raises(official.CLIConnectionError):
        asyncio.run(messages_of(BASH, hooks=given, cli_path=OLDER_CLI))


async def test_continue_false_lets_the_tool_run_and_ends_the_turn(place: Path) -> None:
    async def end(*_: object) -> Any:
        return {"continue_": False, "stopReason": "enough"}

    given = hooks("PreToolUse", end)
    script = [[BASH], [text("done")]]
    async with connected(script, allowed_tools=["Bash"], hooks=given) as (client, model):
        await ask(client)
        assert len(model.requests) == 1
    assert Path("ran").exists()


async def test_a_deferred_call_is_discarded_or_runs_without_a_decision(place: Path) -> None:
    async def defer(*_: object) -> Any:
        decision = {"hookEventName": "PreToolUse", "permissionDecision": "defer"}
        return {"hookSpecificOutput": decision}

    given: dict[str, Any] = {"allowed_tools": ["Bash"], "hooks": hooks("PreToolUse", defer)}
    script: list[Any] = [[BASH], [text("done")], [BASH], repeat([text("done")])]
    async with connected(script, **given) as (client, model):
        *_, deferred = await ask(client)
        assert deferred.deferred_tool_use.name == "Bash"
        *_, result = await ask(client, "and now?")
        assert (result.result, result.deferred_tool_use) == ("done", None)
        assert not Path("ran").exists()
        *_, deferred = await ask(client, "again")
        await client.disconnect()
        resumed = official.ClaudeAgentOptions(
            env=model.env,
            setting_sources=[],
            allowed_tools=["Bash"],
            resume=deferred.session_id,
        )
        async for _ in official.query(prompt="more", options=resumed):
            pass
    assert Path("ran").exists()


async def test_a_settings_file_chooses_the_mode_beside_a_permission_callback(place: Path) -> None:
    asked: list[str] = []

    async def decide(name: str, *_: object) -> Any:
        asked.append(name)
        return official.PermissionResultDeny(message="no")

    (place / ".claude").mkdir()
    settings = {"permissions": {"defaultMode": "acceptEdits"}}
    (place / ".claude/settings.json").write_text(json.dumps(settings))
    call = tool_use("Write", file_path=str(place / "made"), content="x")
    options = {"setting_sources": ["project"], "can_use_tool": decide}
    script = [[call], [text("done")]]
    async with connected(script, **options) as (client, _):
        init = (await ask(client))[0]
    assert init.data["permissionMode"] == "acceptEdits"
    assert (asked, (place / "made").exists()) == ([], True)


async def test_a_hook_without_a_tool_gets_an_id_and_a_dict_and_no_signal(place: Path) -> None:
    seen: list[Any] = []

    async def hook(*arguments: Any) -> Any:
        seen.append(arguments)
        return {}

    async with connected([[text("hi")]], hooks=hooks("UserPromptSubmit", hook)) as (client, _):
        await ask(client)
    [(given, tool_use_id, context)] = seen
    assert isinstance(given, dict)
    assert isinstance(tool_use_id, str)
    assert context["signal"] is None


async def test_matchers_of_one_event_run_at_the_same_time(place: Path) -> None:
    both = asyncio.Barrier(2)

    async def wait(*_: object) -> Any:
        await both.wait()
        return {}

    given = hooks("UserPromptSubmit", wait, wait)
    async with connected([[text("hi")]], hooks=given) as (client, _):
        await ask(client)


@pytest.mark.parametrize("fails", [True, False], ids=["raises", "no permission result"])
def test_the_model_reads_why_a_permission_callback_failed(place: Path, fails: bool) -> None:
    async def decide(*_: object) -> Any:
        if fails:
            raise ValueError("the reason")
        return "the reason"

    said = asyncio.run(call_tool(BASH, can_use_tool=decide))
    assert ("the reason" if fails else "PermissionResult") in str(said)


# ---------------------------------------------------------------- tools, options, sessions


def test_tools_are_objects_of_the_mcp_package() -> None:
    server = official.create_sdk_mcp_server("s")
    assert isinstance(server["instance"], mcp.server.Server)
    assert issubclass(official.ToolAnnotations, mcp.types.ToolAnnotations)
    assert issubclass(official.ToolAnnotations, pydantic.BaseModel)


def test_the_result_that_the_conversation_continues_from_is_the_last_one(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(place))
    session, here = "11111111-1111-4111-8111-111111111111", str(place)
    talk: list[tuple[str, str | None, str, Any]] = [
        ("u1", None, "user", "go"),
        ("a1", "u1", "assistant", [{"type": "tool_use", "id": "t1", "name": "A", "input": {}}]),
        ("a2", "a1", "assistant", [{"type": "tool_use", "id": "t2", "name": "A", "input": {}}]),
        ("r1", "a1", "user", [{"type": "tool_result", "tool_use_id": "t1", "content": "1"}]),
        ("r2", "a2", "user", [{"type": "tool_result", "tool_use_id": "t2", "content": "2"}]),
        ("a3", "r1", "assistant", [{"type": "text", "text": "done"}]),
    ]
    lines = [
        {
            "uuid": uuid,
            "parentUuid": parent,
            "type": role,
            "sessionId": session,
            "message": {"role": role, "content": content, "id": "m2" if uuid == "a3" else "m1"},
        }
        for uuid, parent, role, content in talk
    ]
    project = place / "projects" / official.project_key_for_directory(here)
    project.mkdir(parents=True)
    saved = "".join(json.dumps(line) + "\n" for line in lines)
    (project / f"{session}.jsonl").write_text(saved, "utf-8")
    found = [one.uuid for one in official.get_session_messages(session, here)]
    assert found == ["u1", "a1", "a2", "r2", "r1", "a3"]


def test_options_are_mutable_and_not_checked() -> None:
    options = official.ClaudeAgentOptions(max_turns="many")  # type: ignore[arg-type]  # not checked
    options.model = "other"
    assert options.model == "other"


async def test_a_failed_api_call_has_the_subtype_success(place: Path) -> None:
    async with connected([error(401)]) as (client, _):
        *_, result = await ask(client)
        assert (result.subtype, result.is_error) == ("success", True)


def test_a_title_is_not_looked_up_in_the_store(place: Path) -> None:
    asked: list[Any] = []

    class Store(official.InMemorySessionStore):
        async def load(self, key: Any) -> Any:
            asked.append(key)
            return None

    argv = "if kind == 'user': open('argv', 'w').write(json.dumps(sys.argv))"
    asyncio.run(ask_small_cli(place, argv, resume="a title", session_store=Store()))
    assert (asked, "--resume=a title" in Path("argv").read_text()) == ([], True)


def test_a_session_without_text_is_not_listed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(place / "config"))
    project = place / "config/projects" / official.project_key_for_directory(str(place))
    project.mkdir(parents=True)
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}

    def entry(content: Any, number: int) -> None:
        session = f"00000000-0000-4000-8000-{number:012}"
        line = {
            "type": "user",
            "uuid": f"11111111-0000-4000-8000-{number:012}",
            "parentUuid": None,
            "sessionId": session,
            "timestamp": "2026-11-18T00:00:00.000Z",
            "cwd": str(place),
            "message": {"role": "user", "content": content},
        }
        (project / f"{session}.jsonl").write_text(json.dumps(line) + "\n")

    entry([image], 1)
    entry("words", 2)
    listed = official.list_sessions(directory=str(place))
    assert [session.first_prompt for session in listed] == ["words"]


# ---------------------------------------------------------------- the rows

HERE = "test_official.py::"
COMPARED = "test_comparison.py::"

SHOWN = {
    "more than 100 unread messages": COMPARED
    + "test_a_control_request_waits_until_the_program_reads",
    "the CLI exits while a request is open": HERE
    + "test_a_request_stays_open_when_the_cli_has_exited",
    "the CLI closes its output and does not exit": HERE
    + "test_a_loop_goes_on_when_the_cli_closes_its_output",
    "the CLI exits with code 0 and without a result": HERE
    + "test_an_exit_without_a_result_ends_the_loop",
    "an item of an iterable of prompts is not a prompt": HERE + "test_any_item_is_sent_as_a_prompt",
    "`query(prompt=[...])`, a plain list": HERE + "test_a_list_of_prompts_waits",
    "a message longer than 1 MiB": HERE
    + "test_a_line_that_is_too_long_or_not_json_ends_the_session",
    "bytes that are not UTF-8": HERE + "test_bytes_that_are_not_utf_8_end_the_session",
    "a line that is not valid JSON": HERE
    + "test_a_line_that_is_too_long_or_not_json_ends_the_session",
    "`connect()` on a connected client": HERE
    + "test_a_second_connect_leaves_the_first_cli_running",
    "the body of the loop cancels its own task, under asyncio": HERE
    + "test_a_loop_that_cancels_its_task_gets_no_further_message",
    "cancelling `disconnect()`, or `kill -9` of your program": HERE
    + "test_a_cli_that_ignores_the_end_of_its_input_outlives_a_killed_program",
    "control requests that fail": HERE
    + "test_a_control_request_that_fails_raises_a_plain_exception",
    "`ProcessError.stderr`": HERE + "test_the_stderr_of_a_process_error_is_a_fixed_text",
    "a hook raises an exception, or returns `None` or another value that is not a dict": HERE
    + "test_a_hook_that_raises_is_reported_by_the_cli",
    "a hook of `PreToolUse`, `PermissionRequest`, `UserPromptSubmit` or `UserPromptExpansion` "
    "times out": "hook_timeout.py",
    "a hook of `TaskCreated`, `TaskCompleted` or `PreModelSwitch` times out": (
        "hook_timeout_tasks.py"
    ),
    "a hook of `PostToolBatch` times out": "hook_timeout_batch.py",
    '`on_failure="block"` with a CLI that does not support it, such as 2.1.197': HERE
    + "test_on_failure_needs_a_cli_that_supports_it",
    '`on_failure` is neither `"block"` nor `"continue"`': HERE
    + "test_an_unknown_on_failure_is_read_as_block_and_reported",
    "the CLI reports that it did not register the hooks": "transport_hooks_not_applied.py",
    'a hook of `PreToolUse` returns `{"continue_": False}`': HERE
    + "test_continue_false_lets_the_tool_run_and_ends_the_turn",
    "a hook [defers](permissions.md#wait-days-for-a-persons-approval) a tool call": HERE
    + "test_a_deferred_call_is_discarded_or_runs_without_a_decision",
    "`can_use_tool` or a `PermissionRequest` hook, and a settings file that sets "
    "`permissions.defaultMode`": HERE
    + "test_a_settings_file_chooses_the_mode_beside_a_permission_callback",
    "a hook returns an output that the CLI cannot read": "hook_unusual_output.py",
    "a hook returns a dict with `async_: True` and other keys": "hook_async_output.py",
    "a callback raises `SystemExit` or `KeyboardInterrupt`": "hook_exits.py",
    "`tool_use_id` of a hook whose event has no tool": HERE
    + "test_a_hook_without_a_tool_gets_an_id_and_a_dict_and_no_signal",
    "a permission callback raises an exception, or returns a value that is not a permission "
    "result": HERE + "test_the_model_reads_why_a_permission_callback_failed",
    '`create_sdk_mcp_server(...)["instance"]`': HERE + "test_tools_are_objects_of_the_mcp_package",
    "`ToolAnnotations`": HERE + "test_tools_are_objects_of_the_mcp_package",
    "system prompts, schemas, settings and MCP configurations": COMPARED
    + "test_prompts_schemas_and_secrets_are_command_line_arguments",
    "which CLI is started": HERE + "test_the_cli_of_the_package_is_started",
    "prompts": HERE + "test_a_prompt_has_no_id_and_the_system_prompt_is_empty",
    "`stderr` not set": HERE + "test_the_cli_writes_to_the_stderr_of_the_program",
    "hooks, permission callbacks and tools": COMPARED
    + "test_callbacks_are_async_and_the_schema_of_a_tool_is_an_argument",
    "you leave the loop over `query` and immediately resume or continue the same session": (
        "session_continue_at_once.py"
    ),
    "a `session_store` that fails": "store_failing.py",
    "`session_store` with a `resume` that is a title or a path": HERE
    + "test_a_title_is_not_looked_up_in_the_store",
    "`list_sessions()` and sessions whose prompts have no text": HERE
    + "test_a_session_without_text_is_not_listed",
    "parallel tool calls in `get_session_messages()`": HERE
    + "test_the_result_that_the_conversation_continues_from_is_the_last_one",
    "invalid options, such as a file that does not exist": "error_rejected_options.py",
    # Bridle's own API
    "system prompt": HERE + "test_a_prompt_has_no_id_and_the_system_prompt_is_empty",
    "end of a turn": HERE + "test_a_failed_api_call_has_the_subtype_success",
    "turns": COMPARED + "test_a_message_names_its_prompt_only_if_the_program_named_it",
    "callbacks": COMPARED + "test_callbacks_are_async_and_the_schema_of_a_tool_is_an_argument",
    "failing callbacks": "hook_failure_blocks.py",
    "hooks of one event": HERE + "test_matchers_of_one_event_run_at_the_same_time",
    "arguments of callbacks": HERE
    + "test_a_hook_without_a_tool_gets_an_id_and_a_dict_and_no_signal",
    "control requests": HERE + "test_a_control_request_that_fails_raises_a_plain_exception",
    "unread messages": COMPARED + "test_a_control_request_waits_until_the_program_reads",
    "unknown messages and blocks": COMPARED + "test_unknown_messages_and_blocks_are_dropped",
    "long lines": HERE + "test_a_line_that_is_too_long_or_not_json_ends_the_session",
    "stderr": HERE + "test_the_stderr_of_a_process_error_is_a_fixed_text",
    "command line": COMPARED + "test_prompts_schemas_and_secrets_are_command_line_arguments",
    "processes": COMPARED + "test_a_process_of_its_own_session_outlives_the_client",
    "options": HERE + "test_options_are_mutable_and_not_checked",
}
"""The rows with a cell about the official SDK, and what shows it: a test, or a program."""


def rows(heading: str, column: int) -> set[str]:
    """Return the first cells of a table whose cell in this column is not empty."""
    page = (REPOSITORY / "docs/howto/migrating.md").read_text("utf-8")
    lines = re.split(r"\n##+ ", page.split(f"## {heading}\n")[1])[0].splitlines()
    table = [re.split(r" ?\| ?", line.strip("|")) for line in lines if line.startswith("|")]
    return {row[0].strip() for row in table[2:] if row[column].strip()}


def test_every_row_about_the_official_sdk_has_a_proof() -> None:
    drop_in = rows("What differs with the drop-in", 1)
    native = rows("What behaves differently in Bridle's own API", 2)
    assert drop_in | native == SHOWN.keys()
    here = Path(__file__).parent
    for proof in SHOWN.values():
        name, _, test = proof.partition("::")
        path = here / name if test else here / "programs" / name
        assert f"def {test}" in path.read_text("utf-8"), proof
