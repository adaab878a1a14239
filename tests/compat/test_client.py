"""The client and `query` of the drop-in, on a transport without a process, under both libraries."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import pytest
from tests.support.limits import SetLimits
from tests.support.processes import LIMIT, until_on_trio
from tests.support.steps import ReplaceSteps

from bridle._session.session import InnerSession
from bridle.compat.claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    CLIConnectionError,
    HookMatcher,
    PermissionResultAllow,
    ProcessError,
    ResultError,
    ResultMessage,
    TextBlock,
    Transport,
    query,
)
from bridle.errors import SessionInUseError

RESULT = {
    "type": "result",
    "subtype": "success",
    "duration_ms": 1,
    "duration_api_ms": 1,
    "is_error": False,
    "num_turns": 1,
    "session_id": "s",
}


def spoken(text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": "assistant", "message": {"model": "m", "content": content}}


class Echo(Transport):
    """Answers every prompt with its own text. Works under asyncio and trio."""

    def __init__(
        self, *, asks: dict[str, Any] | None = None, fails: Exception | None = None
    ) -> None:
        self.asks = asks
        self.fails = fails
        self.written: list[dict[str, Any]] = []
        self.is_closed = False
        self._lines: deque[dict[str, Any] | None] = deque()
        self._prompt = ""

    async def connect(self) -> None:
        pass

    async def write(self, data: str) -> None:
        line = json.loads(data)
        self.written.append(line)
        if line["type"] == "user":
            self._prompt = line["message"]["content"]
            if self.asks is None:
                self._answer()
            else:
                ask = {"type": "control_request", "request_id": "q1", "request": self.asks}
                self._lines.append(ask)
        elif line["type"] == "control_response":
            self._answer()
        elif line["request"]["subtype"] == "set_model":
            problem = {"subtype": "error", "request_id": line["request_id"], "error": "no model"}
            self._lines.append({"type": "control_response", "response": problem})
        else:
            done = {"subtype": "success", "request_id": line["request_id"], "response": {"a": 1}}
            self._lines.append({"type": "control_response", "response": done})

    def _answer(self) -> None:
        self._lines += [spoken(self._prompt), RESULT]

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        while True:
            await until_on_trio(lambda: self._lines)
            line = self._lines.popleft()
            if line is None:
                return
            if self.fails is not None and line["type"] == "assistant":
                raise self.fails
            yield line

    async def close(self) -> None:
        self.is_closed = True

    def is_ready(self) -> bool:
        return True

    async def end_input(self) -> None:
        self._lines.append(None)


def run(library: str, work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(60):
            await work()

    anyio.run(bounded, backend=library)


both = pytest.mark.parametrize("library", ["asyncio", "trio"])


def test_a_client_connects_although_the_session_was_in_use_until_the_first_attempt(
    replace_steps: ReplaceSteps,
) -> None:
    connect = InnerSession.connect

    async def work() -> None:
        user = ClaudeSDKClient(transport=Echo())
        await user.connect()

        async def fail_once(_: InnerSession) -> None:
            replace_steps(connect_session=connect)
            await user.disconnect()
            raise SessionInUseError("s")

        replace_steps(connect_session=fail_once)
        async with ClaudeSDKClient(transport=Echo()) as client:
            assert await client.get_server_info() == {"a": 1}

    run("asyncio", work)


class Blocking(Echo):
    """Its reader ends only when the transport is closed, like a thread that cannot be cancelled.

    It reports that the hooks were not registered, so a client with hooks does not connect.
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_ended = False

    async def write(self, data: str) -> None:
        told = {"hooks_applied": False}
        done = {"subtype": "success", "request_id": json.loads(data)["request_id"]}
        self._lines.append({"type": "control_response", "response": {**done, "response": told}})

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        try:
            while True:
                await until_on_trio(lambda: self._lines)
                if (line := self._lines.popleft()) is not None:
                    yield line
        finally:
            with anyio.CancelScope(shield=True):
                await until_on_trio(lambda: self.is_closed)
            self.has_ended = True


def test_a_transport_is_closed_while_its_reader_still_reads(
    set_limits: SetLimits,
) -> None:
    set_limits(closing_input=1000.0)
    transport = Blocking()

    async def guard(*_: object) -> Any:
        return {}

    async def work() -> None:
        hooks: Any = {"PreToolUse": [HookMatcher(hooks=[guard])]}
        client = ClaudeSDKClient(ClaudeAgentOptions(hooks=hooks), transport)
        with pytest.raises(CLIConnectionError):
            await client.connect()
        assert transport.has_ended

    run("trio", work)


