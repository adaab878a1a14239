"""What the drop-in does better than the official SDK, as the page about moving says."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.line_cli import line_cli
from tests.support.processes import is_alive, until, until_on_trio

import bridle.compat.claude_agent_sdk as sdk
from bridle.compat.claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, query

CLOSES_OUTPUT = """\
if kind == 'user':
    import signal
    result()
    os.close(1)
    signal.pause()"""
"""A CLI that answers and closes its output, but does not exit."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def options(place: Path, behaviour: str = "", **more: Any) -> ClaudeAgentOptions:
    """Return options with a CLI that does this first for each line."""
    return ClaudeAgentOptions(cli_path=line_cli(place, behaviour), **more)


async def read(prompt: Any, given: ClaudeAgentOptions) -> list[sdk.Message]:
    """Return every message of a query."""
    return [message async for message in query(prompt=prompt, options=given)]


@pytest.mark.parametrize(
    "noise",
    ["""print('{"type": "assistant", broken', flush=True)""", r"os.write(1, b'{\xff}\n')"],
    ids=["not JSON", "not UTF-8"],
)
def test_a_line_that_cannot_be_read_does_not_end_the_session(place: Path, noise: str) -> None:
    given = options(place, f"if kind == 'user': {noise}")
    [result] = asyncio.run(read("hi", given))
    assert isinstance(result, sdk.ResultMessage)


def test_a_message_longer_than_one_mebibyte_arrives(place: Path) -> None:
    large = "say(type='system', subtype='large', text='x' * (2 << 20))"
    given = options(place, f"if kind == 'user': {large}")
    large_message, _ = asyncio.run(read("hi", given))
    assert isinstance(large_message, sdk.SystemMessage)
    assert len(large_message.data["text"]) == 2 << 20


async def test_a_prompt_may_wait_for_a_first_result_that_is_an_error(place: Path) -> None:
    """The CLI has accepted the session, so the result belongs to the conversation."""
    fields = "result='no', duration_ms=1, duration_api_ms=1, num_turns=1, session_id='s'"
    failing = f"say(type='result', subtype='success', is_error=True, {fields}); continue"
    given = options(place, f"if kind == 'user': {failing}")
    seen = asyncio.Event()
    messages: list[sdk.Message] = []

    async def prompts() -> AsyncIterator[dict[str, Any]]:
        yield {"type": "user", "message": {"role": "user", "content": "a"}}
        await seen.wait()

    async with asyncio.timeout(30):
        async for message in query(prompt=prompts(), options=given):
            messages.append(message)
            seen.set()
    assert messages


async def test_a_line_over_the_limit_ends_a_query_and_not_a_client(place: Path) -> None:
    large = "say(type='system', subtype='large', text='x' * 5000)"
    given = options(place, f"if kind == 'user': {large}", max_buffer_size=2000)
    with pytest.raises(sdk.CLIJSONDecodeError):
        await read("hi", given)
    async with ClaudeSDKClient(given) as client:
        await client.query("hi")
        [result] = [message async for message in client.receive_response()]
        assert isinstance(result, sdk.ResultMessage)


def test_a_plain_list_of_prompts_is_sent(place: Path) -> None:
    prompts = [{"type": "user", "message": {"role": "user", "content": word}} for word in "ab"]
    messages = asyncio.run(read(prompts, options(place)))
    assert (place / "prompts").read_text().split() == ["a", "b"]
    assert len(messages) == 2


async def test_a_cli_that_exits_during_the_start_is_noticed_at_once(place: Path) -> None:
    given = options(place, "sys.exit(0)")
    async with asyncio.timeout(30):
        with pytest.raises(sdk.ClaudeSDKError):
            await ClaudeSDKClient(given).connect()


def test_an_error_has_the_last_lines_of_stderr(place: Path) -> None:
    given = options(place, "if kind == 'user': sys.exit('out of hay')", stderr=lambda line: None)
    with pytest.raises(sdk.ProcessError) as caught:
        asyncio.run(read("hi", given))
    assert "out of hay" in str(caught.value.stderr)


