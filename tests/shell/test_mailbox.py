"""Delivery to consumers: order, bounds, and nothing lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from bridle import AssistantMessage, Message, SdkWarning, SessionReady, decode_line
from bridle._shell.feeds import EARLY_BYTES, EARLY_ITEMS, Feeds
from bridle._shell.mailbox import KEPT_EVENTS, Closed, Mailbox, size_of
from bridle._shell.turn import Turns, TurnState
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
        with pytest.raises(RuntimeError, match="Another task"):
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
        feeds = feeds_of()
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
        feeds = feeds_of()
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


def test_the_first_subscription_is_told_what_it_misses() -> None:
    async def main() -> None:
        missed = SdkWarning(WarningKind.MISSED_MESSAGES, "some")
        feeds = feeds_of(lambda *_: feeds.put_event(missed))
        feeds.put_messages(*batch(*range(EARLY_ITEMS + 1)))
        updates = feeds.updates()
        got = [await updates.take() for _ in range(EARLY_ITEMS + 1)]
        assert got[-1] == missed

    run(main)


@pytest.mark.parametrize("at_once", [1, 100, 700])
def test_the_newest_messages_are_kept_for_the_first_subscription(at_once: int) -> None:
    async def main() -> None:
        missed: list[tuple[int, int]] = []
        feeds = feeds_of(lambda *counts: missed.append(counts))
        feeds.put_event(SessionReady("s"))
        for start in range(0, 700, at_once):
            assert feeds.put_messages(*batch(*range(start, start + at_once))) == 0
        assert missed == []
        late = feeds.messages()
        kept = [str(number) for number in range(700 - EARLY_ITEMS, 700)]
        assert uuids([await late.take() for _ in range(EARLY_ITEMS)]) == kept
        assert missed == [(700 - EARLY_ITEMS, 0)]
        assert (len(feeds.messages()), len(missed)) == (0, 1)
        feeds.put_messages(*batch(1))
        assert uuids([await late.take()]) == ["1"]

    run(main)


def test_large_messages_are_bounded_by_bytes_until_the_first_subscription() -> None:
    async def main() -> None:
        missed: list[tuple[int, int]] = []
        feeds = feeds_of(lambda *counts: missed.append(counts))
        feeds.put_event(SessionReady("s"))
        for number in range(5):
            large = message(number, "x" * (EARLY_BYTES // 3))
            feeds.put_messages([large], size_of([large]))
        updates = feeds.updates()
        got = [cast("Message", await updates.take()) for _ in range(2)]
        assert (uuids(got), missed) == (["3", "4"], [(3, 1)])
        assert len(updates) == 0

    run(main)


def feeds_of(missed: Callable[[int, int], object] = lambda *_: None) -> Feeds:
    return Feeds(asyncio.get_running_loop(), cast("Callable[[int, int], None]", missed))


def test_a_subscription_that_left_is_not_kept_for() -> None:
    async def main() -> None:
        feeds = feeds_of()
        mailbox = feeds.messages()
        feeds.leave(mailbox)
        assert feeds.put_messages(*batch(1)) == 0
        assert len(mailbox) == 0

    run(main)


def test_the_slowest_subscription_counts() -> None:
    async def main() -> None:
        feeds = feeds_of()
        quick, slow = feeds.messages(), feeds.messages()
        feeds.put_messages(*batch(1))
        await quick.take()
        assert feeds.put_messages(*batch(2)) == slow.unread_bytes > quick.unread_bytes

    run(main)


def test_unread_events_count_where_they_are_read_with_messages() -> None:
    async def main() -> None:
        feeds = feeds_of()
        updates = feeds.updates()
        unread = [feeds.put_event(SessionReady("s")) for _ in range(3)]
        assert 0 < unread[0] < unread[1] < unread[2] == updates.unread_bytes
        for _ in range(3):
            await updates.take()
        assert updates.unread_bytes == 0

    run(main)


@pytest.mark.parametrize("when", ["subscribed", "early"])
def test_unread_events_are_bounded_and_what_is_dropped_is_told(when: str) -> None:
    async def main() -> None:
        feeds = feeds_of()
        events = feeds.events() if when == "subscribed" else None
        assert {feeds.put_event(SessionReady(str(number))) for number in range(10_000)} == {0}
        events = events or feeds.events()
        assert len(events) == KEPT_EVENTS
        first = await events.take()
        assert isinstance(first, SdkWarning)
        assert first.kind is WarningKind.MISSED_EVENTS
        assert str(10_000 - KEPT_EVENTS) in first.detail
        rest = [await events.take() for _ in range(KEPT_EVENTS)]
        assert rest[0] == SessionReady(str(10_000 - KEPT_EVENTS))
        assert rest[-1] == SessionReady("9999")
        assert len(events) == 0

    run(main)


def test_items_are_taken_on_the_loop_they_come_on() -> None:
    """Elsewhere nothing would wake the reader."""
    homes: list[Mailbox[Message]] = []

    async def make() -> None:
        homes.append(feeds_of().messages())

    async def read() -> None:
        with pytest.raises(RuntimeError, match="event loop it was started on"):
            await homes[0].take()
        homes[0].close()
        with pytest.raises(Closed):
            await homes[0].take()

    run(make)
    run(read)


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


def test_turns_that_no_loop_has_read_share_a_bound_and_the_oldest_is_dropped_first() -> None:
    async def main() -> None:
        size = batch(1)[1]
        turns = Turns(asyncio.get_running_loop(), limit=1 << 20, held=3 * size)
        first, second, third = (turns.begin(uuid) for uuid in "abc")
        turns.put(["a"], *batch(1))
        turns.put(["a", "b"], *batch(2))
        turns.put(["b"], *batch(3))
        assert [len(state.mailbox) for state in (first, second)] == [0, 2]
        turns.put(["c"], *batch(4))
        turns.end("b", DONE)
        assert uuids([await second.read().take() for _ in range(2)]) == ["2", "3"]
        turns.put(["c"], *batch(5, 6))
        assert uuids([await third.read().take() for _ in range(3)]) == ["4", "5", "6"]
        with pytest.raises(Closed) as end:
            await first.read().take()
        assert isinstance(end.value.error, ConsumerTooSlow)
        assert (end.value.error.unread_bytes, end.value.error.limit) == (2 * size, 3 * size)
        assert "Iterate a turn right after" in str(end.value.error)

    run(main)


def test_a_turn_that_is_dropped_or_read_does_not_count_against_the_others() -> None:
    async def main() -> None:
        size = batch(1)[1]
        turns = Turns(asyncio.get_running_loop(), limit=1 << 20, held=2 * size)
        gone, read, kept = (turns.begin(uuid) for uuid in "abc")
        turns.put(["a"], *batch(1, 2))
        del gone
        mailbox = read.read()
        assert turns.put(["b"], *batch(3, 4, 5)) == mailbox.unread_bytes > 2 * size
        turns.put(["c"], *batch(6))
        turns.put(["unknown", "c"], *batch(7))
        assert uuids([await kept.read().take() for _ in range(2)]) == ["6", "7"]

    run(main)


def test_what_waits_for_a_loop_is_held_as_lines() -> None:
    async def main() -> None:
        state = TurnState(asyncio.get_running_loop(), "u", limit=1 << 20)
        messages, size = batch(1, 2)
        state.put(messages, size)
        mailbox = state.read()
        got = [await mailbox.take() for _ in range(2)]
        assert got == messages
        assert got[0] is not messages[0]
        state.put(messages, size)
        assert await mailbox.take() is messages[0]

    run(main)
