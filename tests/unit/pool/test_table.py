"""Tests of the table that decides who gets which process of a pool."""

from __future__ import annotations

from typing import Any

import pytest

from bridle._pool.table import (
    Close,
    Lend,
    PoolAction,
    PoolLimits,
    PoolTable,
    Refuse,
    Source,
    Start,
)

READY, IDLE, START = Source.READY, Source.IDLE, Source.START


def table(size: int = 2, ready: int = 0, **limits: Any) -> PoolTable:
    """Return a table that was opened at time 0."""
    one = PoolTable(PoolLimits(size=size, ready=ready, **limits))
    one.open(0.0)
    return one


def lend(one: PoolTable, ticket: str, now: float = 0.0, **arguments: Any) -> int:
    """Let a caller borrow, and return the place that it gets at once."""
    [action] = [a for a in one.borrow(ticket, now, **arguments) if isinstance(a, Lend)]
    return action.place


def due(one: PoolTable) -> float | None:
    """Return the next deadline."""
    return one.next_deadline


def give_back(one: PoolTable, place: int, now: float = 0.0, keep: bool = True) -> list[PoolAction]:
    return one.give_back(place, now, keep=keep)


def test_opening_starts_the_ready_processes() -> None:
    one = PoolTable(PoolLimits(size=3, ready=2))
    assert one.open(0.0) == [Start(1), Start(2)]
    assert (one.metrics().ready, one.metrics().started) == (2, 2)


def test_a_caller_gets_the_oldest_ready_process_and_another_one_is_started() -> None:
    one = table(size=3, ready=2)
    assert one.borrow("a", 0.0) == [Lend("a", 1, READY), Start(3)]
    assert one.metrics().from_ready == 1


def test_without_a_ready_process_a_caller_gets_an_empty_place() -> None:
    one = table(size=2)
    assert one.borrow("a", 0.0) == [Lend("a", 1, START)]
    assert one.metrics().from_start == 1


def test_a_caller_with_other_options_never_gets_a_ready_process() -> None:
    one = table(size=2, ready=1)
    assert one.borrow("a", 0.0, takes_ready=False) == [Lend("a", 2, START)]


def test_a_ready_process_makes_room_for_a_caller_with_other_options() -> None:
    one = table(size=1, ready=1)
    assert one.borrow("a", 0.0, takes_ready=False) == [Close(1)]
    assert one.closed(1, 0.0) == [Lend("a", 2, START)]


def test_a_process_that_was_used_is_never_lent_again_without_its_key() -> None:
    one = table(size=1, ready=1)
    place = lend(one, "a")
    assert one.borrow("b", 0.0) == []
    assert one.closed(place, 1.0) == [Lend("b", 2, START)]


def test_callers_are_served_in_order() -> None:
    one = table(size=1)
    place = lend(one, "a")
    for ticket in "bcd":
        assert one.borrow(ticket, 0.0) == []
    for ticket in "bcd":
        [action] = one.closed(place, 1.0)
        assert isinstance(action, Lend)
        assert action.ticket == ticket
        place = action.place


def test_a_cancelled_caller_is_passed_over() -> None:
    one = table(size=1)
    place = lend(one, "a")
    one.borrow("b", 0.0)
    one.borrow("c", 0.0)
    assert one.cancel("b", 0.5) == []
    assert one.closed(place, 1.0) == [Lend("c", 2, START)]


def test_cancelling_a_caller_that_has_its_place_changes_nothing() -> None:
    one = table(size=1)
    lend(one, "a")
    assert one.cancel("a", 0.0) == []
    assert one.metrics().in_use == 1


def test_a_caller_whose_deadline_passed_is_rejected() -> None:
    one = table(size=1)
    lend(one, "a")
    one.borrow("b", 1.0, deadline=3.0)
    one.borrow("c", 1.0, deadline=3.0)
    assert due(one) == 3.0
    assert one.advance(2.9) == []
    assert one.advance(3.5) == [Refuse("b", 2.5), Refuse("c", 2.5)]
    assert due(one) is None
    assert (one.metrics().timeouts, one.metrics().wait_longest) == (2, 2.5)


def test_a_place_that_is_free_too_late_is_not_lent() -> None:
    one = table(size=1)
    place = lend(one, "a")
    one.borrow("b", 0.0, deadline=3.0)
    assert one.closed(place, 3.0) == [Refuse("b", 3.0)]


def test_the_deadline_of_a_served_caller_is_forgotten() -> None:
    one = table(size=1)
    lend(one, "a", deadline=3.0)
    assert due(one) is None
    assert one.advance(4.0) == []


def test_metrics_count_the_time_that_callers_waited() -> None:
    one = table(size=1)
    place = lend(one, "a")
    one.borrow("b", 1.0)
    assert one.metrics().waiting == 1
    one.closed(place, 3.0)
    assert (one.metrics().wait_total, one.metrics().wait_longest) == (2.0, 2.0)