async def test_a_refused_control_request_raises_an_error_of_the_sdk(place: Path) -> None:
    async with ClaudeSDKClient(options(place)) as client:
        with pytest.raises(sdk.ClaudeSDKError, match="not today"):
            await client.set_model("x")


async def test_connecting_again_ends_the_first_cli(place: Path) -> None:
    client = ClaudeSDKClient(options(place))
    await client.connect()
    await client.connect()
    first, second = map(int, (place / "pids").read_text().split())
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    os.kill(second, 0)
    await client.disconnect()


async def test_unread_messages_do_not_delay_control_requests(place: Path) -> None:
    flood = "for number in range(500): say(type='system', subtype='noise', number=number)"
    given = options(place, f"if kind == 'user':\n    {flood}")
    async with ClaudeSDKClient(given) as client, asyncio.timeout(30):
        await client.query("hi")
        with pytest.raises(sdk.ClaudeSDKError, match="not today"):
            await client.interrupt()
        assert len([message async for message in client.receive_response()]) == 501


def test_plain_functions_are_accepted_as_callbacks(place: Path) -> None:
    behaviour = """\
if kind == 'initialize':
    hook = asked['request']['hooks']['Stop'][0]['hookCallbackIds'][0]
if kind == 'user':
    request = dict(subtype='hook_callback', callback_id=hook, tool_use_id=None)
    request['input'] = dict(hook_event_name='Stop')
    say(type='control_request', request_id='h', request=request)
    reply = json.loads(sys.stdin.readline())
    say(type='system', subtype='reply', reply=reply['response'])"""
    seen = []

    def note(data: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        seen.append(data["hook_event_name"])
        return {"systemMessage": "noted"}

    plain: Any = note
    given = options(place, behaviour, hooks={"Stop": [sdk.HookMatcher(hooks=[plain])]})

    async def prompts() -> AsyncIterator[dict[str, Any]]:
        yield {"type": "user", "message": {"role": "user", "content": "hi"}}

    reply, _ = asyncio.run(read(prompts(), given))
    assert seen == ["Stop"]
    assert isinstance(reply, sdk.SystemMessage)
    assert reply.data["reply"]["response"]["systemMessage"] == "noted"


async def test_a_cli_that_closes_its_output_and_does_not_exit_is_ended(place: Path) -> None:
    """The answer is there, so the loop ends without an error."""
    given = options(place, CLOSES_OUTPUT)
    async with asyncio.timeout(60):
        [result] = await read("hi", given)
        assert isinstance(result, sdk.ResultMessage)
        async with ClaudeSDKClient(given) as client:
            await client.query("hi")
            assert len([message async for message in client.receive_messages()]) == 1


@pytest.mark.parametrize(
    "end",
    [
        "import signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import signal; os.kill(os.getpid(), signal.SIGKILL)",
        "sys.exit(143)",
    ],
)
async def test_a_cli_that_is_killed_during_a_turn_is_reported(place: Path, end: str) -> None:
    given = options(place, f"if kind == 'user': {end}")
    with pytest.raises(sdk.ProcessError):
        await read("hi", given)
    async with ClaudeSDKClient(given) as client:
        await client.query("hi")
        with pytest.raises(sdk.ProcessError):
            await anext(client.receive_response())


async def test_an_open_request_fails_when_the_cli_exits(place: Path) -> None:
    async with ClaudeSDKClient(options(place, "if kind == 'interrupt': sys.exit()")) as client:
        async with asyncio.timeout(30):
            with pytest.raises(sdk.CLIConnectionError):
                await client.interrupt()


def test_stderr_that_is_not_utf_8_does_not_stop_the_cli(place: Path) -> None:
    lines: list[str] = []
    noise = r"os.write(2, b'\xff' * (2 << 20) + b'\nend\n')"
    given = options(place, f"if kind == 'user': {noise}", stderr=lines.append)
    [result] = asyncio.run(read("hi", given))
    assert isinstance(result, sdk.ResultMessage)
    assert lines[-1] == "end"


async def test_messages_that_have_arrived_can_be_read_after_disconnect(place: Path) -> None:
    flood = "for number in range(300): say(type='system', subtype='noise', number=number)"
    client = ClaudeSDKClient(options(place, f"if kind == 'user':\n    {flood}"))
    await client.connect()
    await client.query("hi")
    messages = client.receive_messages()
    await anext(messages)
    with pytest.raises(sdk.ClaudeSDKError):  # the CLI has sent everything before its answer
        await client.interrupt()
    await client.disconnect()
    assert len([message async for message in messages]) == 300


async def test_the_cli_ends_although_disconnect_is_cancelled(place: Path) -> None:
    client = ClaudeSDKClient(options(place))
    await client.connect()
    ending = asyncio.ensure_future(client.disconnect())
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.wait([ending])
    pid = int((place / "pids").read_text())
    await until(lambda: not is_alive(pid))


async def test_a_slow_store_does_not_delay_requests_and_loses_no_message(place: Path) -> None:
    """Waiting for the store can be cancelled: the next loop gets the result."""
    transcript = "/c/projects/-work/11111111-1111-4111-8111-111111111111.jsonl"
    entry = "dict(type='user', uuid='u1', sessionId='s')"
    mirror = f"say(type='transcript_mirror', filePath='{transcript}', entries=[{entry}])"

    class Slow(sdk.InMemorySessionStore):
        def __init__(self) -> None:
            super().__init__()
            self.is_asked, self.answers = asyncio.Event(), asyncio.Event()

        async def append(self, key: Any, entries: Any) -> None:
            self.is_asked.set()
            await self.answers.wait()
            await super().append(key, entries)

    store = Slow()
    given = options(place, f"if kind == 'user': {mirror}", session_store=store)
    async with ClaudeSDKClient(given) as client, asyncio.timeout(30):
        await client.query("hi")
        waiting = asyncio.ensure_future(anext(client.receive_response()))
        await store.is_asked.wait()
        with pytest.raises(sdk.ClaudeSDKError, match="not today"):
            await client.interrupt()
        waiting.cancel()
        await asyncio.wait([waiting])
        store.answers.set()
        assert isinstance(await anext(client.receive_response()), sdk.ResultMessage)


def test_under_trio_a_cancelled_loop_gets_no_more_messages(place: Path) -> None:
    """Messages that have arrived are there for the next loop."""
    event = "dict(type='stream_event', uuid='u', session_id='s', event=dict(type='ping'))"
    flood = f"os.write(1, ((json.dumps({event}) + chr(10)) * 300).encode())"
    given = options(place, f"if kind == 'user': {flood}")
    seen: list[sdk.Message] = []

    async def main() -> None:
        async with ClaudeSDKClient(given) as client:
            await client.query("hi")
            with pytest.raises(sdk.ClaudeSDKError):  # the CLI has sent everything before its answer
                await client.interrupt()
            with anyio.CancelScope() as scope:
                async for message in client.receive_response():
                    seen.append(message)
                    scope.cancel()
            assert len([message async for message in client.receive_response()]) == 300

    anyio.run(main, backend="trio")
    assert len(seen) == 1


async def test_requests_after_the_end_of_the_cli_raise_a_connection_error(place: Path) -> None:
    """The reader raises the error of the process."""
    end = "import signal; os.kill(os.getpid(), signal.SIGKILL)"
    async with ClaudeSDKClient(options(place, f"if kind == 'user': {end}")) as client:
        await client.query("hi")
        with pytest.raises(sdk.ProcessError):
            await anext(client.receive_messages())
        for request in (client.interrupt, client.get_context_usage, lambda: client.query("x")):
            with pytest.raises(sdk.CLIConnectionError):
                await request()


ASKS_FOR_PERMISSION = """\
if kind == 'user':
    say(type="control_request", request_id="1", request={"subtype": "can_use_tool",
        "tool_name": "Bash", "tool_use_id": "t", "input": {"command": "ls"}})
if kind == 'control_response':
    with open("answers", "a") as answers:
        print(json.dumps(asked["response"].get("response")), file=answers)
    result()
    continue
if kind == 'user':
    continue"""


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_an_exit_in_a_callback_ends_a_program_of_trio(place: Path, error: BaseException) -> None:
    async def leave(*_: object) -> Any:
        raise error

    async def main() -> None:
        with anyio.fail_after(30):
            async with ClaudeSDKClient(
                options(place, ASKS_FOR_PERMISSION, can_use_tool=leave)
            ) as client:
                await client.query("go")
                async for _ in client.receive_response():
                    pass

    with pytest.raises(type(error)) as caught:
        anyio.run(main, backend="trio")
    assert caught.value is error
    for pid in (place / "pids").read_text().split():
        assert not is_alive(int(pid))

    # The background loop still works.
    messages: list[sdk.Message] = []

    async def again() -> None:
        messages.extend(await read("hi", options(place)))

    anyio.run(again, backend="trio")
    assert len(messages) == 1


def test_an_exit_in_a_callback_denies_the_call(place: Path) -> None:
    async def leave(*_: object) -> Any:
        raise SystemExit(3)

    async def ask_and_interrupt(client: ClaudeSDKClient) -> None:
        await client.query("go")
        await until_on_trio((place / "answers").exists)
        await client.interrupt()

    async def main() -> None:
        async with ClaudeSDKClient(
            options(place, ASKS_FOR_PERMISSION, can_use_tool=leave)
        ) as client:
            with pytest.raises(SystemExit):  # in whichever call waits when the callback exits
                await ask_and_interrupt(client)
            await until_on_trio((place / "answers").exists)

    anyio.run(main, backend="trio")
    assert '"deny"' in (place / "answers").read_text()


async def test_a_hook_that_ends_the_turn_prevents_the_call(place: Path) -> None:
    behaviour = """\
if kind == 'initialize':
    hook = asked['request']['hooks']['PreToolUse'][0]['hookCallbackIds'][0]
if kind == 'user':
    called = dict(hook_event_name='PreToolUse', tool_name='Bash', tool_input={}, tool_use_id='t')
    request = dict(subtype='hook_callback', callback_id=hook, tool_use_id='t', input=called)
    say(type='control_request', request_id='h', request=request)
    reply = json.loads(sys.stdin.readline())
    say(type='system', subtype='reply', reply=reply['response'])"""

    async def stop(*_: object) -> Any:
        return {"continue_": False, "stopReason": "enough"}

    given = options(place, behaviour, hooks={"PreToolUse": [sdk.HookMatcher(hooks=[stop])]})
    async with ClaudeSDKClient(given) as client:
        await client.query("go")
        reply = await anext(client.receive_response())
        assert isinstance(reply, sdk.SystemMessage)
        answer = reply.data["reply"]["response"]
        assert (answer["continue"], answer["stopReason"]) == (False, "enough")
        assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"


async def test_a_client_takes_no_prompt_after_a_deferred_call(place: Path) -> None:
    """The prompt would make the CLI discard the call."""
    deferred = """\
if kind == 'user':
    say(type='result', subtype='success', is_error=False, duration_ms=1, duration_api_ms=1,
        num_turns=1, session_id='s', terminal_reason='tool_deferred', user_message_uuids=[
        asked['uuid']], deferred_tool_use=dict(id='t', name='Bash', input={}))
    continue"""
    async with ClaudeSDKClient(options(place, deferred)) as client:
        await client.query("one")
        _ = [message async for message in client.receive_response()]
        with pytest.raises(sdk.CLIConnectionError, match=r"call of Bash is deferred"):
            await client.query("two")
