"""Queries on the fake CLI: what is sent, what is heard, how they end, and that nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from tests.support.limits import SetLimits
from tests.support.processes import LIMIT, Programs, is_alive, run, until

import bridle
from bridle import (
    Allow,
    AssistantMessage,
    BidirOptions,
    BridleError,
    BufferOverflow,
    CliExitedDuringInit,
    CliNotFoundError,
    CliOptions,
    Hook,
    InitializationError,
    InitializationTimeout,
    Limits,
    Message,
    OptionsError,
    Outcome,
    OutcomeError,
    QueryStream,
    ResultMessage,
    SdkOptions,
    SdkWarning,
    SpawnError,
    StartError,
    TextBlock,
    ToolServer,
    TransportError,
    Turn,
    UnsupportedCliVersionError,
    query,
    tool,
)
from bridle._observe.listeners import KEPT_WARNINGS
from bridle._process.launch.plan import Launch
from bridle._process.transport import TransportEvents
from bridle._session.actor import Actor
from bridle._session.one_way.one_way_run import OneWayRun
from bridle._session.preflight import settle_keywords
from bridle._session.session import InnerSession
from bridle.errors import (
    CliExitedError,
    FirstEventLimitError,
    IdleLimitError,
    TotalLimitError,
    TurnsLimitError,
    UsageError,
    UsdLimitError,
)
from bridle.events import WarningKind
from bridle.messages import CommandLifecycle
from bridle.outcomes import OutcomeReason
from bridle.telemetry import Observation, QueryEnded
from bridle.testing import FakeCli
from bridle.testing.fake_cli import FLAVOURS

WORDS = "these are my last words"
ANSWER = FakeCli().stderr(WORDS).expect_initialize().turn("Hi.")
GREETED = FakeCli().stderr(WORDS).expect_initialize().expect_user()


def ask(cli: FakeCli, prompt: Any = "hello", sdk: SdkOptions | None = None) -> QueryStream:
    """A query on this fake CLI."""
    return query(prompt, CliOptions(cli_path=cli.path), sdk)


async def read(
    stream: QueryStream, heard: list[Message] | None = None, answered: asyncio.Event | None = None
) -> list[Message]:
    """Everything a stream says; also in ``heard``, should it fail. A result sets ``answered``."""
    messages = [] if heard is None else heard
    async for message in stream:
        messages.append(message)
        if answered is not None and isinstance(message, ResultMessage):
            answered.set()
    return messages


def results(messages: list[Message]) -> list[str | None]:
    """The texts of the results."""
    return [message.result for message in messages if isinstance(message, ResultMessage)]


def kinds(stream: QueryStream) -> list[str]:
    """What a stream warned of."""
    return [str(warning.kind) for warning in stream.warnings]


def prompts_of(cli: FakeCli) -> list[object]:
    """The content of the prompts a fake CLI has read."""
    return [line["message"]["content"] for line in cli.received if line["type"] == "user"]


async def running(stream: QueryStream) -> int:
    """Read one message; the process that runs then."""
    await anext(stream)
    pid = stream.pid
    assert pid is not None
    assert is_alive(pid)
    return pid


def run_of(stream: QueryStream) -> OneWayRun:
    """What a stream holds while it runs."""
    assert isinstance(stream._run, OneWayRun)
    return stream._run


async def test_an_input_that_is_broken_at_the_last_prompt_ends_the_stream() -> None:
    """The report of the failed write may come after the end of input.

    The prompt is larger than a pipe. A small one would be written before the CLI closes its input.
    """
    with FakeCli().expect_initialize().close_stdin().silence() as cli:
        async with asyncio.timeout(LIMIT):
            with pytest.raises(TransportError, match="its input broke"):
                await read(ask(cli, "x" * 1_000_000))


async def test_a_limit_ends_the_prompts_and_stays_the_error() -> None:
    drawn: list[str] = []

    async def prompts() -> AsyncIterator[str]:
        try:
            while True:
                drawn.append("prompt")
                yield "prompt"
                await asyncio.sleep(0.05)
        finally:
            drawn.append("closed")
            raise ValueError("it broke while it was closed")

    script = FakeCli().ignore_sigterm().expect_initialize().silence()
    with script as cli:
        stream = ask(cli, prompts(), SdkOptions(limits=Limits(total=0.5)))
        with pytest.raises(TotalLimitError):
            await read(stream)
    assert drawn[-1] == "closed"
    assert len(drawn) < 20


# ---------------------------------------------------------------- with callbacks


def ask_as_session(cli: FakeCli, prompt: Any = "hello") -> QueryStream:
    """A query with a callback on this fake CLI."""
    bidir = BidirOptions(on_can_use_tool=lambda context: Allow())
    return query(prompt, CliOptions(cli_path=cli.path), None, bidir)


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_query_with_callbacks_runs_as_a_session(flavour: str) -> None:
    with FakeCli.auto(flavour=flavour) as cli:
        stream = ask_as_session(cli)
        assert results(await read(stream)) == ["You said: hello"]
        assert "--permission-prompt-tool=stdio" in cli.argv
        assert cli.pid is not None
        assert not is_alive(cli.pid)
        assert await read(stream) == []


@tool
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@pytest.mark.parametrize(
    "given",
    [
        {"on_pre_tool_use": lambda _: None},
        {"hooks": {"Stop": [Hook(lambda _: None)]}},
        {"on_can_use_tool": lambda _: Allow()},
        {"mcp_servers": {"calc": ToolServer([add])}},
    ],
    ids=["hook", "hooks", "permission", "server"],
)
async def test_each_kind_of_callback_makes_a_query_bidirectional(given: dict[str, Any]) -> None:
    """R031."""
    with FakeCli.auto() as cli:
        stream = query("hello", CliOptions(cli_path=cli.path), None, BidirOptions(**given))
        assert results(await read(stream)) == ["You said: hello"]
        assert "--permission-prompt-tool=stdio" in cli.argv


async def test_a_query_with_callbacks_raises_if_the_cli_ends_without_a_result() -> None:
    script = FakeCli().expect_initialize().expect_user().start_turn().assistant("one").exit(3)
    with script as cli:
        stream, heard = ask_as_session(cli), list[Message]()
        with pytest.raises(CliExitedError) as caught:
            await read(stream, heard)
        assert caught.value.outcome.exit_code == 3
        assert AssistantMessage in map(type, heard)


@pytest.mark.longer
async def test_a_query_with_callbacks_keeps_only_the_turns_that_have_not_ended() -> None:
    """A client of the drop-in may send prompts for days."""

    def alive() -> int:
        gc.collect()
        return sum(isinstance(one, Turn | Outcome) for one in gc.get_objects())

    answered = asyncio.Semaphore(0)

    async def prompts() -> AsyncIterator[str]:
        for number in range(20):
            yield str(number)
            await answered.acquire()

    with FakeCli.auto() as cli:
        before, count = alive(), 0
        async for message in ask_as_session(cli, prompts()):
            if isinstance(message, ResultMessage):
                count += 1
                answered.release()
                if count == 20:
                    assert alive() - before < 10
    assert count == 20


async def test_a_query_with_callbacks_raises_if_the_cli_does_not_start() -> None:
    with FakeCli().exit(1) as cli, pytest.raises(StartError):
        await read(ask_as_session(cli))


async def test_a_query_with_callbacks_raises_what_its_prompts_raise() -> None:
    async def prompts() -> AsyncIterator[str]:
        yield "hello"
        raise LookupError("no more of them")

    with FakeCli.auto() as cli:
        with pytest.raises(LookupError, match="no more"):
            await read(ask_as_session(cli, prompts()))
        assert cli.pid is not None
        assert not is_alive(cli.pid)


@pytest.mark.parametrize("exit_code", [0, 3])
async def test_a_query_with_callbacks_ends_with_the_cli_while_it_waits_for_a_prompt(
    exit_code: int,
) -> None:
    closed: list[bool] = []

    async def prompts() -> AsyncIterator[str]:
        try:
            yield "hello"
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    script = FakeCli().expect_initialize().expect_user().turn("answer").exit(exit_code)
    with script as cli:
        assert results(await read(ask_as_session(cli, prompts()))) == ["answer"]
    assert closed == [True]
    await until(lambda: len(asyncio.all_tasks()) == 1)


def test_a_query_with_callbacks_rejects_a_wrong_prompt_at_once() -> None:
    wrong: Any = 7
    with pytest.raises(OptionsError, match="prompt"):
        query(wrong, None, None, BidirOptions(on_can_use_tool=lambda context: Allow()))


async def test_a_query_with_callbacks_accepts_a_user_message_with_its_uuid() -> None:
    uuid = "6f1c5f4e-0000-4000-8000-000000000001"
    prompt = {"type": "user", "uuid": uuid, "message": {"role": "user", "content": "mine"}}
    with FakeCli.auto() as cli:
        assert results(await read(ask_as_session(cli, prompt))) == ["You said: mine"]
        assert [line.get("uuid") for line in cli.received if line["type"] == "user"] == [uuid]


async def test_a_second_prompt_with_the_uuid_of_one_that_runs_does_not_take_its_outcome() -> None:
    uuid = "6f1c5f4e-0000-4000-8000-000000000001"
    prompt = {"type": "user", "uuid": uuid, "message": {"role": "user", "content": "SLOW"}}
    with FakeCli.auto() as cli:
        session = InnerSession.make(settle_keywords(CliOptions(cli_path=cli.path), None, None, {}))
        async with session:
            turn = await session.send_prompt(prompt)
            with pytest.raises(OptionsError, match="already in use"):
                _ = await session.send_prompt(prompt)
            await turn.interrupt()
            assert (await turn).reason is OutcomeReason.INTERRUPTED


@pytest.mark.parametrize("way", ["break", "drop"])
@pytest.mark.longer(after=1)
async def test_leaving_a_query_with_callbacks_leaves_nothing(way: str) -> None:
    with FakeCli.auto() as cli:
        stream = ask_as_session(cli, "SLOW")
        await anext(stream)
        if way == "break":
            await stream.aclose()
            assert cli.pid is not None
            assert not is_alive(cli.pid)
        del stream
        gc.collect()
        await until(lambda: not is_alive(cli.pid or 0))
        await until(lambda: len(asyncio.all_tasks()) == 1)


# ---------------------------------------------------------------- what is sent


@pytest.mark.parametrize("bidir", [None, BidirOptions()], ids=["none", "empty"])
async def test_a_query_without_callbacks_is_one_way(bidir: BidirOptions | None) -> None:
    """R031."""
    with FakeCli.auto() as cli:
        stream = query("hello", CliOptions(cli_path=cli.path), None, bidir)
        assert results(await read(stream)) == ["You said: hello"]
        assert "--permission-prompt-tool=stdio" not in cli.argv


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_query_is_one_greeting_and_the_prompt_on_stdin(flavour: str) -> None:
    """R410, S003, S024, C45: nothing of it is an argument, and the input ends."""
    with FakeCli.auto(flavour=flavour) as cli:
        stream = ask(cli, "tell me\nall")
        messages = await read(stream)
        assert results(messages) == ["You said: tell me\nall"]
        assert stream.warnings == ()
        first, second = cli.received
        assert (first["type"], first["request"]) == (
            "control_request",
            {"subtype": "initialize"},
        )
        assert second["message"] == {"role": "user", "content": "tell me\nall"}
        assert len(second["uuid"]) == 36
        assert [arg for arg in cli.argv if "tell me" in arg or "permission" in arg] == []
        assert not is_alive(cli.pid or 0)


async def test_blocks_are_one_prompt_and_a_list_of_prompts_is_several() -> None:
    """R409, C45."""
    with FakeCli.auto() as cli:
        await read(ask(cli, [TextBlock("one "), {"type": "text", "text": "prompt"}]))
        assert prompts_of(cli) == [
            [{"type": "text", "text": "one "}, {"type": "text", "text": "prompt"}]
        ]
        await read(ask(cli, ("a", [TextBlock("b")])))
        assert prompts_of(cli) == ["a", [{"type": "text", "text": "b"}]]
        uuids = [line["uuid"] for line in cli.received if line["type"] == "user"]
        assert len(set(uuids)) == 2


async def test_prompts_may_wait_for_answers() -> None:
    """R409, C45: an async iterable is drawn from while the answers are read."""
    answered = asyncio.Event()
    order: list[str] = []

    async def prompts() -> AsyncIterator[object]:
        yield "first"
        await answered.wait()
        order.append("second prompt")
        yield {"type": "user", "message": {"role": "user", "content": "second"}}

    with FakeCli.auto() as cli:
        async for message in ask(cli, prompts()):
            if isinstance(message, ResultMessage):
                order.append(str(message.result))
                answered.set()
    assert order == ["You said: first", "second prompt", "You said: second"]


async def test_a_plain_iterable_is_drawn_from_in_a_thread() -> None:
    """R409: a slow one holds up nothing."""
    threads: set[threading.Thread] = set()
    release = threading.Event()

    def prompts() -> Iterator[str]:
        threads.add(threading.current_thread())
        yield "first"
        release.wait(20)
        yield "second"

    with FakeCli.auto() as cli:
        heard: list[Message] = []
        async for message in ask(cli, prompts()):
            heard.append(message)
            if isinstance(message, ResultMessage):
                release.set()
        assert results(heard) == ["You said: first", "You said: second"]
    assert threading.main_thread() not in threads


async def test_any_async_iterable_will_do() -> None:
    """R409: it need not be a generator."""

    class Countdown:
        def __init__(self) -> None:
            self.left = 2

        def __aiter__(self) -> Countdown:
            return self

        async def __anext__(self) -> str:
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1
            return f"number {self.left}"

    with FakeCli.auto() as cli:
        await read(ask(cli, Countdown()))
        assert prompts_of(cli) == ["number 1", "number 0"]


async def test_a_plain_iterable_that_blocks_does_not_hold_up_the_end() -> None:
    """S013: its thread is left to itself."""
    release, done = threading.Event(), threading.Event()

    def prompts() -> Iterator[str]:
        yield "first"
        release.wait(20)
        done.set()
        yield "never sent"

    with FakeCli.auto() as cli:
        async with ask(cli, prompts()) as stream:
            await running(stream)
        release.set()
        await until(done.is_set)
        await asyncio.sleep(0.01)
        assert prompts_of(cli) == ["first"]


async def test_no_prompt_at_all_is_an_end_without_a_result() -> None:
    """S004."""
    with FakeCli.auto() as cli:
        stream = ask(cli, iter(()))
        assert await read(stream) == []
        assert kinds(stream) == ["no_result"]


async def test_a_large_prompt_gets_through() -> None:
    prompt = "x" * 3_000_000
    with FakeCli().expect_initialize().expect_user(prompt).turn() as cli:
        assert results(await read(ask(cli, prompt))) == ["Done."]
        cli.check()


async def test_the_environment_sets_what_options_leave_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CLAUDE_MODEL", "claude-haiku-4-5")
    with FakeCli.auto() as cli:
        await read(ask(cli))
        assert "--model=claude-haiku-4-5" in cli.argv


# ---------------------------------------------------------------- prompts that fail


async def test_what_the_prompts_raise_reaches_the_reader() -> None:
    """R409: after the messages that came before; the CLI is gone by then."""
    answered = asyncio.Event()

    async def prompts() -> AsyncIterator[str]:
        yield "first"
        await answered.wait()
        raise KeyError("no more ideas")

    heard: list[Message] = []
    with FakeCli.auto() as cli:
        stream = ask(cli, prompts())
        with pytest.raises(KeyError, match="no more ideas"):
            await read(stream, heard, answered)
        assert results(heard) == ["You said: first"]
        assert not is_alive(stream.pid or 0)
        assert await read(stream) == []


async def test_so_does_what_a_plain_iterable_raises() -> None:
    def prompts() -> Iterator[str]:
        yield "first"
        raise KeyError("no more ideas")

    with FakeCli.auto() as cli, pytest.raises(KeyError, match="no more ideas"):
        await read(ask(cli, prompts()))


async def test_prompts_that_are_cancelled_by_themselves_end_the_query() -> None:
    async def prompts() -> AsyncIterator[str]:
        yield "first"
        raise asyncio.CancelledError

    with FakeCli.auto() as cli:
        stream = ask(cli, prompts())
        with pytest.raises(asyncio.CancelledError):
            await read(stream)
        assert not is_alive(stream.pid or 0)


async def test_an_invalid_prompt_is_refused_when_it_comes() -> None:
    cleaned: list[str] = []

    async def prompts() -> AsyncIterator[object]:
        try:
            yield 5
        finally:
            cleaned.append("up")

    source = prompts()
    with FakeCli.auto() as cli:
        with pytest.raises(OptionsError) as caught:
            await read(ask(cli, source))
        assert (caught.value.field, caught.value.cli_path) == ("prompt", cli.path)
    assert cleaned == ["up"]


async def test_prompts_clean_up_when_the_query_is_left() -> None:
    cleaned: list[str] = []

    async def prompts() -> AsyncIterator[str]:
        try:
            yield "first"
            await asyncio.Event().wait()
        finally:
            cleaned.append("up")

    with FakeCli.auto() as cli:
        async with ask(cli, prompts()) as stream:
            await running(stream)
    assert cleaned == ["up"]


@pytest.mark.parametrize("is_stubborn", [True, False])
async def test_prompts_that_do_not_clean_up_do_not_hold_anything_up(is_stubborn: bool) -> None:
    """S013: closing is bounded, and the process goes first."""
    finish = asyncio.Event()

    async def prompts() -> AsyncIterator[str]:
        yield "first"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if is_stubborn:
                await finish.wait()
            raise ValueError("while cleaning up") from None

    with FakeCli.auto() as cli:
        stream = ask(cli, prompts())
        pid = await running(stream)
        closing = asyncio.create_task(stream.aclose())
        await until(lambda: not is_alive(pid))
        await closing
        finish.set()


async def test_a_cli_that_takes_no_prompts_is_given_up() -> None:
    """It gets a moment to end by itself, but no more prompts are drawn for it."""
    stopped = asyncio.Event()

    async def prompts() -> AsyncIterator[str]:
        try:
            while True:
                yield "again"
                await asyncio.sleep(0)
        finally:
            stopped.set()

    with FakeCli().expect_initialize().expect_user().close_stdin().silence() as cli:
        stream = ask(cli, prompts())
        reading = asyncio.create_task(read(stream))
        await stopped.wait()
        assert not run_of(stream).actor.is_gone
        with pytest.raises(TransportError, match="its input broke") as caught:
            await reading
        assert caught.value.operation == "query"
        assert not is_alive(stream.pid or 0)


# ---------------------------------------------------------------- how it ends


class Ending(NamedTuple):
    """A script of the CLI, and what comes of it: an error or warnings."""

    cli: FakeCli
    error: type[BridleError] | None = None
    warnings: tuple[str, ...] = ()
    exit_code: int | None = None
    told: str = ""


REST = b'{"type":"assistant","message":{"ro'
ENDINGS = {
    "in order": Ending(ANSWER),
    "failed result": Ending(GREETED.result("bad", is_error=True), warnings=("exit_after_result",)),
    "exit after result": Ending(ANSWER.exit(3), warnings=("exit_after_result",)),
    "crash after result": Ending(ANSWER.crash(), warnings=("exit_after_result",)),
    "rest after result": Ending(ANSWER.half_line().exit(0), warnings=("incomplete_line",)),
    "more after result": Ending(ANSWER.emit({"type": "brand_new"}).result("again")),
    "no result": Ending(GREETED.exit(0), warnings=("no_result",)),
    "rest and no result": Ending(
        GREETED.half_line(REST).exit(0), warnings=("incomplete_line", "no_result")
    ),
    "failure": Ending(GREETED.assistant("Half").exit(1), TransportError, (), 1, "exit code 1"),
    "crash": Ending(GREETED.crash(), TransportError, (), -9, "SIGKILL"),
    "rest and failure": Ending(
        GREETED.half_line(REST).exit(1), TransportError, (), 1, f"{len(REST)} bytes"
    ),
    "failure at once": Ending(FakeCli().stderr(WORDS).exit(1), CliExitedDuringInit, (), 1, WORDS),
    "not a word": Ending(FakeCli().exit(1), CliExitedDuringInit, (), 1, "logged in"),
    "bad flag": Ending(FakeCli().bad_flag(), UnsupportedCliVersionError, (), 1, "--x"),
    "refused": Ending(
        FakeCli().stderr(WORDS).expect_initialize(error="no agents today").silence(),
        InitializationError,
        told="no agents today",
    ),
    "five bad lines": Ending(
        GREETED.garbage(b"one\ntwo\nthree\nfour\nfive\n").silence(),
        TransportError,
        ("malformed_line",) * 4,
        told="4 bytes that look like plain text",
    ),
    "closed output": Ending(GREETED.close_stdout().silence(), TransportError, told="its output"),
    "closed output after result": Ending(
        ANSWER.close_stdout().ignore_eof().silence(), warnings=("exit_after_result",)
    ),
    "held output": Ending(ANSWER.fork_grandchild(setsid=True, hold_stdout=True).exit(0)),
}


def test_retries_of_a_query_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    retry: dict[str, object] = {"type": "system", "subtype": "api_retry", "attempt": 1}
    late = {**retry, "max_retries": 10, "retry_delay_ms": 6000, "error_status": 529}
    script = FakeCli().expect_initialize().start_turn().emit(late).result().exit(0)

    async def main() -> None:
        with script as cli:
            stream = query("go", CliOptions(cli_path=cli.path))
            assert [one.type async for one in stream if one.type == "system"]

    run(main)
    (record,) = [one for one in caplog.records if "API request" in one.getMessage()]
    assert (record.name, record.levelname) == ("bridle.query", "WARNING")


@pytest.mark.parametrize("name", ENDINGS)
async def test_every_end_is_an_error_or_a_warning_and_leaves_nothing(name: str) -> None:
    """S002, S026, S028, S030."""
    ending = ENDINGS[name]
    told: list[SdkWarning] = []
    with ending.cli as cli:
        stream = ask(cli, sdk=SdkOptions(on_warning=told.append))
        error: BridleError | None = None
        try:
            await read(stream)
        except BridleError as problem:
            error = problem
        assert type(error) is (ending.error or type(None))
        assert kinds(stream) == list(ending.warnings)
        await until(lambda: len(told) == len(ending.warnings))
        assert tuple(told) == stream.warnings
        for pid in filter(None, [cli.pid, *cli.grandchildren]):
            assert not is_alive(pid)
        assert await read(stream) == []
        if error is not None:
            assert ending.told in str(error)
            assert (error.exit_code, error.cli_path) == (ending.exit_code, cli.path)
            assert "--verbose" in error.argv


async def test_stderr_is_reported_and_kept_for_the_error() -> None:
    """S026."""
    lines: list[str] = []
    with GREETED.exit(1) as cli:
        with pytest.raises(TransportError) as caught:
            await read(ask(cli, sdk=SdkOptions(on_stderr=lines.append)))
        assert WORDS in caught.value.stderr_tail
        await until(lambda: lines == [WORDS])


async def test_an_error_of_a_living_cli_has_its_stderr_too() -> None:
    cli = GREETED.huge_line(2000).silence()
    with cli, pytest.raises(BufferOverflow) as caught:
        await read(ask(cli, sdk=SdkOptions(max_buffer_size=1024)))
    assert WORDS in caught.value.stderr_tail


async def test_a_line_over_the_limit_ends_the_stream_and_one_at_the_limit_does_not() -> None:
    """R060, R176, C25: the limit is an option, and here it ends the stream."""
    limit = 1 << 20
    sdk = SdkOptions(max_buffer_size=limit)
    with GREETED.huge_line(limit).result() as cli:
        stream = ask(cli, sdk=sdk)
        assert results(await read(stream)) == ["Done."]
    with GREETED.assistant("before").huge_line(limit + 1).silence() as cli:
        stream = ask(cli, sdk=sdk)
        heard: list[Message] = []
        with pytest.raises(BufferOverflow) as caught:
            await read(stream, heard)
        assert [message.type for message in heard] == ["assistant"]
        assert (caught.value.limit, caught.value.size) == (limit, limit + 1)
        assert not is_alive(stream.pid or 0)


async def test_what_the_cli_asks_is_not_answered() -> None:
    cli = GREETED.ask_permission("Bash", command="ls").wait_for_eof().result()
    with cli:
        stream = ask(cli)
        messages = await read(stream)
        assert [message.type for message in messages] == ["result"]
        assert kinds(stream) == ["unanswered_request"]
        assert [line["type"] for line in cli.received] == ["control_request", "user"]


CLOSES_ITS_INPUT = """
import json
say = lambda **line: print(json.dumps(line), flush=True)
for _ in range(2):
    sys.stdin.readline()
