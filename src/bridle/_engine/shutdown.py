"""Shut a process down in steps, each with a time limit.

A gentle close goes through every step, and a stop begins at ``TERMINATING``. The process may exit
at any step. Each step has a deadline after which the next one follows.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from bridle._engine.actions import Action, EndInput, Kill, Publish, Terminate
from bridle._engine.deadlines import Deadlines
from bridle.errors import ProcessInfo
from bridle.events import SessionCompleted, SessionEnded, SessionFailed

STEP = "step"
OUTPUT = "output"
PIPE = "pipe"
"""The kinds of the deadline tokens set here."""


class ShutdownStep(IntEnum):
    """The steps of a shutdown. A higher step is less gentle."""

    #: No shutdown was requested.
    NONE = 0
    #: A gentle close waits for the interrupted turn to end.
    INTERRUPTING = 1
    #: Standard input is closed; the CLI writes its transcript and exits.
    DRAINING = 2
    #: SIGTERM was sent to the whole tree.
    TERMINATING = 3
    #: SIGKILL was sent to the whole tree.
    KILLING = 4


NEXT_STEP: dict[ShutdownStep, ShutdownStep] = {
    ShutdownStep.INTERRUPTING: ShutdownStep.DRAINING,
    ShutdownStep.DRAINING: ShutdownStep.TERMINATING,
    ShutdownStep.TERMINATING: ShutdownStep.KILLING,
}
"""The step after each step. ``KILLING`` is the last one."""

HOLD: dict[ShutdownStep, float] = {
    # A working CLI answers an interrupt within tens of milliseconds.
    ShutdownStep.INTERRUPTING: 2.0,
    # Time to write the transcript. Background shells may run longer but do not delay the shutdown.
    ShutdownStep.DRAINING: 5.0,
    # The CLI kills its own children on SIGTERM. This gives it the time to do so.
    ShutdownStep.TERMINATING: 5.0,
}
"""Seconds before the next step follows."""

OUTPUT_GRACE = 1.0
"""Seconds to wait for the end of the output after the exit, and for the exit after that end.

A child process that inherited the pipe can hold it open forever.
"""


class Shutdown:
    """The shutdown of one process: which parts have ended, and the current step."""

    def __init__(self, deadlines: Deadlines, emit: Callable[[Action], None]) -> None:
        self._deadlines = deadlines
        self._emit = emit
        self.step = ShutdownStep.NONE
        #: True once a shutdown was requested.
        self.is_asked_for = False
        #: True if `stop` ends the process. The session's last event then carries its exit code.
        self.is_stopped = False
        #: True once a process was started.
        self.spawned = False
        self.exited = False
        self.output_ended = False
        #: True if the end of the input was requested before the session was running.
        self.input_end_is_due = False
        #: True if nothing can be written any more: the input is closed, broken, or not needed.
        self.input_ended = False
        #: Writing has failed.
        self.input_is_lost = False

    @property
    def is_complete(self) -> bool:
        """True once the process has exited and all its output was read."""
        return self.exited and self.output_ended

    def enter(self, step: ShutdownStep, now: float) -> None:
        """Enter ``step`` and perform its action."""
        self.step = step
        self.is_asked_for = True
        if step is ShutdownStep.DRAINING:
            self.close_input()
        elif step is ShutdownStep.TERMINATING:
            self._emit(Terminate())
        elif step is ShutdownStep.KILLING:
            self._emit(Kill())
        if step in HOLD and not self.exited:
            self._deadlines.set((STEP, None), now + HOLD[step])

    def enter_next(self, now: float) -> None:
        """Enter the next step, because the time of the current one is over."""
        self.enter(NEXT_STEP[self.step], now)

    def close_input(self) -> None:
        """Close the CLI's input, once."""
        if not self.input_ended:
            self.input_ended = True
            self._emit(EndInput())

    def lose_input(self, reason: str, now: float) -> None:
        """Note that the pipe broke. The CLI is probably exiting, so give it a moment."""
        self.input_ended = self.input_is_lost = True
        self._deadlines.set((PIPE, reason), now + OUTPUT_GRACE)

    def wait_for_rest(self, now: float) -> None:
        """Wait a short time for the output or the process, after the other one has ended."""
        if self.exited:
            self._deadlines.clear((STEP, None))
        if not self.is_complete:
            self._deadlines.set((OUTPUT, None), now + OUTPUT_GRACE)

    def stop(self, now: float) -> None:
        """End the process on request, and publish the last event after its exit."""
        self.is_stopped = self.spawned
        if not self.spawned:
            self._emit(Publish(SessionEnded()))
        self.shut_down(now)

    def shut_down(self, now: float) -> None:
        """Terminate the process, if there is one, because the session has ended."""
        self.input_ended = True
        if self.spawned and not self.exited and self.step < ShutdownStep.TERMINATING:
            self.enter(ShutdownStep.TERMINATING, now)


def last_event(
    process: ProcessInfo, *, asked_for: bool
) -> SessionCompleted | SessionEnded | SessionFailed:
    """Return the last event of a session that was running when its process exited."""
    if asked_for:
        return SessionEnded(process.exit_code)
    if process.exit_code == 0:
        return SessionCompleted()
    return SessionFailed(f"the CLI ended with {process.ending}", process.exit_code)
