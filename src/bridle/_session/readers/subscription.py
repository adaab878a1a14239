"""Async iterators over messages, events and text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from bridle._engine.delivery.text_stream import TextStream
from bridle._engine.delivery.turn_events import TurnTranslator
from bridle._runtime.finalizers import when_dropped
from bridle._session.readers.queues import Closed, Queue
from bridle.events import TurnEvent
from bridle.messages import Message
from bridle.outcomes import Outcome

_T = TypeVar("_T")


class Subscription(Generic[_T]):
    """An async iterator over the items that arrive after it was created.

    It ends when the session ends. To end it earlier, leave the loop, call ``aclose``, or drop the
    object; the session continues. The unread messages of a turn are kept for the next loop over
    that turn. Other unread items are discarded.

    Cancellation: cancelling the wait for the next item loses no item.
    Concurrency: one task at a time may iterate. Create one subscription per reader.
    """

    def __init__(
        self,
        queue: Queue[_T],
        leave: Callable[[Queue[_T]], None],
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        self._queue = queue
        # Called after `leave` on the event loop, where the garbage collector cannot be the caller.
        self._settle = settle
        # Runs at most once: on aclose(), or when the subscription is garbage-collected.
        self._leave = when_dropped(self, leave, queue)

    def __aiter__(self) -> Subscription[_T]:
        return self

    async def __anext__(self) -> _T:
        ready = self._queue.ready
        if ready:
            return ready.pop()
        try:
            return await self._queue.take()
        except Closed as end:
            if end.error is not None:
                raise end.error from None
            raise StopAsyncIteration from None
        except BaseException:
            del self  # or the traceback keeps the subscription alive, and it is not closed
            raise

    async def aclose(self) -> None:
        """End the subscription."""
        self._leave()
        self._settle()

    async def __aenter__(self) -> Subscription[_T]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class TextPieces:
    """An async iterator over the text of messages, without repetitions.

    Cancellation: cancelling the wait for the next text loses no text.
    """

    def __init__(self, messages: Subscription[Message], stream: TextStream) -> None:
        self._messages = messages
        self._stream = stream

    def __aiter__(self) -> TextPieces:
        return self

    async def __anext__(self) -> str:
        try:
            while not (text := self._stream.feed(await self._messages.__anext__())):
                pass
        except StopAsyncIteration:
            if not (text := self._stream.end()):
                raise
        except BaseException:
            del self  # as above
            raise
        return text

    async def aclose(self) -> None:
        """End the subscription to the messages."""
        await self._messages.aclose()


class TurnEvents:
    """An async iterator over the events of a turn. The last event is `TurnEnded`.

    To end it earlier, leave the loop, call ``aclose``, or drop the object; the turn continues. The
    unread events are kept for the next loop over the events of that turn.

    Cancellation: cancelling the wait for the next event loses no event.
    Concurrency: one task at a time may iterate.
    """

    def __init__(
        self,
        messages: Subscription[Message],
        translator: TurnTranslator,
        outcome: Callable[[], Awaitable[Outcome[Any] | None]],
    ) -> None:
        self._messages = messages
        self._translator = translator
        self._outcome = outcome
        self._has_ended = False

    def __aiter__(self) -> TurnEvents:
        return self

    async def __anext__(self) -> TurnEvent:
        translator = self._translator
        try:
            while not translator.ready and not self._has_ended:
                translator.feed(await self._messages.__anext__())
        except StopAsyncIteration:
            outcome = await self._outcome()
            self._has_ended = True
            if outcome is not None:  # None after aclose()
                translator.end(outcome)
        except BaseException:
            del self  # as above
            raise
        if not translator.ready:
            raise StopAsyncIteration
        return translator.ready.popleft()

    async def aclose(self) -> None:
        """End the subscription to the messages."""
        await self._messages.aclose()

    async def __aenter__(self) -> TurnEvents:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
