"""What a consumer iterates: a session's messages or events, or the messages of one turn."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from bridle._core.text import TextStream
from bridle._shell.subscriptions import Closed, Queue
from bridle.messages import Message

_T = TypeVar("_T")


class Subscription(Generic[_T]):
    """An async iterator over what comes, from the moment it was made.

    It ends when the session does. Leaving it early (``break``, ``aclose``, or just dropping it)
    ends the subscription; the session goes on. What a turn's has not read is for the next loop over
    that turn; what another has not read is let go.

    Cancellation: cancelling the wait for the next item loses nothing.
    Concurrency: one task at a time may iterate; make a subscription for each reader.
    """

    def __init__(self, queue: Queue[_T], leave: Callable[[Queue[_T]], None]) -> None:
        self._queue = queue
        # Runs at most once, on aclose() or when nobody holds the subscription any more.
        self._leave = weakref.finalize(self, leave, queue)
        self._leave.atexit = False

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
            del self  # or the traceback would hold it, and nobody else reads on
            raise

    async def aclose(self) -> None:
        """End the subscription."""
        self._leave()

    async def __aenter__(self) -> Subscription[_T]:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class TextPieces:
    """An async iterator over the text of messages, each piece once.

    Cancellation: cancelling the wait for the next piece loses nothing.
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
        """End it."""
        await self._messages.aclose()
