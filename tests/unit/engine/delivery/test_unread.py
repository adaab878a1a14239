"""What readers get, and how unread messages are bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import pytest

from bridle._engine import actions as act
from bridle._engine.config import EngineConfig
from bridle._engine.delivery.unread import EVENT_COST, LINE_COST, Delivery, DeliveryConfig
from bridle._engine.engine import Engine
from bridle._engine.state import Lifecycle
from bridle._engine.wire.codec import decode_line
from bridle._records.raw_line import line_size
from bridle.errors import BridleError, ConsumerTooSlow, UsageError
from bridle.events import SdkWarning, SessionFailed, SessionReady, WarningKind
from bridle.messages import Message
from bridle.outcomes import Outcome, OutcomeReason

DONE: Outcome = Outcome(reason=OutcomeReason.COMPLETED)
EVENT = SessionReady("s")

_Kind = TypeVar("_Kind", bound=act.Action)


def message(number: int, more: str = "") -> Message:
    line = b'{"type":"assistant","uuid":"%d","more":"%s","message":{"content":[]}}'
    return cast("Message", decode_line(line % (number, more.encode())))


def echo(size: int) -> Message:
    line = b'{"type":"user","isReplay":true,"message":{"content":"%s"}}' % (b"x" * size)
    return cast("Message", decode_line(line))


SIZE = line_size(message(1))
COST = SIZE + LINE_COST


class Readers:
    """A delivery, and the messages in the queues that it decides about."""

    def __init__(self, **bounds: Any) -> None:
        self.emitted: list[act.Action] = []
        self.delivery = Delivery(DeliveryConfig(**bounds), self.emitted.append)
        self.queues: dict[act.Reader, list[str | None]] = {}

    def deliver(self, turns: Sequence[str], *messages: Message) -> tuple[act.Reader, ...]:
        action = act.Deliver(list(messages), tuple(turns), sum(map(line_size, messages)))
        self.delivery.account([action])
        self._put(action)
        return action.readers

    def attribute(self, turns: Sequence[str], *messages: Message) -> act.Attribute:
        action = act.Attribute(list(messages), tuple(turns))
        self.delivery.account([action])
        self._put(action)
        return action

    def _put(self, action: act.Deliver | act.Attribute) -> None:
        for reader in action.readers:
            self.queues.setdefault(reader, []).extend(each.uuid for each in action.messages)
        for discard in self.took(act.Discard):
            self.queues[discard.reader] = []

    def took(self, kind: type[_Kind]) -> list[_Kind]:
        """Take the emitted actions of a kind."""
        found: list[_Kind] = [action for action in self.emitted if isinstance(action, kind)]
        self.emitted[:] = [action for action in self.emitted if not isinstance(action, kind)]
        return found

    def failure(self) -> ConsumerTooSlow | None:
        return self.delivery.failure

    def warnings(self) -> list[str]:
        return [action.detail for action in self.took(act.Warn)]

    def subscribe(self, *, messages: bool = True, events: bool = False) -> int:
        return self.delivery.subscribe(messages=messages, events=events).reader

    def turns(self, uuids: str) -> None:
        for uuid in uuids:
            self.delivery.open_turn(uuid)

    def begin_loop(self, uuid: str) -> None:
        assert self.delivery.begin_loop(uuid) is None


# ---------------------------------------------------------------- subscriptions


def test_messages_go_to_the_subscriptions_that_are_open() -> None:
    """R010: each subscription gets every message from the moment it is opened."""
    readers = Readers()
    assert readers.deliver((), message(1)) == ()
    first = readers.subscribe()
    events = readers.subscribe(messages=False, events=True)
    both = readers.subscribe(events=True)
    assert readers.deliver((), message(2)) == (first, both)
    assert readers.delivery.publish(EVENT) == (events, both)
    readers.delivery.closed(first)
    readers.delivery.closed(first)
    assert readers.deliver((), message(3)) == (both,)
    assert readers.emitted == []


def test_the_first_subscription_begins_with_what_came_before_it() -> None:
    """R008: later ones begin when they are opened."""
    readers = Readers()
    readers.delivery.publish(EVENT)
    readers.deliver((), message(1), message(2))
    assert readers.delivery.subscribe(events=True).backlog == ()
    opened = readers.delivery.subscribe(messages=True, events=True)
    lines = [message(1).raw_line, message(2).raw_line]
    assert opened.backlog == [([EVENT], EVENT_COST), (lines, 2 * SIZE)]
    assert readers.delivery.subscribe(messages=True).backlog == ()
    assert readers.emitted == []


def test_a_first_subscription_to_messages_begins_without_the_events() -> None:
    readers = Readers(backlog_items=2)
    readers.delivery.publish(EVENT)
    readers.delivery.publish(EVENT)
    readers.deliver((), message(1))
    opened = readers.delivery.subscribe(messages=True)
    assert opened.backlog == [([message(1).raw_line], SIZE)]
    assert readers.warnings() == []  # an event is missing, which this reader never gets


@pytest.mark.parametrize("at_once", [1, 100, 700])
def test_the_newest_messages_are_kept_for_the_first_subscription(at_once: int) -> None:
    readers = Readers()
    readers.delivery.publish(EVENT)
    for start in range(0, 700, at_once):
        readers.deliver((), *(message(number) for number in range(start, start + at_once)))
    opened = readers.delivery.subscribe(messages=True, events=True)
    lines = [line for batch, _ in opened.backlog for line in batch]
    assert sum(size for _, size in opened.backlog) == sum(map(len, cast("list[bytes]", lines)))
    assert lines == [message(number).raw_line for number in range(700 - 256, 700)]
    [detail] = readers.warnings()
    assert detail.startswith("444 messages and 1 events were dropped")


@pytest.mark.parametrize("at_once", [1, 5])
def test_what_is_kept_for_the_first_subscription_is_bounded_in_bytes(at_once: int) -> None:
    readers = Readers()
    large = [message(number, "x" * ((1 << 20) // 3)) for number in range(5)]
    readers.delivery.publish(EVENT)
    for start in range(0, 5, at_once):
        readers.deliver((), *large[start : start + at_once])
    opened = readers.delivery.subscribe(messages=True, events=True)
    lines = [line for batch, _ in opened.backlog for line in batch]
    assert sum(size for _, size in opened.backlog) == sum(map(len, cast("list[bytes]", lines)))
    assert lines == [each.raw_line for each in large[3:]]
    [detail] = readers.warnings()
    assert detail.startswith("3 messages and 1 events were dropped")


def test_a_message_larger_than_the_bound_leaves_nothing_for_the_first_subscription() -> None:
    readers = Readers(backlog_bytes=2 * SIZE)
    readers.deliver((), message(1))
    readers.deliver((), message(2, "x" * 3 * SIZE))
    assert readers.delivery.subscribe(messages=True).backlog == []
    assert readers.warnings()[0].startswith("2 messages were dropped")


def test_the_memory_of_what_is_kept_for_the_first_subscription_is_bounded() -> None:
    """Also while it is not taken: at most twice of what it would get."""
    readers = Readers(backlog_items=10, backlog_bytes=100 * SIZE)
    for number in range(1, 50):
        readers.deliver((), *(message(each) for each in range(number)))
        assert readers.delivery._backlog is not None
        kept = [item for items, _ in readers.delivery._backlog._batches for item in items]
        assert len(kept) <= 20


def test_nothing_is_kept_for_a_first_subscription_that_cannot_come() -> None:
    readers = Readers()
    readers.deliver((), message(1))
    readers.delivery.drop_backlog()
    readers.deliver((), message(2))
    assert readers.delivery.subscribe(messages=True).backlog == ()


# ---------------------------------------------------------------- slow readers


def test_the_slowest_reader_leads_to_one_warning_and_then_to_the_failure() -> None:
    """C58: the warning at the limit, the failure at four times that."""
    readers = Readers(max_unread=3 * SIZE)
    quick, slow = readers.subscribe(), readers.subscribe()
    for number in range(1, 13):
        readers.deliver((), message(number % 10))
        readers.delivery.took(quick, SIZE, 1)
    assert readers.warnings() == [f"{4 * SIZE} bytes wait to be read, {3 * SIZE} are allowed"]
    assert readers.failure() is None
    readers.deliver((), message(1))
    failure = readers.failure()
    assert failure is not None
    assert (failure.unread_bytes, failure.limit) == (13 * SIZE, 12 * SIZE)
    readers.deliver((), message(1))
    assert readers.failure() is failure
    assert readers.warnings() == []
    assert [readers.delivery.error_for(each) for each in (slow, 99)] == [failure, None]


def test_a_reader_that_keeps_up_is_never_slow() -> None:
    readers = Readers(max_unread=2 * SIZE)
    reader = readers.subscribe()
    for number in range(100):
        readers.deliver((), message(number % 10), message(number % 10))
        readers.delivery.took(reader, 2 * SIZE, 2)
    assert (readers.warnings(), readers.failure()) == ([], None)


def test_what_a_closed_subscription_has_not_read_does_not_count() -> None:
    readers = Readers(max_unread=2 * SIZE)
    for reader in range(1, 6):
        assert readers.subscribe() == reader
        readers.deliver((), message(1), message(2))
        readers.delivery.closed(reader)
        assert not readers.delivery.took(reader, SIZE, 1)  # from its last batch
    readers.deliver((), message(1))
    assert not readers.delivery.took(5, SIZE, 1)
    assert readers.emitted == []


def test_unread_events_count_where_they_are_read_with_messages() -> None:
    readers = Readers(max_unread=2 * EVENT_COST)
    both = readers.subscribe(events=True)
    for _ in range(8):
        readers.delivery.publish(EVENT)
    assert len(readers.warnings()) == 1
    assert readers.failure() is None
    readers.delivery.took(both, EVENT_COST, 1)
    readers.delivery.publish(EVENT)
    assert readers.failure() is None
    readers.delivery.publish(EVENT)
    assert readers.failure() is not None


def test_a_subscription_to_events_keeps_the_newest_and_is_never_slow() -> None:
    readers = Readers(max_events=3, max_unread=1)
    reader = readers.subscribe(messages=False, events=True)

    def dropped() -> list[str]:
        found: list[str] = []
        for action in readers.took(act.DropOldest):
            assert action.reader == reader
            assert isinstance(action.notice, SdkWarning)
            assert action.notice.kind is WarningKind.MISSED_EVENTS
            found.append(action.notice.detail)
        return found

    for _ in range(5):
        readers.delivery.publish(EVENT)
    kept = "at most 3 are kept unread"
    assert dropped() == [f"{count} events were dropped, {kept}" for count in (1, 2)]
    readers.delivery.took(reader, 0, 0)  # the notice
    readers.delivery.took(reader, EVENT_COST, 1)
    for _ in range(2):
        readers.delivery.publish(EVENT)
    assert dropped() == [f"1 events were dropped, {kept}"]
    assert (readers.emitted, readers.delivery.error_for(reader)) == ([], None)


# ---------------------------------------------------------------- pausing


def test_a_one_way_session_pauses_reading_for_a_slow_reader() -> None:
    readers = Readers(max_unread=4 * SIZE, pauses_reading=True)
    reader = readers.subscribe()
    for _ in range(30):
        readers.deliver((), message(1))
    assert readers.took(act.PauseReading) == [act.PauseReading()]
    for _ in range(27):
        assert not readers.delivery.took(reader, SIZE, 1)
    assert readers.emitted == []
    assert readers.delivery.took(reader, SIZE, 1)
    assert readers.took(act.ResumeReading) == [act.ResumeReading()]
    assert not readers.delivery.took(reader, SIZE, 1)
    assert (readers.emitted, readers.failure()) == ([], None)


@pytest.mark.parametrize("way", ["closed", "left"])
def test_reading_resumes_when_the_slow_reader_leaves(way: str) -> None:
    readers = Readers(max_unread=SIZE, pauses_reading=True)
    readers.turns("a")
    if way == "left":
        readers.begin_loop("a")
        readers.deliver("a", message(1), message(2))
        readers.delivery.left_loop("a", 0, 0)
    else:
        reader = readers.subscribe()
        readers.deliver((), message(1), message(2))
        readers.delivery.closed(reader)
    assert readers.took(act.PauseReading) == [act.PauseReading()]
    readers.delivery.publish(EVENT)
    assert readers.took(act.ResumeReading) == [act.ResumeReading()]


def test_a_paused_session_with_large_bounds_pauses_early() -> None:
    readers = Readers(pauses_reading=True)
    readers.subscribe()
    readers.deliver((), message(1, "x" * (4 << 20)))
    assert readers.took(act.PauseReading) == [act.PauseReading()]


# ---------------------------------------------------------------- turns


def test_a_turn_that_the_program_holds_gets_its_messages() -> None:
    readers = Readers()
    readers.turns("ab")
    reader = readers.subscribe()
    assert readers.deliver("a", message(1)) == (reader, "a")
    assert readers.deliver(["a", "b", "unknown"], message(2)) == (reader, "a", "b")
    late = readers.attribute("b", message(3))
    assert (late.readers, late.size) == (("b",), SIZE)
    readers.delivery.closed("b")
    assert readers.deliver(["b"], message(4)) == (reader,)
    readers.delivery.account([act.TurnEnded("a", DONE), act.TurnEnded("b", DONE)])
    assert readers.deliver(["a"], message(5)) == (reader,)


def test_the_loop_over_a_turn_counts_as_a_slow_reader() -> None:
    readers = Readers(max_unread=2 * SIZE)
    readers.turns("a")
    readers.begin_loop("a")
    readers.deliver("a", message(1), message(2))
    assert readers.emitted == []
    readers.attribute("a", message(3))
    assert len(readers.warnings()) == 1
    readers.delivery.took("a", 3 * SIZE, 3)
    readers.deliver("a", *(message(number) for number in range(8)))
    assert readers.failure() is None
    readers.attribute("a", message(8))
    assert readers.failure() is not None


@pytest.mark.parametrize("when", ["before", "during", "cancelled"])
def test_awaiting_a_turn_that_no_loop_reads_discards_its_messages(when: str) -> None:
    """Whenever the messages came and however the wait ended; a later loop raises."""
    readers = Readers()
    readers.turns("a")
    if when == "before":
        readers.deliver("a", message(1))
        readers.delivery.account([act.TurnEnded("a", DONE)])
    readers.delivery.begin_wait("a")
    if when == "during":
        assert readers.deliver("a", message(1)) == ()
    assert readers.delivery.end_wait("a") is (when != "during")
    assert readers.deliver("a", message(2)) == ()
    assert isinstance(readers.delivery.begin_loop("a"), UsageError)
    assert not readers.delivery.put_back("a", SIZE, 1)


def test_a_loop_that_begins_during_the_wait_for_the_outcome_gets_everything() -> None:
    readers = Readers()
    readers.turns("a")
    readers.deliver("a", message(1))
    readers.delivery.begin_wait("a")
    readers.begin_loop("a")
    assert readers.deliver("a", message(2)) == ("a",)
    readers.delivery.account([act.TurnEnded("a", DONE)])
    assert not readers.delivery.end_wait("a")
    assert readers.queues["a"] == ["1", "2"]


def test_a_loop_that_is_left_during_the_wait_leaves_nothing() -> None:
    readers = Readers()
    readers.turns("a")
    readers.delivery.begin_wait("a")
    readers.begin_loop("a")
    readers.deliver("a", message(1))
    readers.delivery.left_loop("a", 0, 0)
    assert readers.deliver("a", message(2)) == ()
    assert readers.queues["a"] == []


def test_a_turn_that_was_read_to_its_end_can_be_awaited_and_iterated_again() -> None:
    readers = Readers()
    readers.turns("a")
    readers.begin_loop("a")
    readers.deliver("a", message(1))
    readers.delivery.took("a", SIZE, 1)
    readers.delivery.account([act.TurnEnded("a", DONE)])
    readers.delivery.left_loop("a", 0, 0)
    readers.delivery.begin_wait("a")
    assert not readers.delivery.end_wait("a")
    readers.begin_loop("a")


def lost(error: BridleError | None) -> tuple[int, int]:
    assert isinstance(error, ConsumerTooSlow)
    assert "right after sending" in (error.fix or "")
    return error.unread_bytes, error.limit


def test_turns_that_no_loop_has_read_share_a_bound_and_the_oldest_is_dropped_first() -> None:
    readers = Readers(max_unbegun=3 * COST)
    readers.turns("abc")
    readers.deliver("a", message(1))
    readers.deliver("ab", message(2))
    readers.deliver("b", message(3))
    assert readers.queues == {"a": [], "b": ["2", "3"]}
    assert readers.warnings() == [
        f"2 messages ({2 * SIZE} bytes) of turn a were dropped, "
        f"at most {3 * COST} bytes are held for turns that no loop reads"
    ]
    readers.deliver("c", message(4))
    readers.begin_loop("b")
    readers.deliver("c", message(5), message(6))
    assert readers.queues["c"] == ["4", "5", "6"]
    assert lost(readers.delivery.begin_loop("a")) == (2 * SIZE, 3 * COST)


def test_turns_whose_loop_was_left_share_the_larger_bound() -> None:
    readers = Readers(max_unread=10 * SIZE, max_unbegun=3 * COST)
    readers.turns("abc")
    for uuid, count in (("a", 5), ("b", 4), ("c", 2)):
        readers.begin_loop(uuid)
        readers.deliver(uuid, *(message(number) for number in range(count)))
        readers.delivery.left_loop(uuid, 0, 0)
    assert readers.warnings() == []  # eleven messages are held
    readers.deliver("c", message(9))
    assert readers.queues["a"] == []
    assert len(readers.warnings()) == 1
    assert lost(readers.delivery.begin_loop("a")) == (5 * SIZE, 10 * SIZE)
    readers.begin_loop("b")
    readers.begin_loop("c")


def test_messages_that_a_loop_gives_back_count_as_unread() -> None:
    readers = Readers(max_unread=4 * SIZE)
    readers.turns("a")
    readers.begin_loop("a")
    readers.deliver("a", message(1), message(2), message(3))
    readers.delivery.took("a", 3 * SIZE, 3)
    readers.delivery.left_loop("a", SIZE, 1)
    assert readers.delivery.put_back("a", 2 * SIZE, 2)
    readers.deliver("a", message(4))
    assert readers.emitted == []
    readers.deliver("a", message(5))
    [detail] = readers.warnings()
    assert detail.startswith(f"5 messages ({5 * SIZE} bytes) of turn a were dropped")
    assert not readers.delivery.put_back("a", SIZE, 1)


def test_messages_given_back_while_a_loop_reads_count_for_that_loop() -> None:
    readers = Readers(max_unread=SIZE)
    readers.turns("a")
    readers.begin_loop("a")
    assert readers.delivery.put_back("a", SIZE, 1)
    readers.deliver("a", message(1))
    assert readers.warnings() == [f"{2 * SIZE} bytes wait to be read, {SIZE} are allowed"]


def test_repetitions_of_prompts_count_against_the_larger_bound_only() -> None:
    large = echo(5 * SIZE)
    readers = Readers(max_unread=2 * line_size(large) + 10 * SIZE, max_unbegun=3 * COST)
    readers.turns("ab")
    for uuid in "ab":
        readers.deliver(uuid, large, message(1))
    assert readers.warnings() == []
    readers.deliver("b", echo(12 * SIZE))
    [detail] = readers.warnings()
    assert "2 messages" in detail
    assert "of turn a " in detail
    readers.deliver("b", message(2), message(3))
    assert len(readers.warnings()) == 1


@pytest.mark.parametrize("how", ["dropped", "read"])
def test_a_turn_that_is_dropped_or_read_does_not_count_against_the_others(how: str) -> None:
    readers = Readers(max_unbegun=2 * COST)
    readers.turns("ab")
    readers.deliver("a", message(1), message(2))
    if how == "dropped":
        readers.delivery.closed("a")
        readers.delivery.left_loop("a", 0, 0)
    else:
        readers.begin_loop("a")
    readers.deliver("b", message(3), message(4))
    assert readers.emitted == []


# ---------------------------------------------------------------- the engine


def engine_that_runs(limit: int) -> Engine:
    engine = Engine(EngineConfig(delivery=DeliveryConfig(max_unread=limit)))
    engine.start("start", 0.0)
    answer = b'{"type":"control_response","response":{"subtype":"success","request_id":"req_0"}}\n'
    engine.receive(answer, 0.0)
    assert engine.lifecycle is Lifecycle.RUNNING
    return engine


def test_the_engine_fails_the_session_of_a_reader_that_is_too_slow() -> None:
    """The failure and its turns' outcomes come with the messages that were too many."""
    engine = engine_that_runs(10)
    engine.delivery.subscribe(messages=True)
    engine.send("key", "u", "go", 1.0)
    actions = engine.receive(message(1).raw_line + b"\n", 2.0)
    [deliver] = [action for action in actions if isinstance(action, act.Deliver)]
    [ended] = [action for action in actions if isinstance(action, act.TurnEnded)]
    [failed] = [action for action in actions if isinstance(action, act.Publish)]
    assert deliver.readers == (1,)
    assert ended.outcome.reason is OutcomeReason.STOPPED
    assert isinstance(failed.event, SessionFailed)
    assert failed.event.error is engine.delivery.failure
    assert actions.index(deliver) < actions.index(ended) < actions.index(failed)
    assert engine.lifecycle is Lifecycle.FAILED


