"""What a session gives to read: messages, events, turns, text; in order, to everybody."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest
from tests.soak.sessions import options, told_by
from tests.support.processes import LIMIT, run, until

from bridle import (
    AssistantMessage,
    Message,
    OutcomeReason,
    ResultMessage,
    SdkOptions,
    Session,
    SessionCompleted,
    SessionEnded,
    SessionFailed,
    SessionReady,
    StreamEvent,
    Subscription,
    Turn,
    start_session,
    sync,
)
from bridle.errors import UsageError
from bridle.testing import FakeCli, text, thinking, tool_use
from bridle.testing.fake_cli import FLAVOURS

greeted = FakeCli().expect_initialize()


async def say(session: Session, words: str) -> str:
    outcome = await (await session.send_user_message(words))
    assert outcome.ok
    return outcome.text


def said(messages: list[Message]) -> list[str]:
    return [message.text for message in messages if isinstance(message, AssistantMessage)]


# ---------------------------------------------------------------- messages


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_messages_come_in_order_and_end_with_the_session(flavour: str) -> None:
    """R006, R008, R369, R374: and are those that the CLI wrote."""
    with FakeCli.auto(flavour=flavour) as cli:
        async with start_session(options(cli)) as session:
            messages = session.messages()
            for number in range(3):
                assert await say(session, f"SAY {number}") == str(number)
        got = [message async for message in messages]
        wire = [line for line in cli.sent if not line["type"].startswith("control_")]
        assert [message.raw for message in got] == wire
        assert said(got) == ["0", "1", "2"]


async def test_the_first_subscription_gets_what_came_before_it_and_later_ones_do_not() -> None:
    """R008."""
    with FakeCli.auto() as cli:
        async with start_session(options(cli)) as session:
            await say(session, "SAY early")
            first, second = session.messages(), session.messages()
            await say(session, "SAY late")
        assert said([message async for message in first]) == ["early", "late"]
        assert said([message async for message in second]) == ["late"]


async def test_every_subscription_gets_every_message() -> None:
    """R010."""
    with FakeCli.auto() as cli:
        async with start_session(options(cli)) as session:
            some = [session.messages() for _ in range(5)]
            both = session.subscribe()
            await say(session, "SAY it")
        got = [[message async for message in one] for one in some]
        assert all(one == got[0] for one in got)
        updates = [update async for update in both]
        assert [one for one in updates if isinstance(one, Message)] == got[0]
        assert isinstance(updates[-1], SessionEnded)


@pytest.mark.parametrize("way", ["break", "aclose", "async with", "drop"])
async def test_leaving_a_subscription_ends_it_alone(way: str) -> None:
    with FakeCli.auto() as cli:
        async with start_session(options(cli), SdkOptions(max_unread_bytes=20_000)) as session:
            other = session.messages()
            await say(session, "SAY early")
            left = session.messages()
            if way == "break":
                reading = asyncio.ensure_future(say(session, "SAY more"))
                async for _ in left:
                    break
                await reading
            elif way == "async with":
                async with left:
                    pass
            elif way == "aclose":
                await left.aclose()
                await left.aclose()
            if way in ("aclose", "async with"):
                assert [message async for message in left] == []
            del left
            gc.collect()
            for number in range(12):  # more than an unread subscription may hold
                await say(session, f"BIG {10_000 + number}")
                await read_until_result(other)
            assert session.alive


async def read_until_result(messages: Subscription[Message]) -> None:
    async with asyncio.timeout(LIMIT):
        async for message in messages:
            if isinstance(message, ResultMessage):
                return


async def test_a_subscription_made_after_the_end_gets_unread_messages_and_ends() -> None:
    with FakeCli.auto() as cli:
        async with start_session(options(cli)) as session:
            await say(session, "SAY it")
        assert said([message async for message in session.messages()]) == ["it"]
        assert [message async for message in session.messages()] == []


async def test_cancelling_the_wait_for_a_message_loses_none() -> None:
    with FakeCli.auto() as cli:
        async with start_session(options(cli)) as session:
            messages = session.messages()
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(messages), 0.01)
            await say(session, "SAY it")
        assert said([message async for message in messages]) == ["it"]


async def test_one_subscription_is_for_one_reader() -> None:
    with FakeCli.auto() as cli:
        async with start_session(options(cli)) as session:
            messages = session.messages()
            first = asyncio.ensure_future(anext(messages))
            await asyncio.sleep(0)
            with pytest.raises(UsageError):
                await anext(messages)
            await say(session, "SAY it")
            assert (await first) is not None


# ---------------------------------------------------------------- events

LAST = {
    "stop": SessionEnded,
    "aclose": SessionEnded,
    "end_input": SessionCompleted,
    "crash": SessionFailed,
}


@pytest.mark.parametrize("way", LAST)
async def test_there_is_exactly_one_last_event(way: str) -> None:
    """R009, R368, R371, C28: whoever listens, and from whenever on."""
    with FakeCli.auto() as cli:
        session = await start_session(options(cli))
        early, again = session.events(), session.events()
        if way == "crash":
            _ = await session.send_user_message("EXIT 7")
        else:
            await getattr(session, way)()
        events = [event async for event in early]
        assert [type(event) for event in events] == [SessionReady, LAST[way]]
        assert [type(event) async for event in again] == [LAST[way]]
        await session.stop()
        await session.aclose()
        assert [event async for event in session.events()] == []
        assert [event async for event in early] == []


async def test_a_session_has_what_the_cli_reported() -> None:
    """R018, R150, C29."""
    for flavour, capable in zip(FLAVOURS, (True, True, False), strict=True):
        with FakeCli.auto(flavour=flavour) as cli:
            async with start_session(options(cli)) as session:
                assert session.id == cli.argv[-1].removeprefix("--session-id=")
                assert session.pid == cli.pid
                assert (session.lifecycle, session.alive) == ("running", True)
                assert bool(session.capabilities) is capable
                assert "commands" in (session.server_info or {})
                assert repr(session) == f"Session({session.id}, running, pid={session.pid})"


async def test_a_first_prompt_goes_over_the_pipe_after_the_handshake() -> None:
    """R003, R247, C16."""
    with FakeCli.auto() as cli:
        async with start_session(options(cli), prompt="a first prompt") as session:
            await read_until_result(session.messages())
        assert [line["type"] for line in cli.received] == ["control_request", "user"]
        assert not any("first prompt" in argument for argument in cli.argv)


# ---------------------------------------------------------------- turns


async def test_a_turn_may_be_read_and_awaited_in_any_order() -> None:
    """R025."""
    with FakeCli.auto() as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message("SAY one")
            assert turn.done is False
            assert said([message async for message in turn]) == ["one"]
            assert (await turn) is (await turn.outcome())
            assert (await turn).uuid == turn.uuid

            turn = await session.send_user_message("SAY two")
            reading = asyncio.ensure_future(collect(turn.__aiter__()))
            outcomes = await asyncio.gather(turn.outcome(), turn.outcome(), turn.outcome())
            assert {id(outcome) for outcome in outcomes} == {id(outcomes[0])}
            assert said(await reading) == ["two"]

            turn = await session.send_user_message("SAY three")
            await until(lambda: turn.done)
            assert said([message async for message in turn]) == ["three"]


async def test_a_loop_over_a_turn_takes_over_from_the_one_before() -> None:
    """R025: two would get some of the messages each."""
    script = FakeCli().expect_initialize().expect_user().start_turn()
    with script.expect_request("set_model").reply().assistant("mine").result() as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message("go")
            first = turn.__aiter__()
            waiting = asyncio.ensure_future(collect(first))
            await asyncio.sleep(0)  # it waits, and the answer is still to come
            reading = asyncio.ensure_future(collect_of(turn))
            await asyncio.sleep(0)
            await session.set_model("opus")
            assert said(await reading) == ["mine"]
            with pytest.raises(UsageError, match=r"(?s)Another loop .*session\.messages"):
                await waiting
            with pytest.raises(UsageError, match="Another loop"):
                await first.__anext__()
            assert await collect_of(turn) == []  # all is read


LEAVING = ["break", "closed", "timeout", "cancelled", "raised", "generator"]


@pytest.mark.parametrize("how", LEAVING)
async def test_a_loop_that_is_left_leaves_the_rest_to_the_next_one(how: str) -> None:
    """R025: however it is left, and whatever still refers to it."""
    with FakeCli.auto() as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message("SLOW 0.2\nSAY the rest")
            some: list[Message] = []
            kept = await leave(turn, some, how)
            some += await collect_of(turn)
            assert said(some)[-1] == "the rest"
            assert [message.raw for message in some] == [
                message.raw async for message in first_turn(session)
            ]
            assert (await turn).ok
            del kept


async def leave(turn: Turn, some: list[Message], how: str) -> object:
    """Read a little; returns what may keep the reader alive."""

    async def read(count: int | None = None) -> None:
        async for message in turn:
            some.append(message)
            if len(some) == count:
                break

    async def passed_on() -> AsyncIterator[Message]:
        async for message in turn:
            yield message

    if how == "closed":
        messages = turn.__aiter__()
        some.append(await messages.__anext__())
        await messages.aclose()
        with pytest.raises(StopAsyncIteration):
            await messages.__anext__()
        return messages
    if how == "timeout":
        try:
            async with asyncio.timeout(0.1):
                await read()
        except TimeoutError as error:
            return error
    if how == "cancelled":
        task = asyncio.ensure_future(read())
        await until(lambda: some)
        task.cancel()
        await asyncio.wait([task])
        return task
    if how == "raised":
        try:
            async for message in turn:
                some.append(message)
                raise KeyError
        except KeyError as error:
            return error
    if how == "generator":
        async for message in (generator := passed_on()):
            some.append(message)
            break
        return generator
    await read(1)
    return None


def first_turn(session: Session) -> AsyncIterator[Message]:
    """The messages up to the first result, to compare with."""

    async def read() -> AsyncIterator[Message]:
        async for message in session.messages():
            yield message
            if isinstance(message, ResultMessage):
                break

    return read()


async def test_a_turn_that_was_only_awaited_reports_that_its_messages_were_dropped() -> None:
    """R025: a loop that begins at the same time as the await gets all messages."""
    with FakeCli.auto() as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message("SAY missed")
            await turn
            with pytest.raises(UsageError, match="Begin the loop over a turn before"):
                turn.text_stream()

            turn = await session.send_user_message("SAY both at once")
            await until(lambda: turn._state.queue.unread_bytes > 0)
            outcome, messages = await asyncio.gather(turn, collect_of(turn))
            assert (outcome.ok, said(messages)) == (True, ["both at once"])


async def test_the_text_of_a_turn_comes_once_also_in_two_streams() -> None:
    with FakeCli.auto() as cli:
        cli_options = options(cli, include_partial_messages=True)
        async with start_session(cli_options) as session:
            turn = await session.send_user_message("SAY some words to be streamed")
            pieces: list[str] = []
            async for piece in turn.text_stream():
                pieces.append(piece)
                break
            pieces += [piece async for piece in turn.text_stream()]
            assert "".join(pieces) == "some words to be streamed"

            turn = await session.send_user_message("SAY some words to be streamed")
            async for message in turn:  # a loop that takes the beginning of the answer
                if isinstance(message, StreamEvent):
                    break
            rest = "".join([piece async for piece in turn.text_stream()])
            assert rest
            assert "some words to be streamed".endswith(rest)


async def collect_of(turn: Turn) -> list[Message]:
    return [message async for message in turn]


async def collect(messages: Subscription[Message]) -> list[Message]:
    return [message async for message in messages]


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_turns_sent_at_once_each_get_an_outcome_and_their_own_messages(flavour: str) -> None:
    with FakeCli.auto(flavour=flavour, latency=0.05) as cli:
        async with start_session(options(cli)) as session:
            sent = [session.send_user_message(f"SAY {number}") for number in range(4)]
            turns = await asyncio.gather(*sent)
            outcomes = await asyncio.gather(*turns)
            assert [outcome.uuid for outcome in outcomes] == [turn.uuid for turn in turns]
            assert all(outcome.ok for outcome in outcomes)
            assert outcomes[0].text == "0"
            assert outcomes[0].merged_with == ()
            rest = {turn.uuid for turn in turns[1:]}
            assert all({o.uuid, *o.merged_with} == rest for o in outcomes[1:])


async def test_a_turn_without_references_runs() -> None:
    with FakeCli.auto() as cli:
        async with start_session(options(cli)) as session:
            messages = session.messages()
            _ = await session.send_user_message("SAY forgotten")
            gc.collect()
            await read_until_result(messages)
            assert await say(session, "SAY next") == "next"


async def test_a_turn_left_half_read_does_not_make_its_reader_a_slow_one() -> None:
    """Leaving the iteration, then waiting for the outcome, holds nothing and ends nothing."""
    with FakeCli.auto() as cli:
        sdk = SdkOptions(max_unread_bytes=20_000)
        cli_options = options(cli, include_partial_messages=True)
        async with start_session(cli_options, sdk) as session:
            turn = await session.send_user_message("STREAM 3000")
            async for _ in turn:
                break
            gc.collect()
            outcome = await turn
            assert outcome.reason is OutcomeReason.COMPLETED

            turn = await session.send_user_message("STREAM 3000")
            try:
                async with asyncio.timeout(0):
                    async for _ in turn:
                        pass
            except TimeoutError:  # which refers to where it was raised
                outcome = await turn
            assert outcome.reason is OutcomeReason.COMPLETED
            assert outcome.uuid == turn.uuid
            assert session.alive


async def test_cancelling_the_wait_for_an_outcome_does_nothing_to_the_turn() -> None:
    with FakeCli.auto(latency=0.1) as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message("SAY it")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(turn.outcome(), 0.01)
            assert (await turn).text == "it"


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_an_interrupt_ends_the_turn_and_the_session_goes_on(flavour: str) -> None:
    """R011, R350."""
    with FakeCli.auto(flavour=flavour) as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message("SLOW")
            await until(lambda: "user" in [line["type"] for line in cli.sent])
            await session.interrupt()
            assert (await turn).reason is OutcomeReason.INTERRUPTED
            assert await say(session, "SAY on") == "on"


# ---------------------------------------------------------------- text

ANSWERS = {
    "one block": ([[text("Hello there, how are you?")]], "Hello there, how are you?"),
    "blocks": ([[thinking("hm"), text("One."), text("Two.")]], "One.\n\nTwo."),
    "around a tool": (
        [[text("Let me look."), tool_use("Read", file_path="/x")], [text("Done.")]],
        "Let me look.\n\nDone.",
    ),
    "tool only": ([[tool_use("Read", file_path="/x")], [text("Seen.")]], "Seen."),
    "unicode": ([[text("Grüße 👩‍👩‍👧 你好")]], "Grüße 👩‍👩‍👧 你好"),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_the_text_stream_has_each_delta_of_the_text_once(
    name: str, partial: bool, flavour: str
) -> None:
    script, expected = ANSWERS[name]
    with FakeCli.auto(script, flavour=flavour) as cli:
        choices = options(cli, include_partial_messages=partial, allowed_tools=["Read"])
        async with start_session(choices) as session:
            stream = session.text_stream()
            messages = session.messages()
            turn = await session.send_user_message("go")
            pieces = [piece async for piece in turn.text_stream()]
            outcome = await turn
            assert "".join(pieces) == expected
            assert expected.endswith(outcome.text)
        assert "".join([piece async for piece in stream]) == expected
        streamed = [m async for m in messages if isinstance(m, StreamEvent)]
        assert bool(streamed) is partial
        assert not any(isinstance(event, SessionFailed) for event in await told_by(session))


def test_text_that_was_held_back_after_a_refusal_comes_when_the_cli_has_crashed() -> None:
    refused = {"type": "user", "message": {"role": "user", "content": "No."}}
    content = [{"type": "text", "text": "Second answer"}]
    message = {"id": "m2", "role": "assistant", "content": content}
    again = {"type": "assistant", "message": message}
    script = greeted.start_turn().emit({**refused, "refused_message_id": "m1"}).emit(again).crash()

    async def main() -> None:
        session = await start_session(options(cli))
        whole = session.text_stream()
        turn = await session.send_user_message("go")
        assert [piece async for piece in turn.text_stream()] == ["Second answer"]
        assert [piece async for piece in whole] == ["Second answer"]
        await session.stop()

    with script as cli:
        run(main)
        blocking = sync.start_session(options(cli))
        pieces = list(blocking.send_user_message("go").text_stream())
        assert pieces == ["Second answer"]
        blocking.stop()
