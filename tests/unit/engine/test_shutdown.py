"""The steps that shut a process down."""

from __future__ import annotations

import pytest

from bridle._engine.actions import Action, EndInput, Kill, Terminate
from bridle._engine.deadlines import Deadlines
from bridle._engine.shutdown import (
    HOLD,
    NEXT_STEP,
    OUTPUT,
    OUTPUT_GRACE,
    PIPE,
    STEP,
    Shutdown,
    ShutdownStep,
    last_event,
)
from bridle.errors import ProcessInfo
from bridle.events import SessionCompleted, SessionEnded, SessionEvent, SessionFailed


def departing(*, spawned: bool = True) -> tuple[Shutdown, Deadlines, list[Action]]:
    actions: list[Action] = []
    deadlines = Deadlines()
    shutdown = Shutdown(deadlines, actions.append)
    shutdown.spawned = spawned
    return shutdown, deadlines, actions


@pytest.mark.parametrize(
    ("step", "does", "holds"),
    [
        (ShutdownStep.INTERRUPTING, [], 2.0),
        (ShutdownStep.DRAINING, [EndInput()], 5.0),
        (ShutdownStep.TERMINATING, [Terminate()], 5.0),
        (ShutdownStep.KILLING, [Kill()], None),
    ],
)
def test_each_step_acts_and_lasts_its_time(
    step: ShutdownStep, does: list[Action], holds: float | None
) -> None:
    """R354, R355: five seconds lie between SIGTERM and SIGKILL."""
    shutdown, deadlines, actions = departing()
    shutdown.enter(step, 10.0)
    assert (shutdown.step, shutdown.is_asked_for, actions) == (step, True, does)
    assert deadlines.next == (None if holds is None else 10.0 + holds)


def test_the_steps_follow_one_another_to_the_last() -> None:
    """R354, R355."""
    shutdown, deadlines, actions = departing()
    shutdown.enter(ShutdownStep.INTERRUPTING, 0.0)
    moments = []
    while (now := deadlines.next) is not None:
        assert list(deadlines.pop_expired(now)) == [(STEP, None)]
        shutdown.enter_next(now)
        moments.append(now)
    assert moments == [2.0, 7.0, 12.0]
    assert actions == [EndInput(), Terminate(), Kill()]


def test_every_step_that_waits_has_a_next_one() -> None:
    assert set(HOLD) == set(NEXT_STEP)
    assert all(after > before for before, after in NEXT_STEP.items())


def test_nothing_is_waited_for_once_the_process_has_ended() -> None:
    shutdown, deadlines, actions = departing()
    shutdown.exited = True
    shutdown.enter(ShutdownStep.DRAINING, 0.0)
    assert (deadlines.next, actions) == (None, [EndInput()])


def test_the_input_is_closed_once() -> None:
    shutdown, _, actions = departing()
    shutdown.close_input()
    shutdown.close_input()
    shutdown.enter(ShutdownStep.DRAINING, 0.0)
    assert (actions, shutdown.input_ended) == ([EndInput()], True)


def test_a_broken_input_is_not_closed_and_gives_the_cli_a_moment() -> None:
    shutdown, deadlines, actions = departing()
    shutdown.lose_input("EPIPE", 3.0)
    shutdown.close_input()
    assert (actions, shutdown.input_ended) == ([], True)
    assert (list(deadlines.pop_expired(4.0)), deadlines.next) == ([(PIPE, "EPIPE")], None)


@pytest.mark.parametrize(
    ("spawned", "exited", "step", "does"),
    [
        (True, False, ShutdownStep.NONE, [Terminate()]),
        (True, False, ShutdownStep.DRAINING, [Terminate()]),
        (True, False, ShutdownStep.TERMINATING, []),
        (True, False, ShutdownStep.KILLING, []),
        (True, True, ShutdownStep.NONE, []),
        (False, False, ShutdownStep.NONE, []),
    ],
    ids=["running", "draining", "terminating", "killing", "gone", "never there"],
)
def test_a_session_that_is_over_brings_its_process_down_once(
    spawned: bool, exited: bool, step: ShutdownStep, does: list[Action]
) -> None:
    """R354, R358, R362."""
    shutdown, _, actions = departing(spawned=spawned)
    shutdown.exited, shutdown.step = exited, step
    shutdown.shut_down(1.0)
    assert (actions, shutdown.input_ended) == (does, True)
    assert shutdown.step >= step


@pytest.mark.parametrize("first", ["exited", "output_ended"])
def test_the_second_of_exit_and_end_of_output_is_waited_for_but_not_for_long(first: str) -> None:
    shutdown, deadlines, _ = departing()
    shutdown.enter(ShutdownStep.TERMINATING, 0.0)
    setattr(shutdown, first, True)
    shutdown.wait_for_rest(1.0)
    assert not shutdown.is_complete
    assert list(deadlines.pop_expired(1.0 + OUTPUT_GRACE)) == [(OUTPUT, None)]
    assert deadlines.next == (None if first == "exited" else 5.0)


def test_both_together_complete_the_shutdown() -> None:
    shutdown, deadlines, _ = departing()
    shutdown.exited = shutdown.output_ended = True
    shutdown.wait_for_rest(1.0)
    assert (shutdown.is_complete, deadlines.next) == (True, None)


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
    assert last_event(ProcessInfo(exit_code=exit_code), asked_for=asked_for) == event