class Cleaning(Blocking):
    """Its reader uses in its cleanup what `close` releases."""

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        try:
            while True:
                await until_on_trio(lambda: self._lines)
                if (line := self._lines.popleft()) is not None:
                    yield line
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.02)
            self.written.append({})

    async def close(self) -> None:
        del self.written


@both
def test_a_transport_is_closed_after_the_cleanup_of_its_reader(library: str) -> None:
    async def guard(*_: object) -> Any:
        return {}

    async def work() -> None:
        hooks: Any = {"PreToolUse": [HookMatcher(hooks=[guard])]}
        client = ClaudeSDKClient(ClaudeAgentOptions(hooks=hooks), Cleaning())
        with pytest.raises(CLIConnectionError, match="did not register the hooks"):
            await client.connect()

    run(library, work)


@both
def test_a_prompt_is_written_before_a_transport_is_closed(library: str) -> None:
    class Slow(Echo):
        async def write(self, data: str) -> None:
            await anyio.sleep(0.05)
            await super().write(data)

    transport = Slow()

    async def work() -> None:
        client = ClaudeSDKClient(transport=transport)
        await client.connect()
        await client.query("hi")
        await client.disconnect()

    run(library, work)
    assert [line["type"] for line in transport.written] == ["control_request", "user"]


@both
def test_disconnect_closes_a_transport_at_once(library: str, set_limits: SetLimits) -> None:
    """Even if its reader does not end with the input."""

    class Endless(Echo):
        async def end_input(self) -> None:
            pass

    async def work() -> None:
        client = ClaudeSDKClient(transport=Endless())
        await client.connect()
        with anyio.fail_after(LIMIT):
            await client.disconnect()

    set_limits(closing_input=2 * LIMIT)
    run(library, work)


@both
def test_a_query_yields_the_messages_and_closes_the_transport(library: str) -> None:
    transport = Echo()

    async def work() -> None:
        got = [message async for message in query(prompt="hi", transport=transport)]
        assert [type(one) for one in got] == [AssistantMessage, ResultMessage]
        assert isinstance(got[0], AssistantMessage)
        assert got[0].content == [TextBlock("hi")]

    run(library, work)
    assert transport.is_closed


@both
def test_a_client_asks_several_times(library: str) -> None:
    transport = Echo()

    async def prompts() -> AsyncIterator[dict[str, Any]]:
        await anyio.sleep(0.001)
        yield {"type": "user", "message": {"role": "user", "content": "b"}}

    async def work() -> None:
        async with ClaudeSDKClient(transport=transport) as client:
            for prompt in ("a", prompts()):
                await client.query(prompt)
                got = [one async for one in client.receive_response()]
                assert len(got) == 2
            assert await client.get_server_info() == {"a": 1}
            assert dict(await client.get_mcp_status()) == {"a": 1}
            with pytest.raises(ClaudeSDKError, match=r"^no model$"):
                await client.set_model("x")
            with anyio.move_on_after(0.05) as scope:
                async for _ in client.receive_messages():
                    raise AssertionError("nothing was asked")
            assert scope.cancelled_caught
            await client.query("c")
            assert len([one async for one in client.receive_response()]) == 2
        with pytest.raises(CLIConnectionError):
            await client.query("d")

    run(library, work)
    texts = [one["message"]["content"] for one in transport.written if one["type"] == "user"]
    assert texts == ["a", "b", "c"]
    assert transport.is_closed


@both
def test_callbacks_run_in_the_event_loop_of_the_program(library: str) -> None:
    seen: list[object] = []

    async def hook(given: Any, tool_use_id: str | None, context: Any) -> Any:
        await anyio.sleep(0.001)
        seen.append((given["tool_name"], tool_use_id, context))
        return {}

    async def decide(name: str, given: Any, context: Any) -> PermissionResultAllow:
        await anyio.sleep(0.001)
        seen.append((name, given, context.tool_use_id))
        return PermissionResultAllow(updated_input={"command": "pwd"})

    call = {"tool_name": "Bash", "tool_use_id": "t1"}
    hooked = {
        "subtype": "hook_callback",
        "callback_id": "hook_0",
        "input": {"hook_event_name": "PreToolUse", "tool_input": {}, **call},
        "tool_use_id": "t1",
    }
    asked = {"subtype": "can_use_tool", "input": {"command": "ls"}, **call}
    options = ClaudeAgentOptions(
        hooks={"PreToolUse": [HookMatcher(hooks=[hook])]}, can_use_tool=decide
    )
    answers: list[Any] = []

    async def work() -> None:
        for request in (hooked, asked):
            transport = Echo(asks=request)
            async for _ in query(prompt="go", options=options, transport=transport):
                pass
            answers.append(next(o for o in transport.written if o["type"] == "control_response"))

    run(library, work)
    assert seen == [("Bash", "t1", {"signal": None}), ("Bash", {"command": "ls"}, "t1")]
    assert answers[1]["response"]["response"] == {
        "behavior": "allow",
        "updatedInput": {"command": "pwd"},
    }


