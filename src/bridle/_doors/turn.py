"""A turn in the hands of the application."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

from bridle._doors.subscription import Subscription, TextPieces
from bridle._shell.turn import TurnState
from bridle.messages import Message
from bridle.outcomes import Outcome


class Turn:
    """What became of one prompt: iterate it for its messages, await it for its outcome.

    Both may be done, at once or one after the other. Messages are kept from the start for whoever
    iterates; awaiting the outcome alone lets them go, so iterate first (or at the same time) if
    you want both. Iterating raises RuntimeError where messages would be missed without a word:
    while somebody else iterates, and after the end of a turn whose messages were let go.
    """

    def __init__(self, state: TurnState) -> None:
        self._state = state

    @property
    def uuid(self) -> str:
        """The prompt's uuid: what ``rewind_files`` takes."""
        return self._state.uuid

    @property
    def done(self) -> bool:
        """True once there is an outcome."""
        return self._state.outcome.done()

    def __aiter__(self) -> Subscription[Message]:
        """The messages of this turn, in order; ends with the turn."""
        return Subscription(self._state.read(), self._state.leave)

    def text_stream(self) -> TextPieces:
        """The text of this turn as it is written, each piece once."""
        return TextPieces(self.__aiter__())

    async def outcome(self) -> Outcome[Any]:
        """The one outcome of this turn. Never raises for how the turn went.

        Cancellation: cancelling the wait does nothing to the turn.
        Concurrency: any number of tasks may wait.
        """
        self._state.skip()
        return await asyncio.shield(self._state.outcome)

    def __await__(self) -> Generator[Any, None, Outcome[Any]]:
        return self.outcome().__await__()

    def __repr__(self) -> str:
        state = repr(self._state.outcome.result()) if self.done else "running"
        return f"Turn({self.uuid!r}, {state})"
