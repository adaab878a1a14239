"""Delivery to consumers: order, bounds, and nothing lost."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from bridle import AssistantMessage, Message, SdkWarning, SessionReady, decode_line
from bridle._shell.feeds import EARLY_BYTES, EARLY_ITEMS, Feeds
from bridle._shell.mailbox import KEPT_EVENTS, Closed, Mailbox, size_of
from bridle._shell.turn import Turns, TurnState
from bridle.errors import ConsumerTooSlow, UsageError
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
        with pytest.raises(UsageError, match="Another task"):
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


Lost = list[tuple[str, int, int, int]]


def turn_of() -> TurnState:
    return TurnState(asyncio.get_running_loop(), "u", deque())


def turns_of(limit: int, held: int, lost: Lost | None = None) -> Turns:
    def dropped(*about: Any) -> None:
        if lost is not None:
            lost.append(about)

    return Turns(asyncio.get_running_loop(), limit, held, dropped)


def test_a_turn_keeps_its_messages_for_whoever_iterates_it() -> None:
    async def main() -> None:
        state = turn_of()
        state.put(*batch(1))
        mailbox = state.read()
        state.put(*batch(2))
        state.end(DONE)
        assert uuids([await mailbox.take() for _ in range(2)]) == ["1", "2"]
        assert await state.outcome == DONE
        with pytest.raises(Closed):
            await mailbox.take()

    run(main)


@pytest.mark.parametrize("when", ["before", "during", "cancelled"])
def test_awaiting_a_turn_that_no_loop_reads_discards_its_messages(when: str) -> None:
    """Iterating it afterwards raises, whenever the messages came and however the wait ended."""

    async def main() -> None:
        state = turn_of()
        if when == "before":
            state.put(*batch(1))
            state.end(DONE)
        waiting = asyncio.ensure_future(state.wait())
        await asyncio.sleep(0)
        if when == "during":
            state.put(*batch(1))
            assert len(state.mailbox) == 0
        if when == "cancelled":
            waiting.cancel()
            await asyncio.wait([waiting])
        else:
            state.end(DONE)
            assert await waiting == DONE
        state.put(*batch(2))
        assert len(state.mailbox) == 0
        with pytest.raises(UsageError, match="not kept"):
            state.read()

    run(main)


@pytest.mark.parametrize("is_done", [False, True], ids=["running", "done"])
def test_a_loop_that_begins_with_the_wait_for_the_outcome_misses_nothing(is_done: bool) -> None:
    async def main() -> None:
        state = turn_of()
        state.put(*batch(1, 2))
        if is_done:
            state.end(DONE)

        async def read() -> list[Message]:
            mailbox = state.read()
            return [await mailbox.take() for _ in range(3 - is_done)]

        both = asyncio.gather(state.wait(), read())
        await asyncio.sleep(0)
        state.put(*batch(3))
        state.end(DONE)
        outcome, messages = await both
        assert outcome == DONE
        assert uuids(messages) == ["1", "2", "3"][: 3 - is_done]

    run(main)


def test_a_turn_that_was_read_to_its_end_can_be_awaited_and_iterated_again() -> None:
    async def main() -> None:
        state = turn_of()
        mailbox = state.read()
        state.put(*batch(1))
        state.end(DONE)
        assert uuids([await mailbox.take()]) == ["1"]
        state.leave(mailbox)
        assert await state.wait() == DONE
        with pytest.raises(Closed):
            await state.read().take()

    run(main)


def test_turns_that_no_loop_has_read_share_a_bound_and_the_oldest_is_dropped_first() -> None:
    async def main() -> None:
        size, lost = batch(1)[1], Lost()
        turns = turns_of(1 << 20, 3 * size, lost)
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
        with pytest.raises(ConsumerTooSlow, match="Iterate a turn right after") as caught:
            first.read()
        assert (caught.value.unread_bytes, caught.value.limit) == (2 * size, 3 * size)
        assert lost == [("a", 2, 2 * size, 3 * size)]

    run(main)


def test_turns_whose_loop_was_left_share_the_larger_bound() -> None:
    async def main() -> None:
        size, lost = batch(1)[1], Lost()
        turns = turns_of(10 * size, 3 * size, lost)
        states = [turns.begin(uuid) for uuid in "abc"]
        for state, numbers in zip(states, (range(1, 6), range(6, 10), range(10, 12)), strict=True):
            mailbox = state.read()
            turns.put([state.uuid], *batch(numbers[0]))
            turns.put([state.uuid], *batch(*numbers[1:]))
            state.leave(mailbox)
        assert lost == []  # eleven messages are held
        turns.put(["c"], *batch(12))
        assert lost == [("a", 5, 5 * size, 10 * size)]
        with pytest.raises(ConsumerTooSlow):
            states[0].read()
        assert uuids([await states[1].read().take() for _ in range(4)]) == ["6", "7", "8", "9"]
        assert uuids([await states[2].read().take() for _ in range(3)]) == ["10", "11", "12"]

    run(main)


def test_messages_that_a_loop_gives_back_count_as_unread() -> None:
    async def main() -> None:
        size, lost = batch(1)[1], Lost()
        turns = turns_of(4 * size, 4 * size, lost)
        state = turns.begin("a")
        mailbox = state.read()
        turns.put(["a"], *batch(1, 2, 3))
        taken = [await mailbox.take() for _ in range(2)]
        state.leave(mailbox)
        state.put_back(taken)
        assert state.mailbox.unread_bytes == 3 * size
        turns.put(["a"], *batch(4))
        assert lost == []
        mailbox = state.read()
        assert uuids([await mailbox.take() for _ in range(4)]) == ["1", "2", "3", "4"]
        state.leave(mailbox)
        turns.put(["a"], *batch(1, 2, 3, 4, 5))
        assert lost == [("a", 5, 5 * size, 4 * size)]
        state.put_back(taken)
        assert len(state.mailbox) == 0

    run(main)


def test_repetitions_of_prompts_count_against_the_larger_bound_only() -> None:
    async def main() -> None:
        size, lost = batch(1)[1], Lost()
        turns = turns_of(20 * size, 2 * size, lost)
        states = [turns.begin(uuid) for uuid in "ab"]
        for number, state in enumerate(states):
            turns.put([state.uuid], *repetition(5 * size))
            turns.put([state.uuid], *batch(number))
        assert lost == []
        turns.put(["b"], *repetition(12 * size))
        assert [(uuid, count) for uuid, count, _, _ in lost] == [("a", 2)]
        mailbox = states[1].read()
        assert [(await mailbox.take()).type for _ in range(3)] == ["user", "assistant", "user"]

    run(main)


def repetition(size: int) -> tuple[list[Message], int]:
    line = b'{"type":"user","isReplay":true,"message":{"content":"%s"}}' % (b"x" * size)
    messages = [cast("Message", decode_line(line))]
    return messages, size_of(messages)


def test_a_turn_that_is_dropped_or_read_does_not_count_against_the_others() -> None:
    async def main() -> None:
        size = batch(1)[1]
        turns = turns_of(1 << 20, 2 * size)
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
        state = turn_of()
        messages, size = batch(1, 2)
        state.put(messages, size)
        mailbox = state.read()
        got = [await mailbox.take() for _ in range(2)]
        assert got == messages
        assert got[0] is not messages[0]
        state.put(messages, size)
        assert await mailbox.take() is messages[0]

    run(main)
