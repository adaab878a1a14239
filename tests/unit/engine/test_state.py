"""The lifecycle as a table: every pair of a state and a cause is either a move or refused."""

from __future__ import annotations

from itertools import product

import pytest

from bridle._engine.state import MOVES, TERMINAL, Cause, InvalidTransition, Lifecycle, transition

VALID = {
    ("starting", "spawned"): "init_sent",
    ("starting", "spawn_failed"): "failed",
    ("starting", "process_ended"): "failed",
    ("starting", "stop_requested"): "stopped",
    ("init_sent", "confirmed"): "running",
    ("init_sent", "refused"): "failed",
    ("init_sent", "timed_out"): "failed",
    ("init_sent", "process_ended"): "failed",
    ("init_sent", "stop_requested"): "stopped",
    ("init_sent", "broken"): "failed",
    ("running", "process_ended"): "stopped",
    ("running", "stop_requested"): "stopped",
    ("running", "broken"): "failed",
}
PAIRS = [(state.value, cause.value) for state, cause in product(Lifecycle, Cause)]


@pytest.mark.parametrize(("pair", "after"), VALID.items())
def test_a_listed_move_leads_where_the_table_says(pair: tuple[str, str], after: str) -> None:
    """R426, R427."""
    assert transition(Lifecycle(pair[0]), Cause(pair[1])) is Lifecycle(after)


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair not in VALID])
def test_any_other_move_is_refused_and_names_state_and_cause(pair: tuple[str, str]) -> None:
    """R243, R246, R426, R427."""
    state, cause = Lifecycle(pair[0]), Cause(pair[1])
    with pytest.raises(InvalidTransition) as refused:
        transition(state, cause)
    assert (refused.value.state, refused.value.cause) == (state, cause)
    assert str(refused.value) == f"a session that is {pair[0]} cannot take {pair[1]}"


@pytest.mark.parametrize(("state", "cause"), [*product(["stopped", "failed"], Cause)])
def test_an_ended_session_takes_no_cause(state: str, cause: Cause) -> None:
    """R229, R244, R426."""
    assert Lifecycle(state) in TERMINAL
    with pytest.raises(InvalidTransition):
        transition(Lifecycle(state), cause)


def test_only_the_ended_states_are_terminal() -> None:
    """R229, R245: the states without a way out are exactly the terminal ones."""
    assert {state for state in Lifecycle if all(move[0] is not state for move in MOVES)} == TERMINAL


def test_a_refused_move_changes_nothing() -> None:
    """R245, R246: the table is the only truth, and it stays as it is."""
    before = dict(MOVES)
    with pytest.raises(InvalidTransition):
        transition(Lifecycle.STOPPED, Cause.SPAWNED)
    assert before == MOVES
