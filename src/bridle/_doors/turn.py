"""A turn in the hands of the application."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from bridle._core.text import TextStream
from bridle._doors.subscription import Subscription, TextPieces
from bridle._shell.turn import TurnState
from bridle.messages import Message
from bridle.outcomes import Outcome


class Turn:
    """The work on one prompt: iterate it for its messages, await it for its outcome.

    Both may be done, at once or one after the other; iterate first. Waiting for the outcome while
    no loop reads discards the messages, also if the wait times out: a later loop raises UsageError.

    Messages that no loop reads are held for the next loop, within bounds for the whole session:
    eight mebibytes for turns that no loop has read yet, the repetitions of your own prompts not
    counted, and ``SdkOptions.max_unread_bytes`` for all turns, those whose loop was left included.
    Beyond that the messages of the oldest turn are dropped, with the warning ``missed_messages``,
    and a loop over that turn raises ConsumerTooSlow.

    If two loops over one turn go on at once, the older one raises UsageError.
    """

    def __init__(self, state: TurnState) -> None:
        self._state = state
        self._text = TextStream()

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
        """Return an iterator over the text of this turn, each part once.

        Text blocks are separated by a blank line. The CLI's own error messages are left out. The
        text of an answer that follows a refusal comes when that answer has ended.
        """
        return TextPieces(self.__aiter__(), self._text)

    async def outcome(self) -> Outcome[Any]:
        """Return the one outcome of this turn. Never raises for how the turn went.

        If no loop reads the turn, its messages are discarded.

        Cancellation: cancelling the wait does nothing to the turn.
        Concurrency: any number of tasks may wait.
        """
        return await self._state.wait()

    def __await__(self) -> Generator[Any, None, Outcome[Any]]:
        return self.outcome().__await__()

    def __repr__(self) -> str:
        state = repr(self._state.outcome.result()) if self.done else "running"
        return f"Turn({self.uuid!r}, {state})"


def take_back(turn: Turn, messages: list[Message]) -> None:
    """Keep what a reader that has left took and did not read, for the next one."""
    turn._state.put_back(messages)  # pyright: ignore[reportPrivateUsage]
