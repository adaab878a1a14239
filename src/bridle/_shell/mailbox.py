"""Delivery to consumers: in order, never in the way of the session, bounded in bytes.

A :class:`Mailbox` is what one consumer has not read yet. Delivering never waits, so control traffic
never waits behind a consumer. What piles up is kept as cheaply as possible: beyond a few hundred
messages only their lines are kept and read again when they are taken.

How much may pile up is the owner's decision; the mailbox only counts. Everything here belongs to
one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar, cast

from bridle._core.wire import decode_line
from bridle._source import line_of
from bridle.messages import Message

_KEPT_DECODED = 512
"""Unread messages kept as they are. A consumer that keeps up never reads one twice."""

_EVENT_COST = 256
"""Bytes an event is counted with, roughly what it takes."""

_T = TypeVar("_T")


class Closed(Exception):
    """Nothing is left and nothing more will come. ``error`` says why, if that was a failure."""

    def __init__(self, error: BaseException | None) -> None:
        super().__init__(error)
        self.error = error


class Mailbox(Generic[_T]):
    """Items for one consumer. Taking is for one task at a time."""

    def __init__(self) -> None:
        self._items: deque[_T | bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._closed: Closed | None = None
        #: Bytes of the lines and events that wait here.
        self.unread_bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_closed(self) -> bool:
        """True once nothing more will be put in; there may be items left."""
        return self._closed is not None

    def put(self, item: _T) -> None:
        """Add an item that is no message: an event."""
        if self._closed is None:
            self._items.append(item)
            self.unread_bytes += _EVENT_COST
            self._wake()

    def put_messages(self, messages: Sequence[Message]) -> None:
        """Add messages, in order; only for mailboxes whose items may be messages."""
        if self._closed is not None:
            return
        items = cast("deque[Message | bytes]", self._items)
        for message in messages:
            line = line_of(message)
            self.unread_bytes += len(line)
            items.append(message if len(items) < _KEPT_DECODED else line)
        self._wake()

    def close(self, error: BaseException | None = None) -> None:
        """Nothing more will come. What is here can still be taken."""
        if self._closed is None:
            self._closed = Closed(error)
            self._wake()

    def clear(self) -> None:
        """Forget what waits."""
        self._items.clear()
        self.unread_bytes = 0

    def take_now(self) -> _T:
        """The next item, which must be there."""
        item = self._items.popleft()
        if isinstance(item, bytes):
            self.unread_bytes -= len(item)
            return cast("_T", decode_line(item))
        cost = len(line_of(item)) if isinstance(item, Message) else _EVENT_COST
        self.unread_bytes -= cost
        return item

    async def take(self) -> _T:
        """The next item, as soon as there is one. Without a task switch if it is there.

        Cancellation loses nothing.

        Raises:
            Closed: there is no next item.
        """
        while not self._items:
            if self._closed is not None:
                raise self._closed
            if self._waiter is not None:
                raise RuntimeError("another task is already waiting for the next item")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self.take_now()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
