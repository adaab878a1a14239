"""The ladder by which a process comes to its end, rung by rung."""

from __future__ import annotations

import pytest

from bridle._core.actions import Action, EndInput, Kill, Terminate
from bridle._core.deadlines import Deadlines
from bridle._core.ending import (
    HOLD,
    NEXT_RUNG,
    OUTPUT,
    OUTPUT_GRACE,
    PIPE,
    RUNG,
    Departure,
    Rung,
    farewell,
)
from bridle.errors import ProcessInfo
from bridle.events import SessionCompleted, SessionEnded, SessionEvent, SessionFailed


def departing(*, spawned: bool = True) -> tuple[Departure, Deadlines, list[Action]]:
    actions: list[Action] = []
    deadlines = Deadlines()
    departure = Departure(deadlines, actions.append)
    departure.spawned = spawned
    return departure, deadlines, actions


@pytest.mark.parametrize(
    ("rung", "does", "holds"),
    [
        (Rung.INTERRUPTING, [], 2.0),
        (Rung.DRAINING, [EndInput()], 5.0),
        (Rung.TERMINATING, [Terminate()], 5.0),
        (Rung.KILLING, [Kill()], None),
    ],
)
def test_each_rung_does_its_work_and_holds_its_time(
    rung: Rung, does: list[Action], holds: float | None
) -> None:
    """R354, R355: five seconds lie between SIGTERM and SIGKILL."""
    departure, deadlines, actions = departing()
    departure.climb(rung, 10.0)
    assert (departure.rung, departure.is_asked_for, actions) == (rung, True, does)
    assert deadlines.next == (None if holds is None else 10.0 + holds)


def test_the_ladder_climbs_one_rung_at_a_time_to_the_top() -> None:
    """R354, R355."""
    departure, deadlines, actions = departing()
    departure.climb(Rung.INTERRUPTING, 0.0)
    moments = []
    while (now := deadlines.next) is not None:
        assert list(deadlines.pop_expired(now)) == [(RUNG, None)]
        departure.climb_on(now)
        moments.append(now)
    assert moments == [2.0, 7.0, 12.0]
    assert actions == [EndInput(), Terminate(), Kill()]


def test_every_rung_that_holds_has_a_next_one() -> None:
    assert set(HOLD) == set(NEXT_RUNG)
    assert all(after > before for before, after in NEXT_RUNG.items())


def test_nothing_is_waited_for_once_the_process_is_gone() -> None:
    departure, deadlines, actions = departing()
    departure.exited = True
    departure.climb(Rung.DRAINING, 0.0)
    assert (deadlines.next, actions) == (None, [EndInput()])


def test_the_input_is_closed_once() -> None:
    departure, _, actions = departing()
    departure.close_input()
    departure.close_input()
    departure.climb(Rung.DRAINING, 0.0)
    assert (actions, departure.input_ended) == ([EndInput()], True)


def test_a_broken_input_is_not_closed_and_gives_the_cli_a_moment() -> None:
    departure, deadlines, actions = departing()
    departure.lose_input("EPIPE", 3.0)
    departure.close_input()
    assert (actions, departure.input_ended) == ([], True)
    assert (list(deadlines.pop_expired(4.0)), deadlines.next) == ([(PIPE, "EPIPE")], None)


@pytest.mark.parametrize(
    ("spawned", "exited", "rung", "does"),
    [
        (True, False, Rung.NONE, [Terminate()]),
        (True, False, Rung.DRAINING, [Terminate()]),
        (True, False, Rung.TERMINATING, []),
        (True, False, Rung.KILLING, []),
        (True, True, Rung.NONE, []),
        (False, False, Rung.NONE, []),
    ],
    ids=["running", "draining", "terminating", "killing", "gone", "never there"],
)
def test_a_session_that_is_over_brings_its_process_down_once(
    spawned: bool, exited: bool, rung: Rung, does: list[Action]
) -> None:
    """R354, R358, R362."""
    departure, _, actions = departing(spawned=spawned)
    departure.exited, departure.rung = exited, rung
    departure.shut_down(1.0)
    assert (actions, departure.input_ended) == (does, True)
    assert departure.rung >= rung


@pytest.mark.parametrize("first", ["exited", "output_ended"])
def test_the_second_of_exit_and_end_of_output_is_waited_for_but_not_for_long(first: str) -> None:
    departure, deadlines, _ = departing()
    departure.climb(Rung.TERMINATING, 0.0)
    setattr(departure, first, True)
    departure.wait_for_rest(1.0)
    assert not departure.is_complete
    assert list(deadlines.pop_expired(1.0 + OUTPUT_GRACE)) == [(OUTPUT, None)]
    assert deadlines.next == (None if first == "exited" else 5.0)


def test_both_together_complete_the_departure() -> None:
    departure, deadlines, _ = departing()
    departure.exited = departure.output_ended = True
    departure.wait_for_rest(1.0)
    assert (departure.is_complete, deadlines.next) == (True, None)


@pytest.mark.parametrize(
    ("exit_code", "asked_for", "event"),
    [
        (0, False, SessionCompleted()),
        (1, False, SessionFailed("the CLI ended with exit code 1", 1)),
        (-9, False, SessionFailed("the CLI ended with SIGKILL (exit code -9)", -9)),
        (0, True, SessionEnded(0)),
        (-15, True, SessionEnded(-15)),
        (None, True, SessionEnded(None)),
    ],
)
def test_the_last_event_says_how_it_ended(
    exit_code: int | None, asked_for: bool, event: SessionEvent
) -> None:
    """R241, R368, C28."""
    assert farewell(ProcessInfo(exit_code=exit_code), asked_for=asked_for) == event
