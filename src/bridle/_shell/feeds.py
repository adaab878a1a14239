"""Who listens to a session: subscriptions to its messages, its events, or both.

A subscription begins when it is made. The first one to messages also gets what came since the
session started; until then that waits here, within the same bound as an unread subscription. A
program that never subscribes is no slow consumer: what waits for it is let go at the bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from bridle._shell.mailbox import Mailbox, size_of
from bridle.events import SessionEvent
from bridle.messages import Message

_EARLY_EVENTS = 1000

Update = Message | SessionEvent


class Feeds:
    """The subscriptions of one session. ``limit`` bounds what waits for nobody.

    ``missed`` is called when somebody subscribes to messages after the first ones were let go.
    """

    def __init__(self, limit: int, missed: Callable[[], None]) -> None:
        self._limit = limit
        self._missed = missed
        self._let_go = False
        # Tuples, made anew at each change: a subscription that is collected as garbage may leave
        # while the others are being served.
        self._messages: tuple[Mailbox[Message], ...] = ()
        self._events: tuple[Mailbox[SessionEvent], ...] = ()
        self._updates: tuple[Mailbox[Update], ...] = ()
        # What came since the start, for the first subscription; None once it is taken or let go.
        self._early: Mailbox[Update] | None = Mailbox()
        self._early_events: deque[SessionEvent] | None = deque(maxlen=_EARLY_EVENTS)
        self._closed: BaseException | None = None
        self._is_closed = False
        self._told_of_slowness = False

    # -- in ----------------------------------------------------------------------------------------

    def put_messages(self, messages: list[Message], size: int) -> int:
        """Messages came; returns how many bytes the slowest subscription has not read."""
        unread = 0
        for mailbox in self._messages:
            mailbox.put_messages(messages, size)
            unread = max(unread, mailbox.unread_bytes)
        for updates in self._updates:
            updates.put_messages(messages, size)
            unread = max(unread, updates.unread_bytes)
        if self._early is not None:
            self._early.put_messages(messages, size)
            if self._early.unread_bytes > self._limit:
                self._early = None
                self._let_go = True
        return unread

    def put_event(self, event: SessionEvent) -> int:
        """Something happened; returns what the slowest subscription has not read, as above."""
        unread = 0
        for mailbox in self._events:
            mailbox.put(event)
            unread = max(unread, mailbox.unread_bytes)
        for updates in self._updates:
            updates.put(event)
            unread = max(unread, updates.unread_bytes)
        if self._early_events is not None:
            self._early_events.append(event)
        if self._early is not None:
            self._early.put(event)
        return unread

    def close(self, error: BaseException | None) -> None:
        """Nothing more will come; ``error`` is what readers of messages get at the end."""
        self._is_closed = True
        self._closed = error
        for mailbox in self._messages:
            mailbox.close(error)
        for events in self._events:
            events.close()
        for updates in self._updates:
            updates.close(error)

    def note_slowness(self) -> bool:
        """A reader fell behind; True if that has not been told yet."""
        told, self._told_of_slowness = self._told_of_slowness, True
        return not told

    # -- out ---------------------------------------------------------------------------------------

    def messages(self) -> Mailbox[Message]:
        """A new subscription to messages."""
        mailbox: Mailbox[Message] = Mailbox()
        early = self._take_early()
        while early:
            update = early.take_now()
            if isinstance(update, Message):
                mailbox.put_messages([update], size_of([update]))
        self._messages = (*self._messages, mailbox)
        self._tell_of_loss()
        if self._is_closed:
            mailbox.close(self._closed)
        return mailbox

    def events(self) -> Mailbox[SessionEvent]:
        """A new subscription to events."""
        mailbox: Mailbox[SessionEvent] = Mailbox()
        early, self._early_events = self._early_events or (), None
        for event in early:
            mailbox.put(event)
        self._events = (*self._events, mailbox)
        if self._is_closed:
            mailbox.close()
        return mailbox

    def updates(self) -> Mailbox[Update]:
        """A new subscription to both."""
        early = self._take_early()
        mailbox: Mailbox[Update] = Mailbox() if early is None else early
        self._updates = (*self._updates, mailbox)
        self._tell_of_loss()
        if self._is_closed:
            mailbox.close(self._closed)
        return mailbox

    def _take_early(self) -> Mailbox[Update] | None:
        """What came since the start, for the first who asks."""
        early, self._early = self._early, None
        return early

    def _tell_of_loss(self) -> None:
        """Whoever subscribes too late to get all is among those who hear of it."""
        if self._let_go:
            self._let_go = False
            self._missed()

    def leave(self, mailbox: Mailbox[Any]) -> None:
        """A subscription ends; nothing is kept for it any more."""
        self._messages = tuple(each for each in self._messages if each is not mailbox)
        self._events = tuple(each for each in self._events if each is not mailbox)
        self._updates = tuple(each for each in self._updates if each is not mailbox)
        mailbox.close()
        mailbox.clear()
