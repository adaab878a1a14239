"""Delivery to consumers: order, bounds, and nothing lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from bridle import AssistantMessage, Message, SdkWarning, SessionReady, decode_line
from bridle._shell.feeds import Feeds
from bridle._shell.mailbox import Closed, Mailbox, size_of
from bridle._shell.turn import TurnState
from bridle.errors import ConsumerTooSlow
from bridle.events import WarningKind
from bridle.outcomes import Outcome, OutcomeReason


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(10):
            return await work()

    return asyncio.run(bounded())


def message(number: int, more: str = "") -> Message:
    line = b'{"type":"assistant","uuid":"%d","more":"%s","message":{"content":[]}}'
    line %= number, more.encode()
    return cast("Message", decode_line(line))


def batch(*numbers: int) -> tuple[list[Message], int]:
    """Messages, and how many bytes they are."""
    messages: list[Message] = [message(number) for number in numbers]
    return messages, size_of(messages)


def uuids(messages: list[Message]) -> list[str | None]:
    return [item.uuid for item in messages]


def test_messages_come_out_as_they_went_in_however_many_wait() -> None:
    """R374: arrival order; beyond a megabyte only lines are kept, which changes nothing."""
    sent = [message(number, "x" * 1000) for number in range(2000)]

    async def main() -> None:
        mailbox: Mailbox[Message] = Mailbox()
        for start in range(0, len(sent), 7):
            some = sent[start : start + 7]
            mailbox.put_messages(some, size_of(some))
        assert mailbox.unread_bytes == size_of(sent)
        received = [await mailbox.take() for _ in sent]
        assert received == sent
        assert [item.raw for item in received] == [item.raw for item in sent]
        assert (len(mailbox), mailbox.unread_bytes) == (0, 0)

    run(main)


def test_taking_from_an_empty_mailbox_waits_for_the_next_item() -> None:
    async def main() -> None:
        mailbox: Mailbox[int] = Mailbox()
        taking = asyncio.ensure_future(mailbox.take())
        await asyncio.sleep(0)
        assert not taking.done()
        mailbox.put(7)
        assert await taking == 7

    run(main)


def test_a_cancelled_wait_loses_nothing() -> None:
    async def main() -> None:
        mailbox: Mailbox[int] = Mailbox()
        taking = asyncio.ensure_future(mailbox.take())
        await asyncio.sleep(0)
        mailbox.put(1)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        assert await mailbox.take() == 1

    run(main)


def test_two_tasks_cannot_wait_at_one_mailbox() -> None:
    async def main() -> None:
        mailbox: Mailbox[int] = Mailbox()
        first = asyncio.ensure_future(mailbox.take())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task"):
            await mailbox.take()
        mailbox.put(1)
        assert await first == 1

    run(main)


def test_a_closed_mailbox_is_emptied_before_it_ends() -> None:
    async def main() -> None:
        mailbox: Mailbox[int] = Mailbox()
        mailbox.put(1)
        mailbox.close(ValueError("why"))
        mailbox.close()
        mailbox.put(2)
        assert await mailbox.take() == 1
        with pytest.raises(Closed) as end:
            await mailbox.take()
        assert isinstance(end.value.error, ValueError)

    run(main)


def test_closing_wakes_whoever_waits() -> None:
    async def main() -> None:
        mailbox: Mailbox[int] = Mailbox()
        taking = asyncio.ensure_future(mailbox.take())
        await asyncio.sleep(0)
        mailbox.close()
        with pytest.raises(Closed):
            await taking

    run(main)


# ---------------------------------------------------------------- feeds


def test_the_first_subscription_gets_what_came_before_it() -> None:
    """R008: later ones begin when they are made."""

    async def main() -> None:
        feeds = Feeds(1 << 20, lambda: None)
        feeds.put_event(SessionReady("s"))
        feeds.put_messages(*batch(1))
        first = feeds.messages()
        feeds.put_messages(*batch(2))
        second = feeds.messages()
        feeds.put_messages(*batch(3))
        assert uuids([await first.take() for _ in range(3)]) == ["1", "2", "3"]
        assert uuids([await second.take()]) == ["3"]
        assert len(second) == 0

    run(main)


def test_events_and_messages_are_told_apart_and_together() -> None:
    """R009, R010, C28: separate subscriptions, and one for both in the order they came."""

    async def main() -> None:
        feeds = Feeds(1 << 20, lambda: None)
        both = feeds.updates()
        feeds.put_event(SessionReady("s"))
        feeds.put_messages(*batch(1))
        events = feeds.events()
        feeds.close(None)
        assert [type(await both.take()) for _ in range(2)] == [SessionReady, AssistantMessage]
        assert await events.take() == SessionReady("s")
        for mailbox in (both, events):
            with pytest.raises(Closed):
                await cast("Mailbox[Any]", mailbox).take()

    run(main)


def test_who_comes_too_late_is_told_so_as_well() -> None:
    async def main() -> None:
        missed = SdkWarning(WarningKind.MISSED_MESSAGES, "some")

        def tell() -> None:
            feeds.put_event(missed)

        feeds = Feeds(200, tell)
        feeds.put_messages([message(1)], 201)
        assert await feeds.updates().take() == missed

    run(main)


def test_what_waits_for_nobody_is_let_go_at_the_limit() -> None:
    async def main() -> None:
        missed: list[str] = []
        feeds = Feeds(200, lambda: missed.append("missed"))
        unread = [feeds.put_messages(*batch(number)) for number in range(10)]
        assert unread == [0] * 10
        assert missed == []
        late = feeds.messages()
        assert (len(late), missed) == (0, ["missed"])
        assert (len(feeds.messages()), missed) == (0, ["missed"])
        feeds.put_messages(*batch(11))
        assert uuids([await late.take()]) == ["11"]

    run(main)


def test_a_subscription_that_left_is_not_kept_for() -> None:
    async def main() -> None:
        feeds = Feeds(1 << 20, lambda: None)
        mailbox = feeds.messages()
        feeds.leave(mailbox)
        assert feeds.put_messages(*batch(1)) == 0
        assert len(mailbox) == 0

    run(main)


def test_the_slowest_subscription_counts() -> None:
    async def main() -> None:
        feeds = Feeds(1 << 20, lambda: None)
        quick, slow = feeds.messages(), feeds.messages()
        feeds.put_messages(*batch(1))
        await quick.take()
        assert feeds.put_messages(*batch(2)) == slow.unread_bytes > quick.unread_bytes

    run(main)


def test_unread_events_count_too() -> None:
    async def main() -> None:
        feeds = Feeds(1 << 20, lambda: None)
        events = feeds.events()
        unread = [feeds.put_event(SessionReady("s")) for _ in range(3)]
        assert 0 < unread[0] < unread[1] < unread[2] == events.unread_bytes
        for _ in range(3):
            await events.take()
        assert events.unread_bytes == 0

    run(main)


# ---------------------------------------------------------------- turns

DONE: Outcome[Any] = Outcome(reason=OutcomeReason.COMPLETED)


def test_a_turn_keeps_its_messages_for_whoever_iterates_it() -> None:
    async def main() -> None:
        state = TurnState(asyncio.get_running_loop(), "u", limit=1 << 20)
        state.put(*batch(1))
        mailbox = state.read()
        state.put(*batch(2))
        state.end(DONE)
        assert uuids([await mailbox.take() for _ in range(2)]) == ["1", "2"]
        assert await state.outcome == DONE
        with pytest.raises(Closed):
            await mailbox.take()

    run(main)


def test_a_turn_whose_outcome_alone_is_awaited_keeps_nothing_and_says_so() -> None:
    async def main() -> None:
        state = TurnState(asyncio.get_running_loop(), "u", limit=1 << 20)
        state.put(*batch(1))
        state.waiting = 1
        state.put(*batch(2))
        assert len(state.mailbox) == 0
        with pytest.raises(RuntimeError, match="not kept"):
            state.read()

    run(main)


def test_a_turn_that_is_iterated_as_soon_as_it_is_awaited_misses_nothing() -> None:
    async def main() -> None:
        state = TurnState(asyncio.get_running_loop(), "u", limit=1 << 20)
        state.put(*batch(1))
        state.waiting = 1
        mailbox = state.read()
        state.put(*batch(2))
        assert uuids([await mailbox.take() for _ in range(2)]) == ["1", "2"]

    run(main)


def test_a_turn_nobody_reads_lets_go_at_the_limit_and_says_so_when_it_is_read() -> None:
    async def main() -> None:
        state = TurnState(asyncio.get_running_loop(), "u", limit=100)
        for number in range(10):
            state.put(*batch(number))
        assert len(state.mailbox) == 0
        with pytest.raises(Closed) as end:
            await state.read().take()
        assert isinstance(end.value.error, ConsumerTooSlow)

    run(main)
