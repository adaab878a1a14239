"""End a session: gently, at once, or because it failed.

A gentle close interrupts the turn, rejects open requests, closes the input and waits. This module
uses the tables of turns and requests. The engine uses this module.
"""

from __future__ import annotations

from collections.abc import Callable

from bridle._engine.actions import Action, Publish
from bridle._engine.handshake import Handshake, early_exit
from bridle._engine.incoming.dispatch import Incoming
from bridle._engine.outgoing.requests import INTERRUPT, MAX_PENDING_REQUESTS, Outgoing
from bridle._engine.session_state import SessionState
from bridle._engine.shutdown import Shutdown, ShutdownStep, last_event
from bridle._engine.state import UNCONFIRMED, Cause, Lifecycle
from bridle._engine.turns.book import TurnBook
from bridle._engine.turns.classify import ProcessEnd
from bridle._engine.turns.limits import Budget
from bridle.errors import (
    BridleError,
    CliExitedDuringInit,
    SessionNotInitialized,
    SessionStopped,
    TransportError,
)
from bridle.events import SessionFailed

_AND_THE_QUEUE = {"cancel_queued": True}


class Closing:
    """The end of one session. ``ask`` sends a control request of our own."""

    def __init__(
        self,
        state: SessionState,
        emit: Callable[[Action], None],
        ask: Callable[..., None],
        shutdown: Shutdown,
        handshake: Handshake,
        turns: TurnBook,
        outgoing: Outgoing,
        incoming: Incoming,
    ) -> None:
        self.state = state
        self._emit = emit
        self._ask = ask
        self._shutdown = shutdown
        self._handshake = handshake
        self._turns = turns
        self._outgoing = outgoing
        self._incoming = incoming
        #: The limits of the session. None if it has none.
        self.budget: Budget | None = None
        #: The errors of the last result, in case the CLI exits without text on stderr.
        self.last_errors: tuple[str, ...] = ()

    def begin(self, now: float) -> None:
        """Interrupt the turn if one runs, and reject open requests.

        The interrupt comes first: after a refused tool call, the model could complete the turn.
        """
        self._outgoing.reject_all(SessionStopped)
        if self._turns.is_idle or self._shutdown.input_ended:
            self._incoming.refuse_all(now)
            self._shutdown.enter(ShutdownStep.DRAINING, now)
        else:
            self._shutdown.enter(ShutdownStep.INTERRUPTING, now)
            self._ask(INTERRUPT, _AND_THE_QUEUE, now)
            self._incoming.refuse_all(now)

    def turn_ended(self, now: float) -> None:
        """Continue with the close after the interrupted turn ended, or interrupt the next turn.

        If a tool call waits for approval, shut down: the CLI could begin a turn by itself, for
        example when a task ends, and would drop the call.
        """
        is_open = self._is_running and not self._shutdown.is_asked_for
        if is_open and self._turns.waits:
            self._outgoing.reject_all(SessionStopped)
            self._incoming.refuse_all(now)
            self._shutdown.close_input()  # nothing is written to a process that is terminated
            step = ShutdownStep.DRAINING if self._turns.is_quiet else ShutdownStep.TERMINATING
            self._shutdown.enter(step, now)
            return
        has_room = len(self._outgoing) < MAX_PENDING_REQUESTS
        if self._is_interrupting and not self.drain_if_idle(now) and has_room:
            # Older CLIs run the queued prompts although the interrupt asked to cancel them.
            self._ask(INTERRUPT, _AND_THE_QUEUE, now)

    def drain_if_idle(self, now: float) -> bool:
        """Close the input if no turn runs. Return False while a turn still has to end."""
        if self._is_interrupting and self._turns.is_idle:
            self._shutdown.enter(ShutdownStep.DRAINING, now)
        return not self._is_interrupting

    def prompt_comes(self, now: float) -> None:
        """Note that the application sends a prompt."""

    @property
    def _is_running(self) -> bool:
        return self.state.lifecycle is Lifecycle.RUNNING

    @property
    def _is_interrupting(self) -> bool:
        return self._shutdown.step is ShutdownStep.INTERRUPTING

    # -- at once, or with an error -----------------------------------------------------------------

    def stop(self, now: float) -> None:
        """Settle everything that is pending and terminate the process tree now."""
        self.state.move(Cause.STOP_REQUESTED)
        self.settle(ProcessEnd(process=self.state.process, by_us=True), now)
        self._shutdown.stop(now)

    def fail(self, cause: Cause, error: BridleError, now: float, *, by_us: bool = False) -> None:
        """End the session with an error."""
        self.state.move(cause)
        self.state.error = error.with_process(self.state.process)
        self._handshake.fail(error)
        self.state.failure = reason = str(error.args[0])
        self._outgoing.reject_queue(lambda what: SessionNotInitialized(what, reason))
        self.settle(ProcessEnd(process=self.state.process, by_us=by_us, cause=reason), now)
        self._emit(Publish(SessionFailed(reason, self.state.process.exit_code, error)))
        self._shutdown.shut_down(now)

    def break_off(self, error: BridleError, now: float) -> None:
        """Fail the session for a reason on our side, if it has not ended."""
        if self._is_running or self.state.lifecycle is Lifecycle.INIT_SENT:
            self.fail(Cause.BROKEN, error, now, by_us=True)

    def lose_contact(self, what: str, now: float) -> None:
        """Fail the session, because its CLI cannot be reached or does not do what it has to."""
        if self._is_running:
            self.fail(Cause.BROKEN, TransportError("session", None, what), now)
        elif self.state.lifecycle in UNCONFIRMED:
            self.fail(Cause.PROCESS_ENDED, CliExitedDuringInit(what), now)

    def conclude(self, now: float) -> None:
        """Decide how the session ended, after its process has exited."""
        state, is_asked_for = self.state, self._shutdown.is_asked_for
        if state.lifecycle in UNCONFIRMED:
            self.fail(Cause.PROCESS_ENDED, early_exit(state.process, self.last_errors), now)
        elif self._is_running:
            state.move(Cause.PROCESS_ENDED)
            last = last_event(state.process, asked_for=is_asked_for)
            state.failure = last.reason if isinstance(last, SessionFailed) else ""
            self.settle(ProcessEnd(process=state.process, by_us=is_asked_for), now)
            self._emit(Publish(last))
        elif self._shutdown.is_stopped:
            self._emit(Publish(last_event(state.process, asked_for=True)))

    def settle(self, ending: ProcessEnd, now: float) -> None:
        """Settle all outgoing and incoming requests and all turns, and stop watching the limits."""
        self._handshake.fail(SessionStopped("start").with_process(self.state.process))
        self._outgoing.reject_all(lambda what, id: SessionStopped(what, id, self.state.failure))
        self._incoming.drop_all()
        self._turns.end_all(ending, now)
        if self.budget is not None:
            self.budget.end(ending, now)
