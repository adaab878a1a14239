"""A gentle close: interrupt the turn, reject what is open, close the input, wait a little.

It stands above the tables of turns and requests, which it uses, and below the engine.
"""

from __future__ import annotations

from collections.abc import Callable

from bridle._core.incoming.handling import Incoming
from bridle._core.outgoing import INTERRUPT, MAX_PENDING_REQUESTS, Outgoing
from bridle._core.shutdown import Shutdown, ShutdownStep
from bridle._core.turns import TurnBook
from bridle.errors import SessionStopped

_AND_THE_QUEUE = {"cancel_queued": True}


class GentleClose:
    """The gentle close of one session. ``ask`` sends a control request of our own."""

    def __init__(
        self,
        shutdown: Shutdown,
        turns: TurnBook,
        outgoing: Outgoing,
        incoming: Incoming,
        ask: Callable[..., None],
    ) -> None:
        self._shutdown = shutdown
        self._turns = turns
        self._outgoing = outgoing
        self._incoming = incoming
        self._ask = ask

    def begin(self, now: float) -> None:
        """Reject what is open, and interrupt the turn if one runs."""
        self._outgoing.reject_all(SessionStopped)
        self._incoming.refuse_all(now)
        if self._turns.is_idle or self._shutdown.input_ended:
            self._shutdown.enter(ShutdownStep.DRAINING, now)
        else:
            self._shutdown.enter(ShutdownStep.INTERRUPTING, now)
            self._ask(INTERRUPT, _AND_THE_QUEUE, now)

    def turn_ended(self, now: float) -> None:
        """Go on if that was the turn that was interrupted; else interrupt the next one."""
        has_room = len(self._outgoing) < MAX_PENDING_REQUESTS
        if self._is_interrupting and not self.drain_if_idle(now) and has_room:
            # Older CLIs run the prompts that waited, whatever the interrupt asked for.
            self._ask(INTERRUPT, _AND_THE_QUEUE, now)

    def drain_if_idle(self, now: float) -> bool:
        """Close the input if no turn runs any more. Return True unless a turn is awaited."""
        if self._is_interrupting and self._turns.is_idle:
            self._shutdown.enter(ShutdownStep.DRAINING, now)
        return not self._is_interrupting

    @property
    def _is_interrupting(self) -> bool:
        return self._shutdown.step is ShutdownStep.INTERRUPTING
