"""The queues of a session: one for each subscription, and one for each turn that is in use.

:mod:`bridle._engine.delivery.unread` decides what goes into a queue and what is dropped. Queues
report to it when a reader opens, takes a batch or leaves. Putting into a queue never waits, so
control traffic never waits for a reader. A reader takes items that are there without a task switch.

Items are kept in batches, as they were read from the pipe, because one batch of hundreds of small
messages costs little more than one message. Above one mebibyte of unread messages, only their lines
are kept, and decoded again when they are taken. All methods belong to one event loop, except where
a docstring says that the garbage collector may call them.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, cast

from bridle._engine.actions import Reader
from bridle._engine.delivery.unread import EVENT_COST, Delivery
from bridle._engine.outgoing.requests import used_uuid
from bridle._engine.turns.subagents import AgentBook
from bridle._records.raw_line import lines_of
from bridle._runtime.finalizers import when_dropped
from bridle._runtime.stored_errors import to_raise
from bridle.errors import UsageError
from bridle.events import SessionEvent, Update
from bridle.messages import Message
from bridle.outcomes import Outcome

_KEPT_DECODED = 1 << 20
"""Bytes of unread messages kept decoded. A reader that keeps up never decodes a message twice."""

_T = TypeVar("_T")


def foreign_loop() -> UsageError:
    """Return the error for using a session on another event loop."""
    fix = "Call it there, or use bridle.sync, which works from every thread."
    return UsageError("A session belongs to the event loop it was started on.", fix=fix)


class Closed(Exception):
    """The queue is empty and closed. ``error`` is the failure that closed it, if any."""

    def __init__(self, error: BaseException | None) -> None:
        super().__init__(error)
        self.error = error


def _ignore(_reader: Reader, _size: int, _items: int) -> bool:
    return False


class Queue(Generic[_T]):
    """Items for one reader. One task at a time may take, on ``loop`` if that is given.

    Args:
        loop: the event loop of the session.
        reader: the name of the reader.
        took: called with the reader, the bytes and the number of items of each batch taken.
        react: called if ``took`` returns True.
        agents: decodes messages that were kept as lines.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None = None,
        reader: Reader = 0,
        took: Callable[[Reader, int, int], bool] = _ignore,
        react: Callable[[], None] = lambda: None,
        agents: AgentBook | None = None,
    ) -> None:
        self._loop = loop
        self.reader = reader
        self._took = took
        self._react = react
        self._agents = agents or AgentBook()
        #: Whether only the lines of messages are kept, because no reader waits for them.
        self.as_lines = False
        # The batch that is being read, the next item last: taking it is a pop.
        self.ready: list[_T] = []
        # The batches after that, with their sizes: items, or the lines of messages.
        self._batches: deque[tuple[list[Any], int]] = deque()
        self._batched = 0
        # Taken before all items: the notice that items were dropped.
        self._notice: _T | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._is_closed = False
        # The failure that closed it.
        self._error: BaseException | None = None
        #: Bytes that are unread, without the batch that is being read.
        self.unread_bytes = 0

    def __len__(self) -> int:
        return len(self.ready) + self._batched

    def put(self, items: list[Any], size: int) -> None:
        """Add items of ``size`` bytes: events, messages, or lines of messages."""
        if not self._is_closed:
            self._batches.append((items, size))
            self._batched += len(items)
            self.unread_bytes += size
            self._wake()

    def put_messages(self, messages: list[Message], size: int) -> None:
        """Add messages of ``size`` bytes."""
        as_lines = self.as_lines or self.unread_bytes > _KEPT_DECODED
        self.put(lines_of(messages) if as_lines else messages, size)

    def put_back(self, messages: list[Message]) -> tuple[int, int]:
        """Add messages in front of all others, after them the rest of the batch being read.

        Return the bytes and the number of what is unread again. Only for queues of messages.
        """
        lines = lines_of([*messages, *reversed(cast("list[Message]", self.ready))])
        self.ready = []
        size = sum(map(len, lines))
        if lines:
            self._batches.appendleft((lines, size))
            self._batched += len(lines)
            self.unread_bytes += size
            self._wake()
        return size, len(lines)

    def drop_oldest(self, notice: _T) -> None:
        """Drop the oldest batch. ``notice`` is taken before everything else."""
        if not self._batches:
            return  # the garbage collector has just ended the subscription
        items, size = self._batches.popleft()
        self._batched -= len(items)
        self.unread_bytes -= size
        self._notice = notice

    def close(self, error: BaseException | None = None) -> None:
        """Accept no more items. The items in the queue can still be taken."""
        if not self._is_closed:
            self._is_closed, self._error = True, error
            self._wake()

    def hand_over(self, error: BaseException | None) -> Queue[_T]:
        """Move all items to a new queue and return it. This queue is empty and closed."""
        heir: Queue[_T] = Queue(self._loop, self.reader, self._took, self._react, self._agents)
        heir.ready, heir._batches, heir._batched = self.ready, self._batches, self._batched
        heir.unread_bytes = self.unread_bytes
        heir._is_closed, heir._error = self._is_closed, self._error
        self.ready, self._batches = [], deque()
        self.clear()
        self._is_closed, self._error = True, error
        self._wake()
        return heir

    def clear(self) -> None:
        """Drop all items."""
        self.ready.clear()
        self._batches.clear()
        self._batched = 0
        self._notice = None
        self.unread_bytes = 0

    def take_now(self) -> _T:
        """Return the next item, which must be there."""
        if self.ready:
            return self.ready.pop()
        if self._notice is not None:
            notice, self._notice = self._notice, None
            self._took(self.reader, 0, 0)
            return notice
        items, size = self._batches.popleft()
        count = len(items)
        self._batched -= count
        self.unread_bytes -= size
        if isinstance(items[0], bytes):
            items, _ = self._agents.decode_all(items)
        self.ready = items[::-1]
        if self._took(self.reader, size, count):
            self._react()
        return self.ready.pop()

    async def take(self) -> _T:
        """Return the next item, as soon as there is one. No task switch if it is there.

        Cancellation loses nothing.

        Raises:
            Closed: there is no next item.
            UsageError: this is not the event loop that the items come on.
        """
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop) and not self._is_closed:
            raise foreign_loop()
        while not self.ready and not self._batches:
            if self._is_closed:
                raise Closed(self._error and to_raise(self._error))
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


