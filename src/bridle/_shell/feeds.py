"""The subscriptions of a session: to its messages, its events, or both.

A subscription begins when it is made. The first one to messages also gets the newest of what came
since the session started: at most 256 messages and one mebibyte, which are kept here until then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from bridle._core.wire import decode_all
from bridle._shell.mailbox import EVENT_COST, EventMailbox, Mailbox
from bridle._source import lines_of
from bridle.events import SessionEvent, Update
from bridle.messages import Message

EARLY_ITEMS = 256
EARLY_BYTES = 1 << 20
"""What is kept for the first subscription at most."""


class _Early:
    """The newest of what came before the first subscription; of messages, the lines."""

    def __init__(self) -> None:
        self._items: deque[bytes | SessionEvent] = deque()
        self._size = 0
        self.dropped_messages = 0
        self.dropped_events = 0

    def put_messages(self, messages: list[Message]) -> None:
        """Add messages."""
        lines = lines_of(messages[-EARLY_ITEMS:])
        self.dropped_messages += len(messages) - len(lines)
        self._items.extend(lines)
        self._size += sum(map(len, lines))
        self._trim()

    def put_event(self, event: SessionEvent) -> None:
        """Add an event."""
        self._items.append(event)
        self._size += EVENT_COST
        self._trim()

    def _trim(self) -> None:
        while len(self._items) > EARLY_ITEMS or self._size > EARLY_BYTES:
            oldest = self._items.popleft()
            if isinstance(oldest, bytes):
                self._size -= len(oldest)
                self.dropped_messages += 1
            else:
                self._size -= EVENT_COST
                self.dropped_events += 1

    def move_to(self, mailbox: Mailbox[Any], *, with_events: bool) -> None:
        """Put what is kept into a mailbox, in order."""
        for item in self._items:
            if isinstance(item, bytes):
                mailbox.put_messages(decode_all([item])[0], len(item))
            elif with_events:
                mailbox.put(item)


class Feeds:
    """The subscriptions of one session.

    ``missed`` is called with the numbers of messages and events that the first subscription does
    not get because they were dropped.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, missed: Callable[[int, int], None]) -> None:
        self._loop = loop
        self._missed = missed
        # Tuples, made anew at each change: a subscription that is collected as garbage may leave
        # while the others are being served.
        self._messages: tuple[Mailbox[Message], ...] = ()
        self._events: tuple[EventMailbox, ...] = ()
        self._updates: tuple[Mailbox[Update], ...] = ()
        # What came since the start, for the first subscription; None once it is taken.
        self._early: _Early | None = _Early()
        self._early_events: EventMailbox | None = EventMailbox(loop)
        self._closed: BaseException | None = None
        self._is_closed = False
        self._told_of_slowness = False

    # -- in ----------------------------------------------------------------------------------------

    def put_messages(self, messages: list[Message], size: int) -> int:
        """Deliver messages; return how many bytes the slowest subscription has not read."""
        unread = 0
        for mailbox in self._messages:
            mailbox.put_messages(messages, size)
            unread = max(unread, mailbox.unread_bytes)
        for updates in self._updates:
            updates.put_messages(messages, size)
            unread = max(unread, updates.unread_bytes)
        if self._early is not None:
            self._early.put_messages(messages)
        return unread

    def put_event(self, event: SessionEvent) -> int:
        """Deliver an event; return how many bytes the slowest subscription has not read.

        Subscriptions to events alone keep the newest ones and are never slow.
        """
        for mailbox in self._events:
            mailbox.put(event)
        unread = 0
        for updates in self._updates:
            updates.put(event)
            unread = max(unread, updates.unread_bytes)
        if self._early_events is not None:
            self._early_events.put(event)
        if self._early is not None:
            self._early.put_event(event)
        return unread

    def close(self, error: BaseException | None) -> None:
        """End all subscriptions; readers of messages get ``error`` at the end."""
        self._is_closed = True
        self._closed = error
        for mailbox in self._messages:
            mailbox.close(error)
        for events in self._events:
            events.close()
        for updates in self._updates:
            updates.close(error)

    def note_slowness(self) -> bool:
        """Note that a reader fell behind; true the first time."""
        told, self._told_of_slowness = self._told_of_slowness, True
        return not told

    # -- out ---------------------------------------------------------------------------------------

    def messages(self) -> Mailbox[Message]:
        """Make a subscription to messages."""
        mailbox: Mailbox[Message] = Mailbox(self._loop)
        self._messages = (*self._messages, mailbox)
        self._take_early(mailbox, with_events=False)
        return mailbox

    def events(self) -> EventMailbox:
        """Make a subscription to events."""
        mailbox, self._early_events = self._early_events or EventMailbox(self._loop), None
        self._events = (*self._events, mailbox)
        if self._is_closed:
            mailbox.close()
        return mailbox

    def updates(self) -> Mailbox[Update]:
        """Make a subscription to both."""
        mailbox: Mailbox[Update] = Mailbox(self._loop)
        self._updates = (*self._updates, mailbox)
        self._take_early(mailbox, with_events=True)
        return mailbox

    def _take_early(self, mailbox: Mailbox[Any], *, with_events: bool) -> None:
        """Give what came since the start to the first subscription."""
        early, self._early = self._early, None
        if early is not None:
            early.move_to(mailbox, with_events=with_events)
            events = early.dropped_events if with_events else 0
            if early.dropped_messages or events:
                self._missed(early.dropped_messages, events)
        if self._is_closed:
            mailbox.close(self._closed)

    def leave(self, mailbox: Mailbox[Any]) -> None:
        """End a subscription; nothing is kept for it any more."""
        self._messages = tuple(each for each in self._messages if each is not mailbox)
        self._events = tuple(each for each in self._events if each is not mailbox)
        self._updates = tuple(each for each in self._updates if each is not mailbox)
        mailbox.close()
        mailbox.clear()