os.close(0)
say(type="system", subtype="init", session_id="s")
while not os.path.exists(sys.argv[0] + ".go"):
    time.sleep(0.01)
say(type="result", subtype="success", is_error=False, result="Done.", session_id="s", num_turns=1)
"""


async def test_prompts_that_the_cli_does_not_take_are_cancelled_and_the_result_arrives(
    tmp_path: Path, set_limits: SetLimits
) -> None:
    set_limits(lost_input=LIMIT)
    path = Programs(tmp_path).python(CLOSES_ITS_INPUT, "claude")

    async def prompts() -> AsyncGenerator[str]:
        yield "one"
        await started.wait()
        yield "two"  # cannot be written
        try:
            await asyncio.Event().wait()
        finally:
            Path(f"{path}.go").touch()
            raise ValueError("late")

    started = asyncio.Event()
    sdk = SdkOptions(skip_version_check=True)
    heard: list[Message] = []
    async for message in bridle.query(prompts(), CliOptions(cli_path=path), sdk):
        heard.append(message)
        started.set()
    assert results(heard) == ["Done."]


async def test_the_query_continues_if_a_listener_fails() -> None:
    """C24, C54."""

    def fail(_: object) -> None:
        raise ValueError("deaf")

    with GREETED.garbage().result() as cli:
        stream = ask(cli, sdk=SdkOptions(on_stderr=fail, on_warning=fail))
        assert results(await read(stream)) == ["Done."]
        await until(lambda: len(stream.warnings) == 3)
        assert sorted(kinds(stream)) == [
            "event_callback_failed",
            "malformed_line",
            "stderr_callback_failed",
        ]


# ---------------------------------------------------------------- starting


async def test_nothing_is_started_before_the_first_step() -> None:
    with FakeCli.auto() as cli:
        stream = ask(cli)
        assert (stream.pid, stream.warnings, cli.runs) == (None, (), [])
        assert repr(stream) == "QueryStream(not started, pid=None)"
        await stream.aclose()
        assert await read(stream) == []
        async with stream:
            assert cli.runs == []


@pytest.mark.parametrize(
    ("cli", "sdk", "field"),
    [
        ({"permission_prompt_tool_name": "stdio"}, {}, "permission_prompt_tool_name"),
        ({"settings": "/no/such/settings.json", "sandbox": {"enabled": True}}, {}, "settings"),
        ({"model": 5}, {}, "model"),
    ],
)
def test_options_are_refused_at_once(cli: dict[str, Any], sdk: dict[str, Any], field: str) -> None:
    with pytest.raises(OptionsError) as caught:
        query("x", CliOptions(**cli), SdkOptions(**sdk))
    assert caught.value.field == field


def test_a_prompt_is_refused_at_once() -> None:
    for prompt in (5, [], ["fine", 5]):
        with pytest.raises(OptionsError, match="prompt"):
            query(prompt)  # type: ignore[arg-type]  # that is the point


async def test_a_cli_that_cannot_be_started_is_an_error_of_the_first_step(tmp_path: Path) -> None:
    """R138, S023, S025."""
    stream = query("x", CliOptions(cli_path=str(tmp_path / "nothing")))
    with pytest.raises(CliNotFoundError):
        await anext(stream)
    assert await read(stream) == []
    with FakeCli.auto() as cli:
        stream = query("x", CliOptions(cli_path=cli.path, cwd=str(tmp_path / "nowhere")))
        with pytest.raises(SpawnError, match="nowhere") as caught:
            async with stream:
                pass
        assert (caught.value.cli_path, stream.pid) == (cli.path, None)


async def test_real_api_calls_can_be_forbidden(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By whatever calls itself a CLI; a fake one, by its own name, calls nobody."""
    monkeypatch.setenv("BRIDLE_FORBID_REAL_API", "1")
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    with FakeCli.auto() as cli:
        disguised = tmp_path / "claude"
        disguised.symlink_to(cli.path)
        with pytest.raises(OptionsError, match="BRIDLE_FORBID_REAL_API"):
            await anext(query("hello", CliOptions(cli_path=str(disguised))))
        assert cli.runs == []
        assert results(await read(ask(cli))) == ["You said: hello"]