class Subscriptions:
    """The queues of one session, by reader.

    ``react`` is called when the core has to act on what a reader did. It is a method and only
    referred to weakly: a turn that the program keeps does not keep the session.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, delivery: Delivery, react: Callable[[], None]
    ) -> None:
        self._loop = loop
        self.delivery = delivery
        self._react_method = weakref.WeakMethod(react)
        self._queues: dict[Reader, Queue[Any]] = {}
        self._outcomes: dict[str, asyncio.Future[Outcome[Any]]] = {}
        # The newest turns. More than one, because a prompt may turn out not to be sent.
        self._opened: deque[str] = deque(maxlen=64)
        self._is_closed = False
        # The queues of loops over turns that were left. The garbage collector may end a loop at any
        # moment, also inside a method of this module, so it only adds a note here.
        self._left: deque[Queue[Message]] = deque()
        # The events since the start, for the first subscription to events; then None.
        self._first_events: Queue[SessionEvent] | None = self._open(events=True)

    # -- in ----------------------------------------------------------------------------------------

    def put(self, readers: Iterable[Reader], messages: list[Message], size: int) -> None:
        """Put messages into the queues of these readers. A reader that has left has no queue."""
        self.settle()
        queues = self._queues
        for reader in readers:
            queue = queues.get(reader)
            if queue is not None:
                queue.put_messages(messages, size)

    def put_event(self, event: SessionEvent) -> None:
        """Put an event into the queues of its readers."""
        for reader in self.delivery.publish(event):
            queue = self._queues.get(reader)
            if queue is not None:
                queue.put([event], EVENT_COST)
        self._react()

    def discard(self, reader: Reader) -> None:
        """Clear the queue of a reader."""
        queue = self._queues.get(reader)
        if queue is not None:
            queue.clear()

    def drop_oldest(self, reader: Reader, notice: SessionEvent) -> None:
        """Drop the oldest item of a queue, and put the notice in front of the rest."""
        queue = self._queues.get(reader)
        if queue is not None:
            queue.drop_oldest(notice)

    def close(self) -> None:
        """End all subscriptions."""
        self.settle()
        self._is_closed = True
        for reader, queue in self._queues.copy().items():
            queue.close(self.delivery.error_for(reader))

    # -- subscriptions -----------------------------------------------------------------------------

    def messages(self) -> Queue[Message]:
        """Open a subscription to messages."""
        return self._open(messages=True)

    def events(self) -> Queue[SessionEvent]:
        """Open a subscription to events."""
        first, self._first_events = self._first_events, None
        return first if first is not None else self._open(events=True)

    def updates(self) -> Queue[Update]:
        """Open a subscription to messages and events."""
        return self._open(messages=True, events=True)

    def _open(self, *, messages: bool = False, events: bool = False) -> Queue[Any]:
        opened = self.delivery.subscribe(messages=messages, events=events)
        queue: Queue[Any] = self._queue(opened.reader)
        for items, size in opened.backlog:
            queue.put(items, size)
        self._queues[opened.reader] = queue
        self._react()
        if self._is_closed:
            queue.close(self.delivery.error_for(opened.reader))
        return queue

    def _queue(self, reader: Reader) -> Queue[Any]:
        delivery = self.delivery
        return Queue(self._loop, reader, delivery.took, self._react, delivery.agents)

    def leave(self, queue: Queue[Any]) -> None:
        """Close a subscription. May be called at any time, also by the garbage collector."""
        self._remove(queue.reader)
        queue.close()
        queue.clear()

    def restart(self) -> None:
        """Close all subscriptions, because another caller uses the session from now on.

        The messages of ended turns are dropped. The first subscriptions of the new caller get what
        comes from now on.
        """
        self.settle()
        for reader, queue in list(self._queues.items()):
            if isinstance(reader, int):
                self.leave(queue)
            elif (error := self.delivery.drop_turn(reader)) is not None:
                self.hand_over(reader, error).clear()
        self.delivery.restart_backlog()
        self._first_events = self._open(events=True)

    def _remove(self, reader: Reader) -> None:
        self._queues.pop(reader, None)
        self.delivery.closed(reader)
        self._react_soon()

    def _react_soon(self) -> None:
        """Let the core act on a reader that left. Only a paused session needs this now."""
        if self.delivery.is_paused:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._react)

    def forget_early(self) -> None:
        """Drop what is kept for a first subscription. May be called as :meth:`leave` may."""
        self.delivery.drop_backlog()
        if self._first_events is not None:
            self.leave(self._first_events)

    def _react(self) -> None:
        self.settle()
        react = self._react_method()
        if react is not None:
            react()

    # -- turns -------------------------------------------------------------------------------------

    def open_turn(self, uuid: str, holder: object, outcome: asyncio.Future[Outcome[Any]]) -> None:
        """Create a queue for the messages of a turn. It is removed when ``holder`` is collected.

        Raises:
            OptionsError: a turn with this UUID has no outcome yet.
        """
        if uuid in self._outcomes:
            raise used_uuid()
        self.delivery.open_turn(uuid)
        self._outcomes[uuid] = outcome
        self._opened.append(uuid)
        queue: Queue[Message] = self._queue(uuid)
        queue.as_lines = True
        self._queues[uuid] = queue
        when_dropped(holder, self._drop_turn, uuid)

    def queue_of(self, uuid: str) -> Queue[Message]:
        """Return the queue of a turn."""
        self.settle()
        return self._queues[uuid]

    def hand_over(self, uuid: str, error: BaseException | None) -> Queue[Message]:
        """Move the messages of a turn to a new queue. A reader of the old one gets ``error``."""
        queue = self._queues[uuid] = self._queues[uuid].hand_over(error)
        return queue

    def leave_loop(self, queue: Queue[Message]) -> None:
        """Note that the loop that reads this queue was left. May be called as :meth:`leave` may.

        :meth:`settle` then keeps the messages that the loop has not read.
        """
        self._left.append(queue)
        self._react_soon()

    def settle(self) -> None:
        """Act on the notes of :meth:`leave_loop`. Every method that uses a queue calls this."""
        while self._left:
            queue = self._left.popleft()
            # Another loop may have taken over, or the program may have dropped the turn.
            if self._queues.get(queue.reader) is queue:
                kept = self.hand_over(cast("str", queue.reader), None)
                kept.as_lines = True
                self.delivery.left_loop(cast("str", queue.reader), *kept.put_back([]))

    def end_turn(self, uuid: str, outcome: Outcome[Any]) -> None:
        """Set the outcome of a turn, and close its queue."""
        self.settle()
        future = self._outcomes.pop(uuid, None)
        if future is not None and not future.done():
            future.set_result(outcome)
        queue = self._queues.get(uuid)
        if queue is not None:
            queue.close()

    def cancel_turn(self, uuid: str) -> None:
        """Forget a turn whose prompt was not sent."""
        self._outcomes.pop(uuid, None)
        if uuid in self._opened:
            self._opened.remove(uuid)

    def has_turn(self, uuid: str) -> bool:
        """Return True if this prompt was sent. Remembers the newest prompts only."""
        return uuid in self._opened

    @property
    def newest_turn(self) -> str | None:
        """The turn of the last prompt that was sent."""
        return self._opened[-1] if self._opened else None

    def _drop_turn(self, uuid: str) -> None:
        # The future of its outcome stays until the turn ends, because its answer may wait for it.
        self._remove(uuid)
