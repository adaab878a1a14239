"""The asyncio `Turn`: the messages, the events and the outcome of one prompt."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any

from bridle._core.operations import check_timeout
from bridle._core.text_stream import TextStream
from bridle._core.turn_events import TurnTranslator
from bridle._doors.subscription import Subscription, TextPieces, TurnEvents
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

    A turn has one stream of messages. A loop over the turn, over ``events()`` or over
    ``text_stream()`` reads it. If a second loop starts, it gets the rest, and the first one raises
    UsageError. To read events and messages at the same time, use ``session.messages()``.
    """

    def __init__(self, state: TurnState, finish: Finish | None = None) -> None:
        self._state = state
        # Makes the final outcome, which may take further prompts.
        self._finish = finish
        self._final: Outcome[Any] | None = None
        self._text = TextStream()
        self._translator = TurnTranslator()

    @property
    def uuid(self) -> str:
        """Return the UUID of the prompt. Pass it to ``rewind_files``."""
        return self._state.uuid

    @property
    def done(self) -> bool:
        """Return True if the turn has ended. Awaiting it may still correct its output."""
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

    def events(self) -> TurnEvents:
        """Return an iterator over the events of this turn, for user interfaces.

        The last event is always ``TurnEnded``. Await the turn for an output of ``output_type``: the
        event has the outcome before it is validated. The events are the same with and without
        ``CliOptions.include_partial_messages``, except that with it the text comes in more deltas.
        Set ``CliOptions.forward_subagent_text`` to get the text of subagents.
        """
        return TurnEvents(self.__aiter__(), self._translator, self._state.outcome_so_far)

    async def interrupt(self, *, timeout: float | None = None) -> None:
        """End this turn. Its outcome becomes ``interrupted``.

        A prompt that still waits in the CLI's queue is removed from it. Prompts that were merged
        into this turn end with it. Other queued prompts run next. Nothing happens if the turn has
        ended.

        Raises:
            ControlTimeout: no response within ``timeout`` seconds.
            ControlError: the CLI rejected the request, or has too many pending requests.

        Cancellation: ends the wait; the turn may still end.
        """
        check_timeout(timeout)
        await self._state.interrupt(timeout)

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
        if self._final is None:
            self._final = await self._finish(outcome)
        return self._final

    def __await__(self) -> Generator[Any, None, Outcome[Any]]:
        return self.outcome().__await__()

    def __repr__(self) -> str:
        state = repr(self._state.outcome.result()) if self.done else "running"
        return f"Turn({self.uuid!r}, {state})"


def outcome_so_far(turn: Turn) -> Outcome[Any] | None:
    """Return the outcome of a turn, or None if it has not ended. Safe to call from any thread."""
    return turn._state.outcome_so_far()  # pyright: ignore[reportPrivateUsage]


def take_back(turn: Turn, messages: list[Message]) -> None:
    """Put messages that a reader took but did not use back, for the next reader."""
    turn._state.put_back(messages)  # pyright: ignore[reportPrivateUsage]