async def test_a_cli_that_says_nothing_is_given_up() -> None:
    with FakeCli().stderr(WORDS).silence() as cli:
        told = ""
        for seconds in (0.3, 3.0, 30.0):  # a busy machine may start it too slowly
            stream = ask(cli, sdk=SdkOptions(init_timeout=seconds))
            with pytest.raises(InitializationTimeout) as caught:
                await read(stream)
            assert not is_alive(stream.pid or 0)
            told = caught.value.stderr_tail
            if WORDS in told:
                break
        assert WORDS in told


# ---------------------------------------------------------------- versions


@pytest.mark.parametrize("permissive", [True, False])
@pytest.mark.parametrize("after", [0.0, 1.0])
async def test_a_cli_that_is_too_old_never_gets_the_prompt(permissive: bool, after: float) -> None:
    """S025, C21, C22: whatever is permitted, and however slowly it tells its version."""
    with FakeCli.auto().version("1.9.9 (Claude Code)", after=after) as cli:
        stream = ask(cli, sdk=SdkOptions(permissive_version_check=permissive))
        with pytest.raises(UnsupportedCliVersionError) as caught:
            await read(stream)
        assert (caught.value.found, caught.value.cli_version) == ("1.9.9", "1.9.9")
        assert prompts_of(cli) == []
        assert not is_alive(stream.pid or 0)


