"""Close a session gently: interrupt the turn, reject open requests, close the input, wait.

This module uses the tables of turns and requests. The engine uses this module.
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
    """Close one session gently. ``ask`` sends a control request of our own."""

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
        """Continue with the close after the interrupted turn ended, or interrupt the next turn."""
        has_room = len(self._outgoing) < MAX_PENDING_REQUESTS
        if self._is_interrupting and not self.drain_if_idle(now) and has_room:
            # Older CLIs run the queued prompts although the interrupt asked to cancel them.
            self._ask(INTERRUPT, _AND_THE_QUEUE, now)

    def drain_if_idle(self, now: float) -> bool:
        """Close the input if no turn runs. Return False while a turn still has to end."""
        if self._is_interrupting and self._turns.is_idle:
            self._shutdown.enter(ShutdownStep.DRAINING, now)
        return not self._is_interrupting

    @property
    def _is_interrupting(self) -> bool:
        return self._shutdown.step is ShutdownStep.INTERRUPTING
