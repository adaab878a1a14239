"""How a session's process comes to its end: the rungs of the ladder, and how long each holds.

A gentle close climbs every rung; a stop begins at ``TERMINATING``; a process that ends on its own
leaves the ladder at whatever rung it reached. The ladder only ever climbs, and the engine's
deadlines move it: each rung either has a time limit after which the next one follows, or waits
for an answer that is itself limited.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from bridle._core.actions import Action, EndInput, Kill, Publish, Terminate
from bridle._core.deadlines import Deadlines
from bridle.errors import ProcessInfo
from bridle.events import SessionCompleted, SessionEnded, SessionFailed

RUNG = "rung"
OUTPUT = "output"
PIPE = "pipe"
"""Kinds of deadline tokens the ending sets."""


class Rung(IntEnum):
    """How far the ending has got. Higher means less gentle."""

    #: Nobody has asked for the end.
    NONE = 0
    #: A gentle close waits for the interrupted turn to wind down.
    INTERRUPTING = 1
    #: Standard input is closed; the CLI writes its transcript and leaves by itself.
    DRAINING = 2
    #: SIGTERM was sent to the whole tree.
    TERMINATING = 3
    #: SIGKILL was sent to the whole tree.
    KILLING = 4


NEXT_RUNG: dict[Rung, Rung] = {
    Rung.INTERRUPTING: Rung.DRAINING,
    Rung.DRAINING: Rung.TERMINATING,
    Rung.TERMINATING: Rung.KILLING,
}
"""What follows a rung whose time is up. There is nothing above ``KILLING``."""

HOLD: dict[Rung, float] = {
    # A CLI that takes an interrupt at all answers within tens of milliseconds; past this it hangs.
    Rung.INTERRUPTING: 2.0,
    # Time to finish the transcript. Background shells may outlive their turn: they do not delay us.
    Rung.DRAINING: 5.0,
    # The CLI kills its own children on SIGTERM; give it the time to do so.
    Rung.TERMINATING: 5.0,
}
"""Seconds a rung holds before the next one follows."""

OUTPUT_GRACE = 1.0
"""Seconds between a process's exit and the end of its output before we stop waiting for more.

A child that inherited the pipe can hold it open for ever. The same time is given the other way
round: output that ends while the process lives is a CLI that can no longer talk to us.
"""


class Departure:
    """What has ended already, and the ladder that ends the rest."""

    def __init__(self, deadlines: Deadlines, emit: Callable[[Action], None]) -> None:
        self._deadlines = deadlines
        self._emit = emit
        self.rung = Rung.NONE
        #: True once somebody wants the end.
        self.is_asked_for = False
        #: A process is being brought down by `stop`; the session's last event tells its exit code.
        self.is_stopped = False
        #: There is, or was, a process.
        self.spawned = False
        self.exited = False
        self.output_ended = False
        #: The end of the input was asked for before the session was running.
        self.input_end_is_due = False
        #: Nothing can be written any more: closed by us, broken, or not worth it.
        self.input_ended = False

    @property
    def is_complete(self) -> bool:
        """True once the process is gone and has said all it had to say."""
        return self.exited and self.output_ended

    def climb(self, rung: Rung, now: float) -> None:
        """Step onto ``rung`` and do what it stands for."""
        self.rung = rung
        self.is_asked_for = True
        if rung is Rung.DRAINING:
            self.close_input()
        elif rung is Rung.TERMINATING:
            self._emit(Terminate())
        elif rung is Rung.KILLING:
            self._emit(Kill())
        if rung in HOLD and not self.exited:
            self._deadlines.set((RUNG, None), now + HOLD[rung])

    def climb_on(self, now: float) -> None:
        """The rung has held long enough."""
        self.climb(NEXT_RUNG[self.rung], now)

    def close_input(self) -> None:
        """Tell the CLI that nothing more comes, once."""
        if not self.input_ended:
            self.input_ended = True
            self._emit(EndInput())

    def lose_input(self, reason: str, now: float) -> None:
        """The pipe broke. The CLI is most likely leaving; it gets a moment to do so."""
        self.input_ended = True
        self._deadlines.set((PIPE, reason), now + OUTPUT_GRACE)

    def wait_for_rest(self, now: float) -> None:
        """One of output and process has ended: the other is waited for, but not for long."""
        if self.exited:
            self._deadlines.clear((RUNG, None))
        if not self.is_complete:
            self._deadlines.set((OUTPUT, None), now + OUTPUT_GRACE)

    def stop(self, now: float) -> None:
        """The session was told to end: bring the process down, and tell of its end afterwards."""
        self.is_stopped = self.spawned
        if not self.spawned:
            self._emit(Publish(SessionEnded()))
        self.shut_down(now)

    def shut_down(self, now: float) -> None:
        """The session is over: bring the process down, if there is one."""
        self.input_ended = True
        if self.spawned and not self.exited and self.rung < Rung.TERMINATING:
            self.climb(Rung.TERMINATING, now)


def farewell(
    process: ProcessInfo, *, asked_for: bool
) -> SessionCompleted | SessionEnded | SessionFailed:
    """The last event of a session that was running when its process came to an end."""
    if asked_for:
        return SessionEnded(process.exit_code)
    if process.exit_code == 0:
        return SessionCompleted()
    return SessionFailed(f"the CLI ended with {process.ending}", process.exit_code)
