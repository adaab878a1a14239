"""Reading the events of a turn: breaks, other loops, ends of every kind, memory."""

from __future__ import annotations

import asyncio

import pytest
from tests.soak.sessions import options
from tests.support.processes import LIMIT
from tests.support.turn_lines import parts, start

from bridle import ConsumerTooSlow, OutcomeReason, SdkOptions, Turn, start_session, sync
from bridle.errors import ControlRejected, ControlTimeout, OptionsError, UsageError
from bridle.events import BlockEnded, TextDelta, ToolStarted, TurnEnded, TurnEvent
from bridle.testing import FakeCli

greeted = FakeCli().expect_initialize()
two_blocks = greeted.expect_user().start_turn().assistant("one").assistant("two").result()


async def rest(turn: Turn) -> list[TurnEvent]:
    async with asyncio.timeout(LIMIT):
        return [event async for event in turn.events()]


def texts(events: list[TurnEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, TextDelta)]


def reason(event: TurnEvent) -> OutcomeReason:
    assert isinstance(event, TurnEnded)
    return event.outcome.reason


async def test_events_that_a_loop_leaves_are_kept_for_the_next_one() -> None:
    with two_blocks.wait_for_eof() as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message("go")
            async for event in turn.events():
                assert event == TextDelta("one")
                break
            events = await rest(turn)
            assert isinstance(events[0], BlockEnded)
            assert texts(events) == ["two"]
            assert reason(events[-1]) is OutcomeReason.COMPLETED
            assert events[-1:] == await rest(turn)  # every loop has its end


async def test_a_loop_over_messages_ends_a_loop_over_events() -> None:
    with two_blocks.wait_for_eof() as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message("go")
            events = turn.events()
            assert await anext(events) == TextDelta("one")
            messages = [message async for message in turn]
            assert messages
            assert isinstance(await anext(events), BlockEnded)  # taken before
            with pytest.raises(UsageError):
                await anext(events)


async def test_closed_events_end_without_an_outcome() -> None:
    with greeted.expect_user().start_turn().wait_for_eof() as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message("go")
            async with turn.events() as events:
                pass
            assert [event async for event in events] == []


async def test_events_and_the_outcome_can_be_awaited_together() -> None:
    with two_blocks.wait_for_eof() as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message("go")
            events = turn.events()
            outcome = await turn
            assert [event async for event in events][-1] == TurnEnded(outcome)


begun = (
    greeted.expect_user()
    .start_turn()
    .emit(*(start() + parts({"type": "text", "text": "half"}, closed=False)).splitlines())
)


@pytest.mark.parametrize(
    ("cli", "expected"),
    [(begun.crash(), OutcomeReason.CLI_EXITED), (begun.exit(0), OutcomeReason.CLI_EXITED)],
    ids=["crash", "exit"],
)
async def test_the_outcome_is_the_last_event_if_the_cli_ends(
    cli: FakeCli, expected: OutcomeReason
) -> None:
    with cli:
        async with start_session(options(cli)) as session:
            events = await rest(await session.send_user_message("go"))
            assert reason(events[-1]) is expected
            assert events[-2] == BlockEnded("text", abandoned=True)


@pytest.mark.parametrize("way", ["stop", "aclose"])
async def test_the_outcome_is_the_last_event_if_the_session_ends(way: str) -> None:
    with FakeCli.auto() as cli:
        session = await start_session(options(cli))
        turn = await session.send_user_message("HANG")
        reading = asyncio.create_task(rest(turn))
        await asyncio.sleep(0)
        await getattr(session, way)()
        assert isinstance((await reading)[-1], TurnEnded)


async def test_unread_events_are_bounded_as_messages_are() -> None:
    with FakeCli.auto() as cli:
        sdk = SdkOptions(max_unread_bytes=20_000)
        async with start_session(options(cli), sdk) as session:
            first = await session.send_user_message("BIG 100000")
            second = await session.send_user_message("SAY done")
            assert (await second).ok
            with pytest.raises(ConsumerTooSlow):
                first.events()


# ---------------------------------------------------------------- interrupt

UNUSED = {"cancelled": False}


async def test_a_running_turn_is_interrupted_by_name() -> None:
    script = begun.expect_request("interrupt").reply({"turn": "stopped"}).result()
    with script.wait_for_eof() as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message("go")
            async for event in turn.events():
                if isinstance(event, TextDelta | ToolStarted):
                    await turn.interrupt()
            requests = [one["request"] for one in cli.received if "request" in one]
            assert requests[1:] == [{"subtype": "interrupt", "for_user_message_uuids": [turn.uuid]}]
            await turn.interrupt()  # it has ended: nothing is sent


async def test_a_prompt_that_the_cli_has_just_taken_is_interrupted_after_all() -> None:
    script = greeted.expect_user().expect_request("cancel_async_message").reply(UNUSED)
    script = script.expect_request("interrupt").reply().start_turn().result()
    with script.wait_for_eof() as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message("go")
            await turn.interrupt()
            assert isinstance((await rest(turn))[-1], TurnEnded)


async def test_a_rejected_request_is_an_error_unless_the_turn_has_ended() -> None:
    refused = greeted.expect_user().expect_request("cancel_async_message").refuse("no")
    with refused.wait_for_eof() as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message("go")
            with pytest.raises(ControlRejected):
                await turn.interrupt()
            with pytest.raises(OptionsError):
                await turn.interrupt(timeout=0)


async def test_an_interrupt_without_a_response_times_out() -> None:
    silent = greeted.expect_user().expect_request("cancel_async_message").ignore()
    with silent.wait_for_eof() as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message("go")
            with pytest.raises(ControlTimeout):
                await turn.interrupt(timeout=0.1)


async def test_an_interrupt_after_the_end_of_the_session_raises_nothing() -> None:
    silent = greeted.expect_user().expect_request("cancel_async_message").ignore()
    with silent.wait_for_eof() as cli:
        session = await start_session(options(cli))
        turn = await session.send_user_message("go")
        waiting = asyncio.create_task(turn.interrupt())
        await asyncio.sleep(0)
        await session.stop()
        await waiting
        assert (await turn).reason is OutcomeReason.STOPPED


def test_blocking_loops_over_events_keep_what_they_leave() -> None:
    with two_blocks.wait_for_eof() as cli, sync.start_session(options(cli)) as session:
        turn = session.send_user_message("go")
        with turn.events() as events:
            assert next(events) == TextDelta("one")
        left = list(turn.events())
        assert isinstance(left[0], BlockEnded)
        assert texts(left) == ["two"]
        assert reason(left[-1]) is OutcomeReason.COMPLETED
        turn.interrupt()
    with begun.wait_for_eof() as cli, sync.start_session(options(cli)) as session:
        events = session.send_user_message("go").events()
        events.aclose()
        assert list(events) == []
