"""Define the lifecycle of a session as a table.

Every transition of a session is a row of :data:`MOVES`. Any other transition is rejected and
changes nothing. No other code in Bridle assigns a lifecycle.

A gentle close is not a state. The session stays ``running`` while its last turn ends, because it
still communicates with the CLI. :mod:`bridle._engine.shutdown` defines the steps of the close.
"""

from __future__ import annotations

from enum import StrEnum


class Lifecycle(StrEnum):
    """The state of a session."""

    #: Nothing has been written yet. The process may or may not exist.
    STARTING = "starting"
    #: The initialize request was sent. Operations wait in the queue.
    INIT_SENT = "init_sent"
    #: The CLI has confirmed the session, by its response or by an earlier request.
    RUNNING = "running"
    #: Ended: Bridle stopped it, or the process exited.
    STOPPED = "stopped"
    #: Ended: it did not start, or an error occurred that it cannot recover from.
    FAILED = "failed"


class Cause(StrEnum):
    """The events that move a session from one lifecycle state to the next."""

    SPAWNED = "spawned"
    SPAWN_FAILED = "spawn_failed"
    CONFIRMED = "confirmed"
    REFUSED = "refused"
    TIMED_OUT = "timed_out"
    PROCESS_ENDED = "process_ended"
    STOP_REQUESTED = "stop_requested"
    BROKEN = "broken"


MOVES: dict[tuple[Lifecycle, Cause], Lifecycle] = {
    (Lifecycle.STARTING, Cause.SPAWNED): Lifecycle.INIT_SENT,
    (Lifecycle.STARTING, Cause.SPAWN_FAILED): Lifecycle.FAILED,
    (Lifecycle.STARTING, Cause.PROCESS_ENDED): Lifecycle.FAILED,
    (Lifecycle.STARTING, Cause.STOP_REQUESTED): Lifecycle.STOPPED,
    (Lifecycle.INIT_SENT, Cause.CONFIRMED): Lifecycle.RUNNING,
    (Lifecycle.INIT_SENT, Cause.REFUSED): Lifecycle.FAILED,
    (Lifecycle.INIT_SENT, Cause.TIMED_OUT): Lifecycle.FAILED,
    (Lifecycle.INIT_SENT, Cause.PROCESS_ENDED): Lifecycle.FAILED,
    (Lifecycle.INIT_SENT, Cause.STOP_REQUESTED): Lifecycle.STOPPED,
    (Lifecycle.INIT_SENT, Cause.BROKEN): Lifecycle.FAILED,
    (Lifecycle.RUNNING, Cause.PROCESS_ENDED): Lifecycle.STOPPED,
    (Lifecycle.RUNNING, Cause.STOP_REQUESTED): Lifecycle.STOPPED,
    (Lifecycle.RUNNING, Cause.BROKEN): Lifecycle.FAILED,
}

UNCONFIRMED = frozenset({Lifecycle.STARTING, Lifecycle.INIT_SENT})
TERMINAL = frozenset({Lifecycle.STOPPED, Lifecycle.FAILED})


class InvalidTransition(Exception):
    """A transition that is not in the table. It is a bug in the caller, never caused by the CLI."""

    def __init__(self, state: Lifecycle, cause: Cause) -> None:
        super().__init__(state, cause)
        self.state = state
        self.cause = cause

    def __str__(self) -> str:
        return f"a session that is {self.state.value} cannot take {self.cause.value}"


def transition(state: Lifecycle, cause: Cause) -> Lifecycle:
    """Return the lifecycle that follows ``state`` after ``cause``.

    Raises:
        InvalidTransition: the table has no such transition.
    """
    try:
        return MOVES[state, cause]
    except KeyError:
        raise InvalidTransition(state, cause) from None
