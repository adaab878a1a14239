"""The asyncio `Turn`: the messages, the events and the outcome of one prompt."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from bridle._engine.delivery.text_stream import TextStream
from bridle._engine.delivery.turn_events import TurnTranslator
from bridle._engine.outgoing.operations import check_timeout
from bridle._session.answers.attempts import Answer
from bridle._session.readers.subscription import Subscription, TextPieces, TurnEvents
from bridle._session.readers.turn_state import TurnState
from bridle.messages import Message
from bridle.outcomes import Outcome


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

    A turn has one stream of messages. A loop over the turn, over ``events()`` or over
    ``text_stream()`` reads it. If a second loop starts, it gets the rest, and the first one raises
    UsageError. To read events and messages at the same time, use ``session.messages()``.
    """

    def __init__(self, state: TurnState, answer: Answer | None = None) -> None:
        self._state = state
        # Makes the final outcome, which may take further prompts. None: the first one is final.
        self._answer = answer
        self._text = TextStream()
        self._translator = TurnTranslator()

    @property
    def uuid(self) -> str:
        """Return the UUID of the prompt. Pass it to ``rewind_files``."""
        return self._state.uuid

    @property
    def done(self) -> bool:
        """Return True if the turn has its outcome."""
        return (self._state.outcome if self._answer is None else self._answer.final).done()

    def __aiter__(self) -> Subscription[Message]:
        """Iterate over the messages of this turn, in order, until the turn ends."""
        return Subscription(self._state.read(), self._state.leave, self._state.settle)

    def text_stream(self) -> TextPieces:
        """Return an iterator over the text of this turn, without repetitions.

        It separates text blocks by a blank line, and omits error messages of the CLI. If the model
        refused and a new answer follows, the text of the new answer comes when it is complete.
        """
        return TextPieces(self.__aiter__(), self._text)

    def events(self) -> TurnEvents:
        """Return an iterator over the events of this turn, for user interfaces.

        The last event is always ``TurnEnded``, with the outcome. The events are the same with and
        without ``CliOptions.include_partial_messages``, except that with it the text comes in more
        deltas.
        Set ``CliOptions.forward_subagent_text`` to get the text of subagents.
        """
        return TurnEvents(self.__aiter__(), self._translator, self._final_outcome)

    async def interrupt(self, *, timeout: float | None = None) -> None:
        """End this turn. Its outcome becomes ``interrupted``.

        A prompt that still waits in the CLI's queue is removed from it. Prompts that were merged
        into this turn end with it. Other queued prompts run next. Nothing happens if the turn has
        ended. If only its correction was still to come, none is sent, and the outcome stays as it
        was.

        Raises:
            ControlTimeout: no response within ``timeout`` seconds.
            ControlError: the CLI rejected the request, or has too many pending requests.

        Cancellation: ends the wait; the turn may still end.
        """
        check_timeout(timeout)
        if self._answer is None or not self._state.outcome.done():
            await self._state.interrupt(timeout)
        elif not self.done:
            await self._answer.interrupt(timeout)

    async def outcome(self) -> Outcome[Any]:
        """Wait until the turn ends, and return its outcome. A failed turn raises nothing.

        If no loop reads the turn, its messages are discarded. In a session with ``output_type``,
        an answer that fails validation goes back to the model, up to ``output_retries`` times.
        These prompts have no Turn; their messages are in ``session.messages()``. An answer is not
        corrected if the program has sent another prompt since.

        Cancellation: ends the wait; the turn continues.
        Concurrency: any number of tasks may wait.
        """
        outcome = await self._state.wait()
        return outcome if self._answer is None else await self._answer.take()

    async def _final_outcome(self) -> Outcome[Any] | None:
        outcome = self._state.outcome_so_far()
        if outcome is None or self._answer is None:
            return outcome
        return await self._answer.take()

    def __await__(self) -> Generator[Any, None, Outcome[Any]]:
        return self.outcome().__await__()

    def __repr__(self) -> str:
        outcome = self._state.outcome if self._answer is None else self._answer.final
        if not outcome.done():
            state = "running"
        elif outcome.cancelled() or outcome.exception() is not None:
            state = "failed"
        else:
            state = repr(outcome.result())
        return f"Turn({self.uuid!r}, {state})"


async def final_outcome(turn: Turn) -> Outcome[Any] | None:
    """Return the outcome of a turn whose messages have ended. None if they go on."""
    return await turn._final_outcome()  # pyright: ignore[reportPrivateUsage]


def take_back(turn: Turn, messages: list[Message]) -> None:
    """Put messages that a reader took but did not use back, for the next reader."""
    turn._state.put_back(messages)  # pyright: ignore[reportPrivateUsage]
