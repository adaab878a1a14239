"""Nothing of a session stays in memory after its end, however its answers were read."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import weakref
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import until, wait_until

import bridle
from bridle import Agent, Session, StartError, start_session, sync
from bridle._runtime.finalizers import when_dropped
from bridle._session.actor import Actor
from bridle._session.readers import subscription
from bridle._session.readers.queues import Queue
from bridle._session.readers.turn_state import TurnState
from bridle.compat.claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient
from bridle.compat.claude_agent_sdk import query as official_query
from bridle.errors import BridleError
from bridle.outcomes import Outcome
from bridle.sync import _iterators as blocking
from bridle.testing import FakeCli, FakeTransport, TransportEvents

KINDS = (
    Actor,
    TurnState,
    Queue,
    Outcome,
    Session,
    sync.Session,
    subscription.Subscription,
    blocking.Subscription,
    blocking.Inbox,
)

SESSIONS = 500 if os.environ.get("BRIDLE_SOAK") else 20
"""Sessions for each way without a process. `make soak` sets the variable."""

PROCESSES = 4
"""Sessions for each way that starts the fake CLI."""


def alive() -> dict[str, int]:
    """Return the number of objects of each kind that are in memory."""
    gc.collect()
    found = Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, KINDS))
    return dict(found)


class Echo(FakeTransport):
    """Answers each prompt. A prompt that begins with "fail" ends the CLI."""

    def write(self, data: bytes) -> None:
        """Answer what the session writes."""
        super().write(data)
        for line in map(json.loads, data.splitlines()):
            if line["type"] == "control_request" and line["request"]["subtype"] != "initialize":
                self.answer(line["request_id"])
            elif line["type"] == "user" and line["message"]["content"] == "fail":
                self.exit(1)
            elif line["type"] == "user":
                self._answer_prompt(line["uuid"])

    def _answer_prompt(self, uuid: str) -> None:
        text = {"type": "text", "text": "hello"}
        uuids = {"user_message_uuids": [uuid], "session_id": "s"}
        self.say(
            {"type": "system", "subtype": "init", **uuids},
            {"type": "assistant", "message": {"id": "m", "content": [text]}},
            {"type": "assistant", "message": {"id": "n", "content": [text]}},
            {"type": "result", "subtype": "success", "is_error": False, "result": "hello", **uuids},
        )


def echo(events: TransportEvents) -> Echo:
    """Return the transport of one session."""
    return Echo()(events)  # type: ignore[return-value]  # the same object


class Left(Exception):
    """Raised by a program inside a loop."""


# ------------------------------------------------------------------- ways of reading a turn


async def loop_over_turn(session: Session) -> None:
    turn = await session.send_user_message("hi")
    async for _ in turn:
        pass
    assert (await turn).ok


async def text_stream(session: Session) -> None:
    turn = await session.send_user_message("hi")
    assert [text async for text in turn.text_stream()] == ["hello", "\n\nhello"]


async def events_of_turn(session: Session) -> None:
    async for _ in (await session.send_user_message("hi")).events():
        pass


async def awaited(session: Session) -> None:
    assert (await (await session.send_user_message("hi"))).ok


async def messages_until_the_end(session: Session) -> None:
    messages = session.messages()
    await awaited(session)
    await session.stop()
    assert [message async for message in messages]


async def updates_until_the_end(session: Session) -> None:
    updates, events = session.subscribe(), session.events()
    await awaited(session)
    await session.stop()
    assert [update async for update in updates]
    assert [event async for event in events]


async def left_by_break(session: Session) -> None:
    turn = await session.send_user_message("hi")
    async for _ in turn:
        break
    async for _ in turn.events():
        break
    async for _ in turn.text_stream():
        break


async def left_by_exception(session: Session) -> None:
    with contextlib.suppress(Left):
        async for _ in await session.send_user_message("hi"):
            raise Left


async def left_by_cancellation(session: Session) -> None:
    async def read() -> None:
        messages = session.messages()
        await awaited(session)
        async for _ in messages:
            reading.set()

    reading = asyncio.Event()
    task = asyncio.ensure_future(read())
    await reading.wait()
    task.cancel()
    await asyncio.wait([task])


async def taken_over(session: Session) -> None:
    turn = await session.send_user_message("hi")
    first = aiter(turn)
    async for _ in turn:
        pass
    for _ in range(2):
        with contextlib.suppress(bridle.errors.UsageError):
            await anext(first)


async def failed(session: Session) -> None:
    turn = await session.send_user_message("fail")
    async for _ in turn:
        pass
    for _ in range(2):
        with contextlib.suppress(BridleError):
            await session.set_model("opus")
    assert not (await turn).ok


READERS: list[Callable[[Session], Awaitable[None]]] = [
    loop_over_turn,
    text_stream,
    events_of_turn,
    awaited,
    messages_until_the_end,
    updates_until_the_end,
    left_by_break,
    left_by_exception,
    left_by_cancellation,
    taken_over,
    failed,
]


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
async def test_a_session_leaves_no_object(read: Callable[[Session], Awaitable[None]]) -> None:
    before = alive()

    async def one() -> None:
        async with start_session(transport_factory=echo) as session:
            await read(session)

    for _ in range(SESSIONS):
        await one()
    await until(lambda: alive() == before)


class Held:
    """A local variable of a reader."""


async def test_a_stored_error_keeps_no_variable_of_its_readers() -> None:
    """A stored exception with a traceback would refer to the frames that it went through."""

    async def read(messages: AsyncIterator[object]) -> weakref.ref[Held]:
        held = Held()
        with contextlib.suppress(bridle.errors.UsageError):
            await anext(messages)
        return weakref.ref(held)

    async with start_session(transport_factory=echo) as session:
        turn = await session.send_user_message("hi")
        first = aiter(turn)
        async for _ in turn:  # takes the turn over, so that the first loop ends with an error
            pass
        found = [await read(first) for _ in range(2)]
        gc.collect()
        assert [one() for one in found] == [None, None]
        with pytest.raises(bridle.errors.UsageError):
            await anext(first)


def test_a_finalizer_keeps_nothing_alive_that_refers_to_its_owner() -> None:
    class Part(Held):
        owner: Held | None = None

        def left(self, _: object) -> None:
            """Do nothing."""

    owner, part, argument = Held(), Part(), Part()
    part.owner = argument.owner = owner
    when_dropped(owner, part.left, argument)
    found = [weakref.ref(one) for one in (owner, part, argument)]
    del owner, part, argument
    gc.collect()
    assert [one() for one in found] == [None, None, None]


@pytest.mark.longer
async def test_a_turn_of_a_running_session_leaves_no_object() -> None:
    async with start_session(transport_factory=echo) as session:
        await awaited(session)
        before = alive()
        for read in (loop_over_turn, text_stream, events_of_turn, left_by_break, awaited):
            for _ in range(SESSIONS):
                await read(session)
        await until(lambda: alive() == before)


@pytest.mark.longer
async def test_a_session_that_does_not_start_leaves_no_object() -> None:
    def refuse(_: TransportEvents) -> Echo:
        raise Left

    async def one(**options: Any) -> None:
        session = Session(**options)
        with contextlib.suppress(Left, StartError):
            await session.connect()

    before = alive()
    for _ in range(SESSIONS):
        await one(transport_factory=refuse)
        await one(cli_path="/nonexistent/claude")
    await until(lambda: alive() == before)


# ------------------------------------------------------------------- blocking twins


def sync_loop(session: sync.Session) -> None:
    turn = session.send_user_message("hi")
    for _ in turn:
        pass
    assert turn.outcome().ok


def sync_text_stream(session: sync.Session) -> None:
    assert list(session.send_user_message("hi").text_stream()) == ["hello", "\n\nhello"]


def sync_events(session: sync.Session) -> None:
    for _ in session.send_user_message("hi").events():
        pass


def sync_outcome(session: sync.Session) -> None:
    assert session.send_user_message("hi").outcome().ok


def sync_messages(session: sync.Session) -> None:
    messages, updates = session.messages(), session.subscribe()
    sync_outcome(session)
    session.stop()
    assert list(messages)
    assert list(updates)


def sync_break(session: sync.Session) -> None:
    for _ in session.send_user_message("hi"):
        break


def sync_exception(session: sync.Session) -> None:
    with contextlib.suppress(Left):
        for _ in session.send_user_message("hi"):
            raise Left


def sync_taken_over(session: sync.Session) -> None:
    turn = session.send_user_message("hi")
    first = iter(turn)
    for _ in turn:
        pass
    for _ in range(2):
        with contextlib.suppress(bridle.errors.UsageError, StopIteration):
            while True:
                next(first)


SYNC_READERS: list[Callable[[sync.Session], None]] = [
    sync_loop,
    sync_text_stream,
    sync_events,
    sync_outcome,
    sync_messages,
    sync_break,
    sync_exception,
    sync_taken_over,
]


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("read", SYNC_READERS, ids=lambda read: read.__name__)
def test_a_blocking_session_leaves_no_object(read: Callable[[sync.Session], None]) -> None:
    before = alive()

    def one() -> None:
        with sync.start_session(transport_factory=echo) as session:
            read(session)

    for _ in range(SESSIONS):
        one()
    wait_until(lambda: alive() == before)


# ------------------------------------------------------------------- the other doors


def agent(cli: FakeCli, home: Path, **options: Any) -> Agent[Any]:
    environment = {"HOME": str(home)}
    return Agent(cli_path=cli.path, inherit_env=["PATH"], env=environment, cwd=str(home), **options)


async def run_once(maker: Callable[..., Agent[Any]]) -> None:
    assert (await maker().run("hi")).ok


async def run_typed(maker: Callable[..., Agent[Any]]) -> None:
    """The answer is corrected in vain."""
    assert not (await maker().run("hi", output_type=int)).ok


async def run_many(maker: Callable[..., Agent[Any]]) -> None:
    async for _, outcome in maker().run_many(["a", "b"], at_once=2):
        assert outcome.ok


async def one_way_query(maker: Callable[..., Agent[Any]]) -> None:
    async for _ in maker().query("hi"):
        pass


async def query_left(maker: Callable[..., Agent[Any]]) -> None:
    async with maker().query("hi") as stream:
        async for _ in stream:
            break


async def query_with_callbacks(maker: Callable[..., Agent[Any]]) -> None:
    async for _ in maker(on_stop=lambda _: None).query("hi"):
        pass


async def query_that_fails(maker: Callable[..., Agent[Any]]) -> None:
    async def prompts() -> AsyncGenerator[str]:
        yield "hi"
        raise Left

    for options in ({}, {"on_stop": lambda _: None}):
        with contextlib.suppress(Left):
            async for _ in maker(**options).query(prompts()):
                pass


async def pool(maker: Callable[..., Agent[Any]]) -> None:
    async with maker().pool(size=1) as places:
        assert (await places.run("hi")).ok
        async with places.session(key="k") as session:
            async for _ in await session.send_user_message("hi"):
                pass


async def sync_doors(maker: Callable[..., Agent[Any]]) -> None:
    def work() -> None:
        blocking_agent = maker().sync
        assert blocking_agent.run("hi").ok
        for _ in blocking_agent.query("hi"):
            pass
        for _ in maker(on_stop=lambda _: None).sync.query("hi"):
            pass
        for _, outcome in blocking_agent.run_many(["a"]):
            assert outcome.ok

    await asyncio.to_thread(work)


async def sync_query_that_fails(maker: Callable[..., Agent[Any]]) -> None:
    def prompts() -> Any:
        yield "hi"
        raise Left

    def work() -> None:
        for options in ({}, {"on_stop": lambda _: None}):
            with contextlib.suppress(Left):
                for _ in maker(**options).sync.query(prompts()):
                    pass

    await asyncio.to_thread(work)


async def drop_in_client(maker: Callable[..., Agent[Any]]) -> None:
    async with ClaudeSDKClient(official(maker)) as client:
        await client.query("hi")
        async for _ in client.receive_response():
            pass


async def drop_in_query(maker: Callable[..., Agent[Any]]) -> None:
    async for _ in official_query(prompt="hi", options=official(maker)):
        pass


def official(maker: Callable[..., Agent[Any]]) -> ClaudeAgentOptions:
    cli: Any = maker().options.cli
    return ClaudeAgentOptions(cli_path=cli.cli_path, cwd=cli.cwd, env=dict(cli.env))


DOORS: list[Callable[[Callable[..., Agent[Any]]], Awaitable[None]]] = [
    run_once,
    run_typed,
    run_many,
    one_way_query,
    query_left,
    query_with_callbacks,
    query_that_fails,
    pool,
    sync_doors,
    sync_query_that_fails,
    drop_in_client,
    drop_in_query,
]


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
async def test_a_door_leaves_no_object(
    door: Callable[[Callable[..., Agent[Any]]], Awaitable[None]], tmp_path: Path
) -> None:
    before = alive()
    with FakeCli.auto(transcripts=True) as cli:
        for _ in range(PROCESSES):
            await door(lambda **options: agent(cli, tmp_path, **options))
        await until(lambda: alive() == before)