# -- keys ------------------------------------------------------------------------------------------


def test_a_key_keeps_its_process() -> None:
    one = table(size=2)
    place = lend(one, "a", key="k")
    assert give_back(one, place, 1.0) == []
    assert one.metrics().idle == 1
    assert one.borrow("b", 2.0, key="k") == [Lend("b", place, IDLE)]
    assert one.metrics().from_idle == 1


def test_callers_of_one_key_take_turns() -> None:
    one = table(size=3)
    place = lend(one, "a", key="k")
    assert one.borrow("b", 0.0, key="k") == []
    assert one.borrow("c", 0.0, key="k") == []
    assert one.metrics().in_use == 1
    assert give_back(one, place) == [Lend("b", place, IDLE)]
    assert give_back(one, place) == [Lend("c", place, IDLE)]


def test_a_caller_that_waits_for_its_key_does_not_hold_up_others() -> None:
    one = table(size=2)
    lend(one, "a", key="k")
    one.borrow("b", 0.0, key="k")
    assert one.borrow("c", 0.0, key="other") == [Lend("c", 2, START)]


def test_a_key_whose_process_is_closing_waits_for_its_end() -> None:
    """Two processes never continue one conversation."""
    one = table(size=2)
    place = lend(one, "a", key="k")
    assert give_back(one, place, keep=False) == [Close(place)]
    assert one.borrow("b", 0.0, key="k") == []
    assert one.closed(place, 1.0) == [Lend("b", 2, START)]


def test_the_least_recently_used_key_makes_room() -> None:
    one = table(size=2)
    first, second = lend(one, "a", key="a"), lend(one, "b", key="b")
    give_back(one, second, 1.0)
    give_back(one, first, 2.0)
    assert one.borrow("c", 3.0, key="c") == [Close(second)]
    assert one.closed(second, 3.0) == [Lend("c", 3, START)]
    assert one.metrics().evicted == 1


def test_a_process_that_ends_for_one_caller_is_not_promised_to_another() -> None:
    one = table(size=2)
    first, second = lend(one, "a", key="a"), lend(one, "b", key="b")
    give_back(one, first, 1.0)
    give_back(one, second, 2.0)
    assert one.borrow("c", 3.0) == [Close(first)]
    assert one.borrow("d", 3.0) == [Close(second)]
    assert one.closed(second, 4.0) == [Lend("c", 3, START)]
    assert one.closed(first, 4.0) == [Lend("d", 4, START)]


def test_a_process_that_ends_already_is_enough_for_one_caller() -> None:
    one = table(size=2)
    first, second = lend(one, "a", key="a"), lend(one, "b", key="b")
    give_back(one, first, 1.0, keep=False)
    give_back(one, second, 1.0)
    assert one.borrow("c", 2.0) == []
    assert one.metrics().idle == 1


def test_a_key_that_a_caller_waits_for_is_closed_last() -> None:
    one = table(size=3)
    places = [lend(one, key, key=key) for key in ("a", "b")]
    busy = lend(one, "busy")
    one.borrow("x", 0.0)
    one.borrow("again", 0.0, key="a")
    give_back(one, places[0], 1.0)  # makes room for x
    assert one.metrics().closing == 1
    one.closed(places[0], 1.0)
    one.closed(busy, 1.0)
    assert one.metrics().in_use == 3


def test_an_idle_key_is_closed_after_its_idle_time() -> None:
    one = table(size=2, max_idle=10.0)
    place = lend(one, "a", key="k")
    assert due(one) is None
    give_back(one, place, 5.0)
    assert due(one) == 15.0
    assert one.advance(14.9) == []
    assert one.advance(15.0) == [Close(place)]
    assert due(one) is None


def test_a_process_over_its_age_is_closed_when_it_comes_back() -> None:
    one = table(size=2, max_age=10.0)
    place = lend(one, "a", key="k")
    assert give_back(one, place, 10.0) == [Close(place)]


def test_an_idle_process_is_closed_at_its_age() -> None:
    one = table(size=2, max_age=10.0, max_idle=100.0)
    place = lend(one, "a", key="k")
    give_back(one, place, 5.0)
    assert due(one) == 10.0
    assert one.advance(10.0) == [Close(place)]


# -- ready processes -------------------------------------------------------------------------------


def test_a_ready_process_at_its_age_is_replaced_and_never_lent() -> None:
    one = table(size=2, ready=1, max_age=10.0)
    assert due(one) == 10.0
    # The timer is late: the caller comes first.
    assert one.borrow("a", 10.0) == [Close(1), Lend("a", 2, START)]
    assert one.closed(1, 10.0) == [Start(3)]


def test_a_lost_ready_process_is_replaced_after_a_growing_pause() -> None:
    one = table(size=1, ready=1)
    now, pauses = 0.0, []
    place = 1
    for _ in range(8):
        assert one.lost(place, now) == []
        when = due(one)
        assert when is not None
        pauses.append(when - now)
        now = when
        assert one.advance(now - 0.001) == []
        [action] = one.advance(now)
        assert isinstance(action, Start)
        place = action.place
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert one.metrics().lost == 8