@both
def test_the_error_of_a_transport_is_raised(library: str) -> None:
    async def work() -> None:
        failure = ProcessError("boom", exit_code=3)
        with pytest.raises(ProcessError, match="boom") as caught:
            async for _ in query(prompt="hi", transport=Echo(fails=failure)):
                pass
        assert caught.value is failure

    run(library, work)


@both
def test_leaving_a_query_early_closes_it(library: str) -> None:
    transport = Echo()

    async def work() -> None:
        messages: Any = query(prompt="hi", transport=transport)
        async for _ in messages:
            break
        await messages.aclose()
        assert transport.is_closed

    run(library, work)


def test_connecting_again_ends_the_first_connection() -> None:
    transport = Echo()

    async def work() -> None:
        client = ClaudeSDKClient(transport=transport)
        await client.connect("a")
        await client.connect("b")
        assert transport.is_closed
        await client.disconnect()
        await client.disconnect()

    run("asyncio", work)


@pytest.mark.longer
def test_a_dropped_client_is_collected() -> None:
    async def work() -> None:
        client = ClaudeSDKClient(transport=Echo())
        await client.connect()
        gone = weakref.ref(client)
        del client
        gc.collect()
        assert gone() is None
        for _ in range(5):
            await asyncio.sleep(0)

    run("asyncio", work)


def test_an_iterable_that_is_not_async_is_accepted() -> None:
    async def work() -> None:
        prompts: Any = [{"type": "user", "message": {"role": "user", "content": "a"}}]
        got = [one async for one in query(prompt=prompts, transport=Echo())]
        assert len(got) == 2

    run("asyncio", work)


def test_the_error_of_a_result_has_its_data_and_can_be_pickled() -> None:
    import pickle

    error = ResultError("m", {"subtype": "x", "errors": ["a", 1], "session_id": "s"}, 1)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.subtype, copy.errors, copy.session_id, copy.exit_code) == ("x", ["a"], "s", 1)
    assert str(copy) == str(error)


@both
def test_two_readers_share_the_messages(library: str) -> None:
    got: list[Any] = []

    async def work() -> None:
        async with ClaudeSDKClient(transport=Echo()) as client:

            async def read() -> None:
                async for message in client.receive_messages():
                    got.append(message)
                    if len(got) == 4:
                        readers.cancel_scope.cancel()

            async with anyio.create_task_group() as readers:
                readers.start_soon(read)
                readers.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                await client.query("a")
                await client.query("b")

    run(library, work)
    kinds = [type(one) for one in got]
    assert kinds == [AssistantMessage, ResultMessage] * 2


@both
def test_prompts_may_wait_for_a_result_that_is_an_error(library: str) -> None:
    class Failing(Echo):
        def _answer(self) -> None:
            self._lines.append({**RESULT, "is_error": True})

    async def work() -> None:
        seen = anyio.Event()

        async def prompts() -> AsyncIterator[dict[str, Any]]:
            for word in "ab":
                yield {"type": "user", "message": {"role": "user", "content": word}}
                await seen.wait()

        count = 0
        async for _ in query(prompt=prompts(), transport=Failing()):
            count += 1
            seen.set()
        assert count == 2

    run(library, work)


@both
def test_fields_of_a_prompt_that_are_not_known_are_sent(library: str) -> None:
    transport = Echo()

    async def prompts() -> AsyncIterator[dict[str, Any]]:
        message = {"role": "user", "content": "a", "id": "m1"}
        yield {"type": "user", "message": message, "novel": [1]}

    async def work() -> None:
        assert len([one async for one in query(prompt=prompts(), transport=transport)]) == 2

    run(library, work)
    [line] = [one for one in transport.written if one["type"] == "user"]
    assert (line["novel"], line["message"]["id"]) == ([1], "m1")


