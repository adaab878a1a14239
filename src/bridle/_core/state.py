"""The lifecycle of a session, as a table.

Two rules of this file: every move a session can make is a row of :data:`MOVES`, and a move that
is not a row is refused and changes nothing. Nothing else in Bridle assigns a lifecycle.

A gentle close is not a state. The session stays ``running`` while its last turn winds down,
because it still talks to the CLI; :mod:`bridle._core.shutdown` has its steps.
"""

from __future__ import annotations

from enum import StrEnum


class Lifecycle(StrEnum):
    """Where a session stands."""

    #: Nothing has been written yet; the process may or may not exist.
    STARTING = "starting"
    #: The initialize request is on its way; operations wait in the queue.
    INIT_SENT = "init_sent"
    #: The CLI has confirmed the session, by its answer or by asking something first.
    RUNNING = "running"
    #: Over: stopped by us, or the process came to its end.
    STOPPED = "stopped"
    #: Over: it never got going, or it broke a promise it cannot recover from.
    FAILED = "failed"


class Cause(StrEnum):
    """What moves a session from one lifecycle to the next."""

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
    """A move that is not in the table: a defect in the caller, never something the CLI did."""

    def __init__(self, state: Lifecycle, cause: Cause) -> None:
        super().__init__(state, cause)
        self.state = state
        self.cause = cause

    def __str__(self) -> str:
        return f"a session that is {self.state.value} cannot take {self.cause.value}"


def transition(state: Lifecycle, cause: Cause) -> Lifecycle:
    """Return the lifecycle that follows ``state`` upon ``cause``.

    Raises:
        InvalidTransition: the table has no such move.
    """
    try:
        return MOVES[state, cause]
    except KeyError:
        raise InvalidTransition(state, cause) from None