def test_the_pause_is_short_again_after_a_process_that_works() -> None:
    one = table(size=1, ready=1)
    one.lost(1, 0.0)
    one.advance(1.0)
    one.came_up()
    one.lost(2, 1.0)
    assert due(one) == 2.0


def test_callers_do_not_wait_for_the_pause() -> None:
    one = table(size=1, ready=1)
    one.lost(1, 0.0)
    assert one.borrow("a", 0.0) == [Lend("a", 2, START)]


def test_a_ready_process_that_exits_while_it_is_closed_is_not_counted_as_lost() -> None:
    one = table(size=1, ready=1)
    one.borrow("a", 0.0, takes_ready=False)
    assert one.lost(1, 0.0) == [Lend("a", 2, START)]
    assert one.metrics().lost == 0


# -- draining --------------------------------------------------------------------------------------


def test_draining_rejects_callers_and_closes_what_is_not_in_use() -> None:
    one = table(size=3, ready=1)
    idle = lend(one, "i", key="i")
    give_back(one, idle)
    busy = lend(one, "b", key="b", takes_ready=False)
    one.borrow("w", 0.0, key="b")
    actions = one.drain()
    assert Refuse("w", 0.0, is_closing=True) in actions
    assert sum(isinstance(action, Close) for action in actions) == 2
    assert (one.is_closing, one.is_empty) == (True, False)
    assert one.borrow("x", 0.0) == [Refuse("x", 0.0, is_closing=True)]
    assert give_back(one, busy) == [Close(busy)]
    assert due(one) is None


def test_a_drained_table_starts_nothing() -> None:
    one = table(size=1, ready=1)
    assert one.drain() == [Close(1)]
    assert one.closed(1, 0.0) == []
    assert one.is_empty


def test_the_key_of_a_place_is_known() -> None:
    one = table(size=2)
    assert one.key_of(lend(one, "a", key="k")) == "k"
    assert one.key_of(lend(one, "b")) is None


@pytest.mark.parametrize("count", [2000])
def test_many_waiting_callers_are_served_quickly(count: int) -> None:
    """The work for each event does not grow with the number of callers that wait."""
    one = table(size=1)
    place = lend(one, "first")
    for number in range(count):
        one.borrow(number, 0.0)
    for number in range(count):
        [action] = one.closed(place, 1.0)
        assert isinstance(action, Lend)
        assert action.ticket == number
        place = action.place


def test_a_key_that_is_not_in_use_can_be_reserved() -> None:
    one = table(size=2)
    place = lend(one, "a", key="k")
    assert one.reserve("k", 0.0) is None
    give_back(one, place)
    assert one.reserve("k", 0.0) == [Close(place)]
    assert one.reserve("k", 0.0) is None
    assert one.reserve("other", 0.0) == []
    assert one.has_process("k")
    one.closed(place, 0.0)
    assert not one.has_process("k")


def test_callers_of_a_reserved_key_wait_and_hold_up_no_other_caller() -> None:
    one = table(size=1)
    one.reserve("k", 0.0)
    assert one.borrow("a", 0.0, key="k") == []
    place = lend(one, "b", key="other")
    assert one.unreserve("k", 1.0) == []
    assert give_back(one, place, 2.0, keep=False) == [Close(place)]
    assert one.closed(place, 3.0) == [Lend("a", 2, START)]


def test_an_idle_process_that_has_exited_is_closed() -> None:
    one = table(size=1)
    place = lend(one, "a", key="k")
    assert not one.is_idle(place)
    give_back(one, place)
    assert one.is_idle(place)
    assert one.drop(place, 0.0) == [Close(place)]
    assert (one.metrics().closing, one.metrics().evicted) == (1, 0)
    assert not one.is_idle(7)


def test_a_new_process_in_the_place_of_a_key_counts_as_started() -> None:
    one = table(size=1, max_age=10.0)
    place = lend(one, "a", key="k")
    give_back(one, place)
    lend(one, "b", 8.0, key="k")
    one.restarted(place, 8.0)
    assert (one.metrics().from_idle, one.metrics().from_start) == (0, 2)
    # Its age begins anew.
    assert give_back(one, place, 11.0) == []
    lend(one, "c", 11.0, key="k")
    assert give_back(one, place, 18.0) == [Close(place)]


def test_a_drained_table_is_empty_when_no_key_is_reserved() -> None:
    one = table(size=1)
    one.reserve("k", 0.0)
    one.drain()
    assert not one.is_empty
    one.unreserve("k", 0.0)
    assert one.is_empty


def test_a_place_is_ready_until_it_is_lent() -> None:
    one = table(size=1, ready=1)
    assert one.is_ready(1)
    lend(one, "a")
    assert not one.is_ready(1)
    assert not one.is_ready(7)
