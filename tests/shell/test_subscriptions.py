"""The queues of readers: order, waiting, nothing lost. The core decides what they hold."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from tests.support.processes import run

from bridle import AssistantMessage, Message, SdkWarning, SessionReady, decode_line
from bridle._engine import actions as act
from bridle._engine.delivery.unread import LINE_COST, Delivery, DeliveryConfig
from bridle._records.raw_line import line_size
from bridle._session.readers.queues import Closed, Queue, Subscriptions
from bridle._session.readers.turn_state import TurnState
from bridle._session.turn import Turn
from bridle.errors import ConsumerTooSlow, UsageError
from bridle.events import WarningKind
from bridle.outcomes import Outcome, OutcomeReason


def message(number: int, more: str = "") -> Message:
    line = b'{"type":"assistant","uuid":"%d","more":"%s","message":{"content":[]}}'
    line %= number, more.encode()
    return cast("Message", decode_line(line))


def size_of(messages: list[Message]) -> int:
    return sum(map(line_size, messages))


def batch(*numbers: int) -> tuple[list[Message], int]:
    """Messages, and how many bytes they are."""
    messages: list[Message] = [message(number) for number in numbers]
    return messages, size_of(messages)


def uuids(messages: list[Message]) -> list[str | None]:
    return [item.uuid for item in messages]


# ---------------------------------------------------------------- queues


async def test_messages_come_out_as_they_went_in_however_many_wait() -> None:
    """R374: arrival order; beyond a megabyte only lines are kept, which changes nothing."""
    sent = [message(number, "x" * 1000) for number in range(2000)]
    queue: Queue[Message] = Queue()
    for start in range(0, len(sent), 7):
        some = sent[start : start + 7]
        queue.put_messages(some, size_of(some))
    assert queue.unread_bytes == size_of(sent)
    received = [await queue.take() for _ in sent]
    assert received == sent
    assert [item.raw for item in received] == [item.raw for item in sent]
    assert (len(queue), queue.unread_bytes) == (0, 0)


async def test_a_queue_reports_each_batch_once_when_it_is_taken() -> None:
    taken: list[tuple[object, int, int]] = []

    def took(reader: object, size: int, items: int) -> bool:
        taken.append((reader, size, items))
        return False

    queue: Queue[Message] = Queue(None, 7, took)
    queue.put_messages(*batch(1, 2, 3))
    queue.put_messages(*batch(4))
    assert taken == []
    reports: list[int] = []
    for _ in range(4):
        await queue.take()
        reports.append(len(taken))
    assert reports == [1, 1, 1, 2]
    assert taken == [(7, batch(1, 2, 3)[1], 3), (7, batch(4)[1], 1)]


async def test_taking_from_an_empty_queue_waits_for_the_next_item() -> None:
    queue: Queue[int] = Queue()
    taking = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    assert not taking.done()
    queue.put([7], 1)
    assert await taking == 7


async def test_a_cancelled_wait_loses_nothing() -> None:
    queue: Queue[int] = Queue()
    taking = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    queue.put([1], 1)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert await queue.take() == 1


async def test_two_tasks_cannot_wait_at_one_queue() -> None:
    queue: Queue[int] = Queue()
    first = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    with pytest.raises(UsageError, match="Another task"):
        await queue.take()
    queue.put([1], 1)
    assert await first == 1


async def test_a_closed_queue_is_emptied_before_it_ends() -> None:
    queue: Queue[int] = Queue()
    queue.put([1], 1)
    queue.close(ValueError("why"))
    queue.close()
    queue.put([2], 1)
    assert await queue.take() == 1
    with pytest.raises(Closed) as end:
        await queue.take()
    assert isinstance(end.value.error, ValueError)


async def test_closing_wakes_the_task_that_waits() -> None:
    queue: Queue[int] = Queue()
    taking = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    queue.close()
    with pytest.raises(Closed):
        await taking


async def test_a_notice_is_taken_in_the_place_of_what_was_dropped() -> None:
    queue: Queue[int] = Queue()
    for number in range(1, 5):
        queue.put([number], 1)
    queue.drop_oldest(-1)
    queue.drop_oldest(-2)
    assert [await queue.take() for _ in range(3)] == [-2, 3, 4]
    assert (len(queue), queue.unread_bytes) == (0, 0)


# ---------------------------------------------------------------- subscriptions


async def unexpected(*_: object) -> None:
    """Send no request: these turns are not interrupted."""
    raise AssertionError("a request was sent")


class Home:
    """Performs what the core decides, as the actor does."""

    def __init__(self, **bounds: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self._emitted: list[act.Action] = []
        self.delivery = Delivery(DeliveryConfig(**bounds), self._emitted.append)
        self.warnings: list[str] = []
        self.resumed = 0
        self.subscriptions = Subscriptions(self.loop, self.delivery, self.react)

    def react(self) -> None:
        self.delivery.account([])
        while self._emitted:
            action = self._emitted.pop(0)
            if isinstance(action, act.Warn):
                self.warnings.append(action.detail)
                self.subscriptions.put_event(SdkWarning(action.kind, action.detail))
            elif isinstance(action, act.Discard):
                self.subscriptions.discard(action.reader)
            elif isinstance(action, act.DropOldest):
                self.subscriptions.drop_oldest(action.reader, action.notice)
            else:
                self.resumed += isinstance(action, act.ResumeReading)

    def put(self, *numbers: int, turns: str = "") -> list[Message]:
        messages, size = batch(*numbers)
        action = act.Deliver(messages, tuple(turns), size)
        self.subscriptions.settle()
        self.delivery.account([action])
        self.subscriptions.put(action.readers, messages, size)
        self.react()
        return messages

    def turn(self, uuid: str = "u") -> TurnState:
        return TurnState(
            self.loop,
            uuid,
            self.subscriptions,
            submit=unexpected,
            is_running=lambda uuid: False,
        )

    def end(self, uuid: str = "u") -> None:
        self.delivery.account([act.TurnEnded(uuid, DONE)])
        self.subscriptions.end_turn(uuid, DONE)


DONE: Outcome[Any] = Outcome(reason=OutcomeReason.COMPLETED)


async def test_a_turn_whose_prompt_was_not_sent_is_forgotten() -> None:
    home = Home()
    sent = home.turn("sent")
    home.turn("not sent")
    assert home.subscriptions.newest_turn == "not sent"
    home.subscriptions.cancel_turn("not sent")
    assert home.subscriptions.newest_turn == "sent"
    home.end("sent")
    assert await sent.outcome == DONE


async def test_messages_kept_as_lines_get_their_agent_path_again() -> None:
    home = Home()
    task = {"type": "system", "subtype": "task_started", "tool_use_id": "one"}
    call = {"type": "tool_use", "id": "two", "name": "Task", "input": {}}
    lines = [
        {**task, "subagent_type": "Explore"},
        {"type": "assistant", "message": {"content": [call]}, "parent_tool_use_id": "one"},
        {"type": "user", "parent_tool_use_id": "two"},
    ]
    messages, _ = home.delivery.agents.decode_all(list(map(msgspec.json.encode, lines)))
    turn = home.turn()
    size = sum(len(message.raw_line) for message in messages)
    action = act.Deliver(messages, ("u",), size)
    home.delivery.account([action])
    home.subscriptions.put(action.readers, messages, size)
    queue = turn.read()
    taken = [await queue.take() for _ in messages]
    assert not any(one is other for one, other in zip(taken, messages, strict=True))
    assert [[step.id for step in each.agent_path] for each in taken] == [
        ["one"],
        ["one"],
        ["one", "two"],
    ]


async def test_events_and_messages_are_delivered_apart_and_together() -> None:
    """R009, R010, C28: separate subscriptions, and one for both in the order they came."""
    home = Home()
    both = home.subscriptions.updates()
    home.subscriptions.put_event(SessionReady("s"))
    home.put(1)
    events = home.subscriptions.events()
    home.subscriptions.close()
    assert [type(await both.take()) for _ in range(2)] == [SessionReady, AssistantMessage]
    assert await events.take() == SessionReady("s")
    late = home.subscriptions.messages()
    for queue in (both, events, late):
        with pytest.raises(Closed):
            await cast("Queue[Any]", queue).take()


async def test_the_first_subscription_gets_the_warning_of_what_it_misses_last() -> None:
    home = Home(backlog_items=2)
    home.put(1, 2, 3)
    updates = home.subscriptions.updates()
    got = [await updates.take() for _ in range(3)]
    assert uuids(cast("list[Message]", got[:2])) == ["2", "3"]
    assert isinstance(got[2], SdkWarning)
    assert got[2].kind is WarningKind.MISSED_MESSAGES


async def test_a_subscription_that_left_gets_nothing_more() -> None:
    home = Home()
    queue = home.subscriptions.messages()
    home.put(1)
    home.subscriptions.leave(queue)
    home.put(2)
    assert len(queue) == 0


async def test_a_subscription_that_is_collected_while_messages_are_put_gets_nothing_more() -> None:
    """The garbage collector may close one between the decision and the put."""
    home = Home()
    queue = home.subscriptions.messages()
    action = act.Deliver(*batch(1)[:1], (), batch(1)[1])
    home.delivery.account([action])
    home.subscriptions.leave(queue)
    home.subscriptions.put(action.readers, action.messages, action.size)
    home.subscriptions.discard(queue.reader)
    home.subscriptions.drop_oldest(queue.reader, SessionReady("s"))
    assert len(queue) == 0


async def test_what_a_reader_takes_no_longer_counts_as_unread() -> None:
    home = Home(max_unread=3 * batch(1)[1])
    quick = home.subscriptions.messages()
    for number in range(20):
        home.put(number % 10)
        await quick.take()
    assert home.warnings == []
    for number in range(4):
        home.put(number)
    assert len(home.warnings) == 1


async def test_reading_resumes_when_the_queue_is_read() -> None:
    home = Home(max_unread=2 * batch(1)[1], pauses_reading=True)
    queue = home.subscriptions.messages()
    for number in range(4):
        home.put(number)
    for _ in range(3):
        assert home.resumed == 0
        await queue.take()
    assert home.resumed == 1


@pytest.mark.parametrize("what", ["subscription", "loop"])
async def test_reading_resumes_when_the_slow_reader_leaves(what: str) -> None:
    home = Home(max_unread=batch(1)[1], pauses_reading=True)
    state = home.turn()
    queue = state.read() if what == "loop" else home.subscriptions.messages()
    home.put(1, 2, turns="u")
    if what == "loop":
        state.leave(queue)
    else:
        home.subscriptions.leave(queue)
    assert home.resumed == 0  # it may be the garbage collector that calls
    await asyncio.sleep(0)
    assert home.resumed == 1


def test_a_subscription_of_a_paused_session_may_outlive_the_event_loop() -> None:
    async def main() -> tuple[Home, Queue[Message]]:
        home = Home(max_unread=1, pauses_reading=True)
        queue = home.subscriptions.messages()
        home.put(1)
        return home, queue

    home, queue = run(main)
    home.subscriptions.leave(queue)
    assert (home.resumed, len(queue)) == (0, 0)


@pytest.mark.parametrize("when", ["subscribed", "early"])
async def test_unread_events_are_bounded_and_what_is_dropped_is_reported(when: str) -> None:
    home = Home()
    events = home.subscriptions.events() if when == "subscribed" else None
    for number in range(10_000):
        home.subscriptions.put_event(SessionReady(str(number)))
    events = events or home.subscriptions.events()
    assert len(events) == 256
    first = await events.take()
    assert isinstance(first, SdkWarning)
    assert first.kind is WarningKind.MISSED_EVENTS
    assert str(10_000 - 256) in first.detail
    rest = [await events.take() for _ in range(256)]
    assert rest[0] == SessionReady(str(10_000 - 256))
    assert rest[-1] == SessionReady("9999")
    assert len(events) == 0


def test_items_are_taken_on_the_loop_they_come_on() -> None:
    """Elsewhere nothing would wake the reader."""
    queues: list[Queue[Message]] = []

    async def make() -> None:
        queues.append(Home().subscriptions.messages())

    async def read() -> None:
        with pytest.raises(RuntimeError, match="event loop it was started on"):
            await queues[0].take()
        queues[0].close()
        with pytest.raises(Closed):
            await queues[0].take()

    run(make)
    run(read)


async def test_nothing_is_kept_for_first_subscriptions_that_cannot_come() -> None:
    home = Home()
    home.put(1)
    home.subscriptions.forget_early()
    home.subscriptions.put_event(SessionReady("s"))
    assert (len(home.subscriptions.messages()), len(home.subscriptions.events())) == (0, 0)
    home.subscriptions.forget_early()


# ---------------------------------------------------------------- turns


async def test_a_turn_keeps_its_messages_for_the_loop_that_iterates_it() -> None:
    home = Home()
    state = home.turn()
    home.put(1, turns="u")
    queue = state.read()
    home.put(2, turns="u")
    home.end()
    assert uuids([await queue.take() for _ in range(2)]) == ["1", "2"]
    assert await state.outcome == DONE
    with pytest.raises(Closed):
        await queue.take()


@pytest.mark.parametrize("when", ["before", "during", "cancelled"])
async def test_awaiting_a_turn_that_no_loop_reads_discards_its_messages(when: str) -> None:
    """Iterating it afterwards raises, whenever the messages came and however the wait ended."""
    home = Home()
    state = home.turn()
    if when == "before":
        home.put(1, turns="u")
        home.end()
    waiting = asyncio.ensure_future(state.wait())
    await asyncio.sleep(0)
    if when == "during":
        home.put(1, turns="u")
        assert len(state.queue) == 0
    if when == "cancelled":
        waiting.cancel()
        await asyncio.wait([waiting])
    else:
        home.end()
        assert await waiting == DONE
    home.put(2, turns="u")
    assert len(state.queue) == 0
    with pytest.raises(UsageError, match="not kept"):
        state.read()


@pytest.mark.parametrize("is_done", [False, True], ids=["running", "done"])
async def test_a_loop_that_begins_with_the_wait_for_the_outcome_misses_nothing(
    is_done: bool,
) -> None:
    home = Home()
    state = home.turn()
    home.put(1, 2, turns="u")
    if is_done:
        home.end()

    async def read() -> list[Message]:
        queue = state.read()
        return [await queue.take() for _ in range(3 - is_done)]

    both = asyncio.gather(state.wait(), read())
    await asyncio.sleep(0)
    home.put(3, turns="u")
    home.end()
    outcome, messages = await both
    assert outcome == DONE
    assert uuids(messages) == ["1", "2", "3"][: 3 - is_done]


async def test_a_second_loop_takes_over_from_the_first() -> None:
    home = Home()
    state = home.turn()
    first = state.read()
    home.put(1, 2, 3, turns="u")
    assert uuids([await first.take()]) == ["1"]
    second = state.read()
    with pytest.raises(Closed) as end:
        await first.take()
    assert isinstance(end.value.error, UsageError)
    state.leave(first)  # no longer the one that reads
    home.put(4, turns="u")
    assert uuids([await second.take() for _ in range(3)]) == ["2", "3", "4"]


async def test_the_messages_of_a_turn_that_are_too_many_are_dropped() -> None:
    home = Home(max_unbegun=2 * (batch(1)[1] + LINE_COST))
    state = home.turn("a")
    home.put(1, 2, turns="a")
    assert len(state.queue) == 2
    home.put(3, turns="a")
    assert (len(state.queue), len(home.warnings)) == (0, 1)
    with pytest.raises(ConsumerTooSlow, match="Iterate a turn right after"):
        state.read()
    state.put_back([message(1)])
    assert len(state.queue) == 0


async def test_what_a_loop_has_taken_and_not_read_is_for_the_next_one() -> None:
    size = batch(1)[1]
    home = Home(max_unread=4 * size)
    state = home.turn("a")
    queue = state.read()
    home.put(1, 2, 3, turns="a")
    taken = [await queue.take() for _ in range(2)]
    state.leave(queue)
    state.put_back(taken)
    assert state.queue.unread_bytes == 3 * size
    home.put(4, turns="a")
    assert home.warnings == []
    queue = state.read()
    assert uuids([await queue.take() for _ in range(4)]) == ["1", "2", "3", "4"]
    state.leave(queue)
    home.put(1, 2, 3, 4, 5, turns="a")
    assert home.warnings[0].startswith(f"5 messages ({5 * size} bytes) of turn a were dropped")


async def test_a_turn_that_the_program_drops_holds_nothing() -> None:
    home = Home(max_unbegun=2 * (batch(1)[1] + LINE_COST))
    state = home.turn("a")
    home.put(1, 2, turns="a")
    del state
    gc.collect()
    assert "a" not in home.subscriptions._queues
    home.end("a")
    kept = home.turn("b")
    home.put(3, 4, turns="ab")
    assert (len(kept.queue), home.warnings) == (2, [])


async def test_a_turn_that_the_program_keeps_does_not_keep_the_session() -> None:
    """Nor its callbacks: only its own queue, and the accounts."""
    home = Home()
    state = home.turn("a")
    home.put(1, turns="a")
    home.end("a")
    gone = weakref.ref(home)
    del home
    gc.collect()
    assert gone() is None
    assert uuids([await state.read().take()]) == ["1"]
    assert await state.wait() == DONE


async def test_what_waits_for_a_loop_is_held_as_lines() -> None:
    home = Home()
    state = home.turn()
    messages = home.put(1, 2, turns="u")
    queue = state.read()
    got = [await queue.take() for _ in range(2)]
    assert got == messages
    assert got[0] is not messages[0]
    messages = home.put(3, turns="u")
    assert await queue.take() is messages[0]
    state.leave(queue)
    messages = home.put(4, turns="u")
    assert await state.read().take() is not messages[0]


class LeftWhileCounted(list[Message]):
    """Messages whose length is asked in the middle of ``Queue.put``. It then calls ``leave``."""

    def __init__(self, messages: list[Message], leave: Callable[[], None]) -> None:
        super().__init__(messages)
        self._leave = leave

    def __len__(self) -> int:
        leave, self._leave = self._leave, lambda: None
        leave()
        return super().__len__()


async def test_a_loop_that_is_collected_during_a_put_loses_no_message() -> None:
    home = Home()
    state = home.turn()
    queue = state.read()
    messages, size = batch(1, 2)
    interrupted = LeftWhileCounted(messages, lambda: state.leave(queue))
    home.subscriptions.put(("u",), interrupted, size)
    home.end()
    following = state.read()
    assert (len(following), following.unread_bytes) == (2, size)
    assert uuids([await following.take() for _ in range(2)]) == ["1", "2"]
    with pytest.raises(Closed):
        await following.take()


async def test_a_loop_that_is_collected_while_its_turn_ends_lets_the_next_loop_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = Home()
    state = home.turn()
    queue = state.read()
    home.put(1, turns="u")

    def collect(error: BaseException | None) -> Closed:
        monkeypatch.undo()
        state.leave(queue)
        return Closed(error)

    monkeypatch.setattr("bridle._session.readers.queues.Closed", collect)
    home.end()
    following = state.read()
    assert uuids([await following.take()]) == ["1"]
    with pytest.raises(Closed):
        await following.take()


async def test_a_loop_that_is_collected_while_the_next_one_begins_takes_nothing_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next loop is the one that reads, so awaiting the outcome keeps its messages."""
    home = Home()
    state = home.turn()
    first = state.read()
    begin_loop = home.delivery.begin_loop

    def collect(uuid: str) -> Any:
        error = begin_loop(uuid)
        state.leave(first)
        return error

    monkeypatch.setattr(home.delivery, "begin_loop", collect)
    second = state.read()
    home.put(1, turns="u")
    home.end()
    assert await state.wait() == DONE
    assert uuids([await second.take()]) == ["1"]


async def test_closing_a_loop_ends_the_wait_of_another_task() -> None:
    home = Home()
    loop = aiter(Turn(home.turn()))
    waiting = asyncio.ensure_future(anext(loop, None))
    await asyncio.sleep(0)
    await loop.aclose()
    assert await waiting is None


async def test_an_event_subscription_that_is_collected_before_its_oldest_event_is_dropped() -> None:
    home = Home()
    queue = home.subscriptions.events()
    queue.clear()
    home.subscriptions.drop_oldest(queue.reader, SdkWarning(WarningKind.MISSED_EVENTS, ""))
    assert len(queue) == 0
