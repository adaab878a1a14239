"""A turn as the shell keeps it: its messages for whoever iterates it, and its one outcome."""

from __future__ import annotations

import asyncio
from typing import Any

from bridle._shell.mailbox import Mailbox
from bridle.errors import ConsumerTooSlow
from bridle.messages import Message
from bridle.outcomes import Outcome


class TurnState:
    """One prompt's turn. The session only refers to it weakly: forgotten turns hold nothing.

    Messages are held from the start, in case somebody iterates. Awaiting the outcome without
    iterating lets them go, and so does their sheer size: a turn is not a log.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, uuid: str, limit: int) -> None:
        self.uuid = uuid
        self.outcome: asyncio.Future[Outcome[Any]] = loop.create_future()
        self.mailbox: Mailbox[Message] = Mailbox()
        self._limit = limit
        # Who reads the messages: as long as somebody does, falling behind is the session's concern.
        self._readers = 0
        self._holds = True

    @property
    def is_read(self) -> bool:
        """True while somebody iterates."""
        return self._readers > 0

    def read(self) -> Mailbox[Message]:
        """Somebody iterates: hold what comes from now on, and hand out what is there."""
        self._readers += 1
        self._holds = True
        return self.mailbox

    def leave(self, mailbox: Mailbox[Message]) -> None:
        """Somebody stops iterating; with the last one what is unread is let go."""
        self._readers -= 1
        if not self._readers:
            self._holds = False
            mailbox.clear()

    def skip(self) -> None:
        """Somebody waits for the outcome alone: unless the turn is read too, hold nothing."""
        if not self.is_read and not self.outcome.done():
            self._holds = False
            self.mailbox.clear()

    def put(self, messages: list[Message], size: int) -> None:
        """Messages of this turn came, of that many bytes."""
        if not self._holds:
            return
        self.mailbox.put_messages(messages, size)
        if not self.is_read and self.mailbox.unread_bytes > self._limit:
            self._holds = False
            self.mailbox.clear()
            self.mailbox.close(ConsumerTooSlow(self._limit, self._limit))

    def end(self, outcome: Outcome[Any]) -> None:
        """The turn is over."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)
        self.mailbox.close()
