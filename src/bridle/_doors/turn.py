"""The asyncio `Turn`: the messages and the outcome of one prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from bridle._core.text import TextStream
from bridle._doors.subscription import Subscription, TextPieces
from bridle._shell.turn import TurnState
from bridle.messages import Message
from bridle.outcomes import Outcome

Finish = Callable[[Outcome[Any]], Coroutine[Any, Any, Outcome[Any]]]
"""Makes the final outcome of a turn."""


class Turn:
    """The work on one prompt: iterate it for its messages, await it for its outcome.

    You can do both, at the same time or one after the other. Begin to iterate first: awaiting the
    turn discards the messages if no loop reads them, even if the wait times out, and a later loop
    raises UsageError.

    The session keeps unread messages of turns for the next loop: at most 8 MiB for all turns that
    no loop has read yet (copies of your prompts do not count), and at most
    ``SdkOptions.max_unread_bytes`` for all turns, including those with an abandoned loop. Above
    that it drops the messages of the oldest turn with the warning ``missed_messages``, and a loop
    over that turn raises ConsumerTooSlow.

    If a second loop over a turn starts, the first one raises UsageError.
    """

    def __init__(self, state: TurnState, finish: Finish | None = None) -> None:
        self._state = state
        # Makes the final outcome, which may take further prompts.
        self._finish = finish
        self._finishing: asyncio.Future[Outcome[Any]] | None = None
        self._text = TextStream()

    @property
    def uuid(self) -> str:
        """Return the UUID of the prompt. Pass it to ``rewind_files``."""
        return self._state.uuid

    @property
    def done(self) -> bool:
        """Return True if the turn has ended."""
        return self._state.outcome.done()

    def __aiter__(self) -> Subscription[Message]:
        """Iterate over the messages of this turn, in order, until the turn ends."""
        return Subscription(self._state.read(), self._state.leave, self._state.settle)

    def text_stream(self) -> TextPieces:
        """Return an iterator over the text of this turn, without repetitions.

        It separates text blocks by a blank line, and omits error messages of the CLI. If the model
        refused and a new answer follows, the text of the new answer comes when it is complete.
        """
        return TextPieces(self.__aiter__(), self._text)

    async def outcome(self) -> Outcome[Any]:
        """Wait until the turn ends, and return its outcome. A failed turn raises nothing.

        If no loop reads the turn, its messages are discarded. In a session with ``output_type``,
        an answer that fails validation goes back to the model, up to ``output_retries`` times.
        These prompts have no Turn; their messages are in ``session.messages()``.

        Cancellation: ends the wait; the turn continues.
        Concurrency: any number of tasks may wait.
        """
        outcome = await self._state.wait()
        if self._finish is None:
            return outcome
        if self._finishing is None:
            self._finishing = asyncio.ensure_future(self._finish(outcome))
        return await asyncio.shield(self._finishing)

    def __await__(self) -> Generator[Any, None, Outcome[Any]]:
        return self.outcome().__await__()

    def __repr__(self) -> str:
        state = repr(self._state.outcome.result()) if self.done else "running"
        return f"Turn({self.uuid!r}, {state})"


def take_back(turn: Turn, messages: list[Message]) -> None:
    """Put messages that a reader took but did not use back, for the next reader."""
    turn._state.put_back(messages)  # pyright: ignore[reportPrivateUsage]