UNKNOWN = {
    "unreadable": FakeCli.auto().version("no idea"),
    "failing": FakeCli.auto().version(exit_code=9),
    "silent": FakeCli.auto().version(hang=True),
}


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("policy", ["strict", "permissive", "skip"])
async def test_an_unknown_version_is_refused_unless_that_is_permitted(
    name: str, policy: str, set_limits: SetLimits
) -> None:
    """S017, S022, S025, C22: the warning comes before anything else."""
    set_limits(reporting_version=0.3)
    sdk = SdkOptions(
        permissive_version_check=policy == "permissive", skip_version_check=policy == "skip"
    )
    with UNKNOWN[name]._set() as cli:
        stream = ask(cli, sdk=sdk)
        if policy == "strict":
            with pytest.raises(UnsupportedCliVersionError, match="permissive_version_check"):
                await read(stream)
            assert prompts_of(cli) == []
            return
        await anext(stream)
        assert kinds(stream) == ["version_inconclusive"] * (policy == "permissive")
        assert results(await read(stream)) == ["You said: hello"]


# ---------------------------------------------------------------- leaving


# Each way of leaving a query that has begun to speak.


async def _break(stream: QueryStream) -> None:
    async for _ in stream:
        break


async def _raise(stream: QueryStream) -> None:
    with contextlib.suppress(ZeroDivisionError):
        async for _ in stream:
            raise ZeroDivisionError


