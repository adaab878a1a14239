"""Delivery to consumers: in order, never in the way of the session, bounded in bytes.

A :class:`Mailbox` is what one consumer has not read yet. Delivering never waits, so control traffic
never waits behind a consumer. Items come and are kept in batches, as they were read from the pipe,
so that hundreds of small messages cost little more than one. What piles up is kept as cheaply as
possible: beyond a megabyte only the lines of messages are kept, and read again when they are taken.

How much may pile up is the owner's decision; the mailbox only counts. An :class:`EventMailbox`
decides for itself: it keeps the newest events. Everything here belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, TypeVar, cast

from bridle._core.wire import decode_all
from bridle._source import lines_of
from bridle.errors import UsageError
from bridle.events import SdkWarning, SessionEvent, WarningKind
from bridle.messages import Message

_KEPT_DECODED = 1 << 20
"""Bytes of unread messages kept as they are. A consumer that keeps up never reads one twice."""

EVENT_COST = 256
"""Bytes an event is counted with, roughly what it takes."""

KEPT_EVENTS = 256
"""Unread events that are kept for one consumer."""

_T = TypeVar("_T")


def foreign_loop() -> UsageError:
    """Return the error for using a session on another event loop."""
    fix = "Call it there, or use bridle.sync, which works from every thread."
    return UsageError("A session belongs to the event loop it was started on.", fix=fix)


class Closed(Exception):
    """Nothing is left and nothing more will come. ``error`` says why, if that was a failure."""

    def __init__(self, error: BaseException | None) -> None:
        super().__init__(error)
        self.error = error


def size_of(messages: Sequence[Message]) -> int:
    """Return the bytes of the lines these were read from."""
    return sum(map(len, lines_of(messages)))


class Mailbox(Generic[_T]):
    """Items for one consumer. Taking is for one task at a time, on ``loop`` if that is given."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop
        # What is read next, the next one last: taking it is a pop.
        self.ready: list[_T] = []
        # The batches after that, with their sizes: items, or the lines of messages.
        self._batches: deque[tuple[list[Any], int]] = deque()
        self._batched = 0
        self._waiter: asyncio.Future[None] | None = None
        self._closed: Closed | None = None
        #: Bytes that wait here, those of the batch that is being read aside.
        self.unread_bytes = 0

    def __len__(self) -> int:
        return len(self.ready) + self._batched

    @property
    def is_closed(self) -> bool:
        """True once nothing more will be put in; there may be items left."""
        return self._closed is not None

    def put(self, item: _T) -> None:
        """Add an item that is no message: an event."""
        self._put([item], EVENT_COST)

    def put_messages(self, messages: list[Message], size: int, *, as_lines: bool = False) -> None:
        """Add messages of ``size`` bytes; only for mailboxes whose items may be messages.

        ``as_lines`` keeps their lines alone, which take less memory than what was decoded.
        """
        as_lines = as_lines or self.unread_bytes > _KEPT_DECODED
        self._put(lines_of(messages) if as_lines else messages, size)

    def put_back(self, messages: list[Message]) -> None:
        """Have these taken once more, before all others, and count them as unread again.

        Only for mailboxes of messages. They are kept as lines, with those of the batch that was
        being read.
        """
        lines = lines_of([*messages, *reversed(cast("list[Message]", self.ready))])
        self.ready = []
        if lines:
            size = sum(map(len, lines))
            self._batches.appendleft((lines, size))
            self._batched += len(lines)
            self.unread_bytes += size
            self._wake()

    def _put(self, items: list[Any], size: int) -> None:
        if self._closed is None:
            self._batches.append((items, size))
            self._batched += len(items)
            self.unread_bytes += size
            self._wake()

    def close(self, error: BaseException | None = None) -> None:
        """Nothing more will come. What is here can still be taken."""
        if self._closed is None:
            self._closed = Closed(error)
            self._wake()

    def hand_over(self, error: BaseException | None) -> Mailbox[_T]:
        """Another mailbox with all that is here; this one is empty and closed."""
        heir: Mailbox[_T] = Mailbox(self._loop)
        heir.ready, heir._batches, heir._batched = self.ready, self._batches, self._batched
        heir.unread_bytes, heir._closed = self.unread_bytes, self._closed
        self.ready, self._batches = [], deque()
        self.clear()
        self._closed = Closed(error)
        self._wake()
        return heir

    def clear(self) -> None:
        """Forget what waits."""
        self.ready.clear()
        self._batches.clear()
        self._batched = 0
        self.unread_bytes = 0

    def take_now(self) -> _T:
        """The next item, which must be there."""
        if not self.ready:
            items, size = self._batches.popleft()
            self._batched -= len(items)
            self.unread_bytes -= size
            if isinstance(items[0], bytes):
                items, _ = decode_all(items)
            self.ready = items[::-1]
        return self.ready.pop()

    async def take(self) -> _T:
        """The next item, as soon as there is one. Without a task switch if it is there.

        Cancellation loses nothing.

        Raises:
            Closed: there is no next item.
            UsageError: this is not the event loop that the items come on.
        """
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop) and self._closed is None:
            raise foreign_loop()
        while not self.ready and not self._batches:
            if self._closed is not None:
                raise self._closed
            if self._waiter is not None:
                raise UsageError(
                    "Another task is already waiting for the next item.",
                    fix="Read a stream from one task at a time.",
                )
            self._waiter = loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self.take_now()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class EventMailbox(Mailbox[SessionEvent]):
    """Events for one consumer: the newest ones, after a warning if older ones were dropped."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__(loop)
        self._dropped = 0

    def put(self, item: SessionEvent) -> None:
        """Add an event."""
        super().put(item)
        if len(self) > KEPT_EVENTS:
            super().take_now()
            self._dropped += 1

    def take_now(self) -> SessionEvent:
        """Return the next event, which must be there."""
        if not self._dropped:
            return super().take_now()
        dropped, self._dropped = self._dropped, 0
        detail = f"{dropped} events were dropped, at most {KEPT_EVENTS} are kept unread"
        return SdkWarning(WarningKind.MISSED_EVENTS, detail)
