"""Warnings of one kind: the first ones are told each, then one a second with an exact count."""

from __future__ import annotations

import random

from bridle._observe.warning_rate import BURST, INTERVAL, WarningRate
from bridle.events import SdkWarning, WarningKind

KIND, OTHER = WarningKind.MALFORMED_LINE, WarningKind.HOOK_FAILED


def warn(number: int = 0, kind: WarningKind = KIND) -> SdkWarning:
    return SdkWarning(kind, f"line {number}")


def flood(rate: WarningRate, count: int, now: float) -> int:
    """Return how many of these warnings are told at once."""
    return sum(rate.admit(warn(number), now) for number in range(count))


def test_the_first_warnings_of_a_kind_are_reported_each() -> None:
    rate = WarningRate()
    assert flood(rate, BURST, 0.0) == BURST
    assert (rate.next_due, rate.take_due(100.0), rate.take_all()) == (None, [], [])


def test_twenty_warnings_are_given_at_once_and_then_one_a_second() -> None:
    """docs/howto/observability.md states both numbers."""
    rate = WarningRate()
    assert flood(rate, 25, 0.0) == 20
    assert rate.next_due == 1.0
    assert [one.count for one in rate.take_due(1.0)] == [5]


def test_more_of_them_are_reported_as_one_a_second_later_with_their_count() -> None:
    rate = WarningRate()
    assert flood(rate, BURST + 300, 5.0) == BURST
    assert rate.next_due == 5.0 + INTERVAL
    assert rate.take_due(5.0 + INTERVAL / 2) == []
    (summary,) = rate.take_due(5.0 + INTERVAL)
    assert (summary.kind, summary.count) == (KIND, 300)
    assert "300 more" in summary.detail
    assert f"line {BURST + 299}" in summary.detail
    assert rate.next_due is None


def test_a_flood_is_reported_at_most_once_a_second() -> None:
    rate, told, seen = WarningRate(), 0, 0
    for tenth in range(100):
        now = tenth / 10
        told += len(rate.take_due(now)) + flood(rate, 1000, now)
        seen += 1000
    assert BURST < told <= BURST + 10
    assert seen == 100_000


def test_kinds_are_counted_apart() -> None:
    rate = WarningRate()
    flood(rate, BURST + 5, 0.0)
    assert rate.admit(warn(kind=OTHER), 0.0)
    assert [one.count for one in rate.take_all()] == [5]


def test_one_that_was_counted_alone_is_reported_as_it_was() -> None:
    rate = WarningRate()
    flood(rate, BURST, 0.0)
    error = ValueError("boom")
    assert not rate.admit(SdkWarning(KIND, "the last", error), 0.0)
    assert rate.take_all() == [SdkWarning(KIND, "the last", error)]


def test_a_warning_without_a_detail_is_summed_up_by_its_meaning() -> None:
    rate = WarningRate()
    for _ in range(BURST + 2):
        rate.admit(SdkWarning(KIND), 0.0)
    (summary,) = rate.take_all()
    assert KIND.meaning in summary.detail


def test_after_a_quiet_time_the_first_ones_are_reported_each_again() -> None:
    rate = WarningRate()
    flood(rate, BURST + 5, 0.0)
    rate.take_due(INTERVAL)
    assert flood(rate, 1, INTERVAL + 0.5) == 0
    rate.take_due(INTERVAL + 0.5 + INTERVAL)
    assert flood(rate, BURST + 5, 1000.0) == BURST


def test_each_warning_of_a_slow_trickle_is_reported() -> None:
    rate = WarningRate()
    assert all(rate.admit(warn(number), number * INTERVAL) for number in range(10 * BURST))


def test_no_warning_is_lost_whatever_the_times() -> None:
    """The sum of the counts is the number of warnings."""
    chance = random.Random(7)
    rate, now, given, told = WarningRate(), 0.0, 0, 0
    for _ in range(2000):
        now += chance.choice((0.0, 0.001, 0.3, 2.0))
        told += sum(one.count for one in rate.take_due(now))
        for kind in chance.choices((KIND, OTHER), k=chance.randrange(40)):
            given += 1
            told += rate.admit(warn(kind=kind), now)
    assert told + sum(one.count for one in rate.take_all()) == given