async def _cancel(stream: QueryStream) -> None:
    heard: list[Message] = []
    reading = asyncio.create_task(read(stream, heard))
    await until(lambda: heard)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def _leave(stream: QueryStream) -> None:
    async with stream:
        await anext(stream)


async def _close(stream: QueryStream) -> None:
    await anext(stream)
    await asyncio.gather(stream.aclose(), stream.aclose())
    await stream.aclose()
    assert await read(stream) == []


async def _drop(stream: QueryStream) -> None:
    await anext(stream)


LEAVING = {
    "break": _break,
    "exception": _raise,
    "cancel": _cancel,
    "context": _leave,
    "close": _close,
    "drop": _drop,
}
ENDLESS = GREETED.assistant("still here").fork_grandchild(setsid=True).ignore_sigterm().silence()


@pytest.mark.parametrize("name", LEAVING)
@pytest.mark.longer(after=2)
async def test_leaving_early_leaves_nothing(name: str) -> None:
    """S013: the whole process tree ends, even if it ignores SIGTERM."""
    with ENDLESS._set() as cli:
        await LEAVING[name](ask(cli))
        gc.collect()  # an exception that was caught may hold the stream in a cycle
        await until(lambda: cli.pid)
        await until(lambda: not is_alive(cli.pid or 0))
        await until(lambda: not any(map(is_alive, cli.grandchildren)))
        await until(lambda: len(asyncio.all_tasks()) == 1)