def test_a_turn_that_ended_with_the_failure_can_be_read_to_its_end_and_awaited() -> None:
    engine = engine_that_runs(20)
    engine.delivery.open_turn("u")
    assert engine.delivery.begin_loop("u") is None
    engine.send("key", "u", "go", 1.0)
    init = b'{"type":"system","subtype":"init","user_message_uuids":["u"]}\n'
    actions = engine.receive(init, 1.0) + engine.receive(message(1).raw_line + b"\n", 2.0)
    delivered = [action for action in actions if isinstance(action, act.Deliver)]
    assert [action.readers for action in delivered] == [("u",), ("u",)]
    assert engine.lifecycle is Lifecycle.FAILED
    engine.delivery.took("u", sum(action.size for action in delivered), 2)
    engine.delivery.left_loop("u", 0, 0)
    engine.delivery.begin_wait("u")
    assert not engine.delivery.end_wait("u")


def test_the_engine_fails_the_session_for_unread_events_too() -> None:
    engine = engine_that_runs(10)
    engine.delivery.subscribe(messages=True, events=True)
    engine.delivery.publish(EVENT)
    [failed] = [a for a in engine.react(1.0) if isinstance(a, act.Publish)]
    assert isinstance(failed.event, SessionFailed)
    assert engine.react(2.0) == []


def test_readers_of_a_session_that_is_over_do_not_end_it_again() -> None:
    engine = engine_that_runs(10)
    engine.delivery.subscribe(messages=True, events=True)
    engine.stop(1.0)
    engine.delivery.publish(EVENT)
    assert engine.react(2.0) == []


def test_turns_that_no_loop_has_read_keep_8_mib() -> None:
    assert DeliveryConfig(max_unread=64 << 20).max_unbegun == 8 * 1024 * 1024