@both
def test_prompts_that_raise_are_logged_and_the_answer_arrives(
    library: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def prompts() -> AsyncIterator[dict[str, Any]]:
        yield {"type": "user", "message": {"role": "user", "content": "a"}}
        raise ValueError("no more hay")

    async def work() -> None:
        assert len([one async for one in query(prompt=prompts(), transport=Echo())]) == 2
        client = ClaudeSDKClient(transport=Echo())
        await client.connect(prompts())
        assert len([one async for one in client.receive_response()]) == 2
        await client.disconnect()
        async with ClaudeSDKClient(transport=Echo()) as client:
            with pytest.raises(ValueError, match="no more hay"):
                await client.query(prompts())

    run(library, work)
    assert caplog.text.count("The iterable of prompts failed") == 2


def user(text: object) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}}


@both
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("has_callback", [False, True])
def test_a_prompt_after_the_last_one_of_connect_is_refused(
    library: str, fails: bool, has_callback: bool
) -> None:
    async def prompts() -> AsyncIterator[dict[str, Any]]:
        yield user("a")
        if fails:
            raise ValueError("no more hay")

    async def decide(*_: Any) -> PermissionResultAllow:
        return PermissionResultAllow()

    options = ClaudeAgentOptions(can_use_tool=decide if has_callback else None)

    async def work() -> None:
        client = ClaudeSDKClient(options, transport=Echo())
        await client.connect(prompts())
        assert len([one async for one in client.receive_response()]) == 2
        with pytest.raises(CLIConnectionError):
            await client.query("b")
        assert [one async for one in client.receive_messages()] == []
        await client.disconnect()

    run(library, work)


@both
def test_a_prompt_beside_those_of_connect_is_answered(library: str) -> None:
    transport = Echo()

    async def work() -> None:
        is_asked = anyio.Event()

        async def prompts() -> AsyncIterator[dict[str, Any]]:
            yield user("a")
            await is_asked.wait()
            yield user("c")

        client = ClaudeSDKClient(transport=transport)
        await client.connect(prompts())
        assert len([one async for one in client.receive_response()]) == 2
        await client.query("b")
        is_asked.set()
        assert len([one async for one in client.receive_messages()]) == 4
        await client.disconnect()

    run(library, work)


@both
def test_the_end_of_the_cli_before_an_answer_is_an_error(library: str) -> None:
    class Mute(Echo):
        def _answer(self) -> None:
            self._lines.append(None)

    async def work() -> None:
        async with ClaudeSDKClient(transport=Mute()) as client:
            await client.query("a")
            with pytest.raises(CLIConnectionError, match="without an answer"):
                _ = [one async for one in client.receive_response()]

    run(library, work)


@both
@pytest.mark.parametrize("bad", [5, None, {"type": "user"}, [5]])
def test_an_item_that_is_not_a_prompt_is_logged_and_ends_the_prompts(
    library: str, bad: object, caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[object] = []

    async def prompts() -> AsyncIterator[Any]:
        try:
            yield user("a")
            yield bad
            await anyio.sleep_forever()  # for the answer
        finally:
            closed.append(bad)

    async def work() -> None:
        assert len([one async for one in query(prompt=prompts(), transport=Echo())]) == 2
        client = ClaudeSDKClient(transport=Echo())
        await client.connect(prompts())
        assert len([one async for one in client.receive_messages()]) == 2
        await client.disconnect()

    run(library, work)
    assert caplog.text.count("The iterable of prompts failed") == 2
    assert caplog.text.count("OptionsError: prompt") == 2
    assert closed == [bad, bad]


@both
def test_a_prompt_that_connect_cannot_send_leaves_nothing_open(library: str) -> None:
    transport = Echo()

    async def work() -> None:
        with pytest.raises(ValueError, match="prompt"):
            await ClaudeSDKClient(transport=transport).connect("\ud800")

    run(library, work)
    assert transport.is_closed


def test_repeated_prompts_are_not_kept() -> None:
    class Repeating(Echo):
        def _answer(self) -> None:
            prompt = {**self.written[-1], "isReplay": True}
            self._lines += [prompt, prompt]
            super()._answer()

    async def work() -> None:
        async with ClaudeSDKClient(transport=Repeating()) as client:
            for word in "ab":
                await client.query(word)
                assert len([one async for one in client.receive_response()]) == 2
            assert client._connection is not None
            assert not client._connection._sent

    run("asyncio", work)