async def test_closing_returns_when_all_processes_have_ended() -> None:
    """S013: also for whoever waits for a message at that time."""
    with ENDLESS._set() as cli:
        stream = ask(cli)
        pid = await running(stream)
        await until(lambda: cli.grandchildren)
        waiting = asyncio.create_task(read(stream))
        await asyncio.sleep(0)
        await stream.aclose()
        assert not any(map(is_alive, [pid, *cli.grandchildren]))
        assert await waiting == []
        assert (stream.warnings, repr(stream)) == ((), f"QueryStream(over, pid={pid})")


async def test_a_closed_query_warns_of_nothing_and_keeps_nothing() -> None:
    """S013: that the CLI did not end in order is no news then."""
    with ANSWER.ignore_eof().assistant("unread").silence() as cli:
        stream = ask(cli)
        while not isinstance(await anext(stream), ResultMessage):
            pass
        await until(lambda: len(run_of(stream).messages))
        await stream.aclose()
        assert (stream.warnings, len(run_of(stream).messages)) == ((), 0)
        assert run_of(stream).actor._armed == math.inf  # nor later


async def test_a_close_that_is_cancelled_goes_on() -> None:
    with ENDLESS._set() as cli:
        stream = ask(cli)
        pid = await running(stream)
        closing = asyncio.create_task(stream.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        await until(lambda: not is_alive(pid))


async def test_a_wait_that_is_cancelled_loses_nothing() -> None:
    with FakeCli.auto(latency=0.1) as cli:
        stream = ask(cli)
        heard: list[Message] = []
        while True:
            try:
                heard.append(await asyncio.wait_for(anext(stream), 0.005))
            except TimeoutError:
                continue
            except StopAsyncIteration:
                break
        assert results(heard) == ["You said: hello"]


def test_a_loop_that_ends_takes_its_queries_along() -> None:
    with ENDLESS._set() as cli:
        kept: list[QueryStream] = []

        async def main() -> None:
            kept.append(ask(cli))
            await running(kept[0])

        run(main)
        assert not is_alive(cli.pid or 0)
        kept.clear()  # dropped after its loop is gone, which is nobody's problem


async def test_one_task_at_a_time_may_read() -> None:
    with ENDLESS._set() as cli:
        async with ask(cli) as stream:
            await anext(stream)
            waiting = asyncio.create_task(anext(stream))
            await asyncio.sleep(0)
            with pytest.raises(UsageError, match="Another task"):
                await anext(stream)
            waiting.cancel()


# ---------------------------------------------------------------- more than one, and much


@pytest.mark.requirement("S087")
async def test_queries_do_not_mix() -> None:
    """S019."""
    with FakeCli.auto() as cli:
        said = await asyncio.gather(*(read(ask(cli, f"number {n}")) for n in range(3)))
        assert [results(messages) for messages in said] == [
            [f"You said: number {n}"] for n in range(3)
        ]


async def test_a_slow_reader_makes_the_cli_wait() -> None:
    """R410: what is unread is bounded, nothing is lost, and no warning is due."""
    count, size = 300, 50_000
    with GREETED.repeat(count, FakeCli().assistant("x" * size)).result() as cli:
        stream = ask(cli)
        await anext(stream)
        run_ = run_of(stream)
        await until(lambda: run_.actor.engine.delivery.is_paused)
        await asyncio.sleep(0.2)  # time to fill up, if it did not wait
        assert 4 << 20 < run_.messages.unread_bytes < 5 << 20
        assert results(await read(stream)) == ["Done."]
        assert stream.warnings == ()


async def test_unread_bytes_can_be_bounded_further() -> None:
    with GREETED.repeat(100, FakeCli().assistant("x" * 10_000)).result() as cli:
        stream = ask(cli, sdk=SdkOptions(max_unread_bytes=100_000))
        first = await anext(stream)
        run_ = run_of(stream)
        await until(lambda: run_.actor.engine.delivery.is_paused)
        assert run_.messages.unread_bytes < 300_000
        assert len([first, *await read(stream)]) == 101


# ---------------------------------------------------------------- limits


class Excess(NamedTuple):
    """What a CLI does, the limit that reaches, and the error of it."""

    cli: FakeCli
    limits: dict[str, Any]
    error: type[OutcomeError]
    #: The last that is heard before.
    last: type[Message] | None
    prompts: Sequence[str] = ("hello", "again")


LINGERING = ANSWER.turn("Ho.").silence()
CALLS = FakeCli().assistant("one").assistant("two").assistant("three")
EXCESSES = {
    "first_event": Excess(GREETED.silence(), {"first_event": 0.3}, FirstEventLimitError, None),
    "idle": Excess(
        GREETED.start_turn().assistant("one").silence(),
        {"idle": 0.3},
        IdleLimitError,
        AssistantMessage,
    ),
    "total": Excess(
        GREETED.start_turn().forever(FakeCli().assistant("one").silence(0.05)),
        {"total": 0.5, "idle": 5.0},
        TotalLimitError,
        AssistantMessage,
    ),
    "first_event of the second": Excess(
        ANSWER.expect_user().silence(),
        {"first_event": 0.3, "idle": 9.0},
        FirstEventLimitError,
        ResultMessage,
    ),
    "idle at the end": Excess(LINGERING, {"idle": 0.3}, IdleLimitError, ResultMessage),
    "total at the end": Excess(LINGERING, {"total": 0.5}, TotalLimitError, ResultMessage),
    "turns": Excess(
        GREETED.start_turn().repeat(1, CALLS).silence(),
        {"turns": 2},
        TurnsLimitError,
        AssistantMessage,
    ),
}


@pytest.mark.parametrize("name", EXCESSES)
async def test_a_limit_ends_the_query_with_its_error_after_what_came(name: str) -> None:
    """Limits of ours bound what the application waits for."""
    case = EXCESSES[name]
    with case.cli._set() as cli:
        stream = ask(cli, [*case.prompts], SdkOptions(limits=Limits(**case.limits)))
        heard: list[Message] = []
        with pytest.raises(case.error) as caught:
            await read(stream, heard)
        said = [one for one in heard if not isinstance(one, CommandLifecycle)]
        assert [type(one) for one in said[-1:]] == [case.last][: case.last is not None]
        assert not is_alive(stream.pid or 0)
        outcome = caught.value.outcome
        assert str(outcome.reason) == f"limit_{name.split()[0]}"
        assert (caught.value.cli_path, WORDS in caught.value.stderr_tail) == (cli.path, True)
        assert await read(stream) == []


async def test_a_slow_reader_is_not_a_silent_cli(monkeypatch: pytest.MonkeyPatch) -> None:
    """The idle clock stands still while the CLI is made to wait."""
    sdk = SdkOptions(max_unread_bytes=20_000, limits=Limits(idle=LIMIT))
    with GREETED.start_turn().repeat(20, FakeCli().assistant("x" * 10_000)).result() as cli:
        stream = ask(cli, sdk=sdk)
        await anext(stream)
        run_ = run_of(stream)
        await until(lambda: run_.actor.engine.delivery.is_paused)
        loop = asyncio.get_running_loop()
        late = loop.time() + 1.5 * LIMIT
        monkeypatch.setattr(loop, "time", lambda: late)  # longer than silence may last
        for _ in range(3):
            await asyncio.sleep(0)
        monkeypatch.undo()
        assert results(await read(stream)) == ["Done."]


# ---------------------------------------------------------------- without a CLI


class Script:
    """A transport without a process, which answers a prompt with these lines."""

    def __init__(self, events: TransportEvents, *lines: bytes, exit_code: int = 0) -> None:
        self.events = events
        self.lines = lines
        self.exit_code = exit_code
        self.written = b""
        self.is_closed = False

    pid = None
    stderr_tail = "scripted"

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None: ...

    def end_input(self) -> None:
        for line in self.lines:
            self.events.received(line)
        self.events.output_ended()
        self.events.exited(self.exit_code)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    async def aclose(self) -> None:
        self.is_closed = True


def scripted(*lines: bytes, exit_code: int = 0) -> tuple[SdkOptions, list[tuple[Launch, Script]]]:
    """Options with a runner, and what it was called with."""
    calls: list[tuple[Launch, Script]] = []

    def runner(launch: Launch, events: TransportEvents) -> Script:
        script = Script(events, *lines, exit_code=exit_code)
        calls.append((launch, script))
        return script

    return SdkOptions(runner=runner), calls


async def test_a_runner_takes_the_place_of_the_cli(monkeypatch: pytest.MonkeyPatch) -> None:
    """R411: nothing is looked for, started or asked for its version."""
    monkeypatch.setenv("PATH", os.devnull)
    sdk, calls = scripted(b'{"type":"result","result":"scripted"}\n')
    stream = query("hello", CliOptions(model="opus"), sdk)
    assert calls == []
    assert results(await read(stream)) == ["scripted"]
    ((launch, script),) = calls
    assert "--model=opus" in launch.argv
    assert b'"subtype":"initialize"' in script.written.splitlines()[0]
    assert b'"content":"hello"' in script.written.splitlines()[1]
    assert (script.is_closed, stream.pid, stream.warnings) == (True, None, ())


@pytest.mark.parametrize("prompts", [["one"], ["one", "two"]])
async def test_a_limit_in_dollars_makes_a_query_a_session_except_with_a_runner(
    prompts: list[str],
) -> None:
    """A one-way query cannot ask the CLI for its cost. Results tell that of a runner."""
    limited = SdkOptions(limits=Limits(usd=0.5))
    with FakeCli.auto() as cli:
        await read(ask(cli, prompts, limited))
        assert "--permission-prompt-tool=stdio" in cli.argv
        assert [word for word in cli.argv if word.startswith("--max-budget-usd")] == []
    sdk, calls = scripted(b'{"type":"result","result":"x","total_cost_usd":0.75}\n')
    with pytest.raises(UsdLimitError) as caught:
        await read(query(prompts, sdk=sdk.replace(limits=limited.limits)))
    assert caught.value.outcome.cost_usd == 0.75
    ((launch, _),) = calls
    assert "--permission-prompt-tool=stdio" not in launch.argv


async def test_a_runner_may_fail_like_a_cli() -> None:
    """R411."""
    sdk, _ = scripted(exit_code=1)
    with pytest.raises(CliExitedDuringInit) as caught:
        await read(query("hello", sdk=sdk))
    assert (caught.value.exit_code, caught.value.stderr_tail) == (1, "scripted")


async def test_a_runner_may_refuse_to_start() -> None:
    """R411: and may even speak before it has returned."""

    def refuse(launch: Launch, events: TransportEvents) -> Script:
        raise SpawnError("not today")

    def hasty(launch: Launch, events: TransportEvents) -> Script:
        script = Script(events, b'{"type":"result","result":"at once"}\n')
        script.end_input()
        return script

    stream = query("hello", sdk=SdkOptions(runner=refuse))
    with pytest.raises(SpawnError, match="not today"):
        await anext(stream)
    assert results(await read(query("hello", sdk=SdkOptions(runner=hasty)))) == ["at once"]


async def test_a_query_that_does_not_start_leaves_no_task() -> None:
    def refuse(launch: Launch, events: TransportEvents) -> Script:
        raise SpawnError("not today")

    for enter in (anext, QueryStream.__aenter__):
        with pytest.raises(SpawnError):
            await enter(query("hello", sdk=SdkOptions(runner=refuse)))
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_end_of_a_query_names_the_error_that_the_runner_raised() -> None:
    class BrokenError(Exception):
        pass

    def fail(launch: Launch, events: TransportEvents) -> Script:
        raise BrokenError("broken")

    class Notes:
        def __init__(self) -> None:
            self.ended: list[QueryEnded] = []

        def observe(self, observation: Observation, /) -> None:
            if isinstance(observation, QueryEnded):
                self.ended.append(observation)

    notes = Notes()
    with pytest.raises(BrokenError) as caught:
        await anext(query("hello", sdk=SdkOptions(runner=fail, telemetry=notes)))
    [ended] = notes.ended
    assert (ended.failure, ended.error) == ("BrokenError", caught.value)


@pytest.mark.parametrize("is_session", [False, True], ids=["one-way", "with callbacks"])
async def test_a_query_keeps_the_same_number_of_warnings_with_and_without_callbacks(
    is_session: bool,
) -> None:
    bidir = BidirOptions(on_can_use_tool=lambda _: Allow()) if is_session else None
    with FakeCli().expect_initialize().turn("Hi.") as cli:
        stream = query("hello", CliOptions(cli_path=cli.path), None, bidir)
        async with stream:
            actor = actor_of(stream)
            for number in range(KEPT_WARNINGS + 1):
                warning = SdkWarning(WarningKind.STDERR_CALLBACK_FAILED, str(number))
                actor.outlet._deliver(warning)
            kept = [warning.detail for warning in stream.warnings]
    assert kept == [str(number) for number in range(1, KEPT_WARNINGS + 1)]


def actor_of(stream: QueryStream) -> Actor:
    running: Any = stream._run
    return cast("Actor", running.actor if isinstance(running, OneWayRun) else running._actor)
