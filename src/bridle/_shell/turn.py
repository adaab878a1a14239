"""A turn as the shell keeps it: its messages for whoever iterates it, and its one outcome."""

from __future__ import annotations

import asyncio
from typing import Any

from bridle._shell.mailbox import Mailbox
from bridle.errors import ConsumerTooSlow
from bridle.messages import Message
from bridle.outcomes import Outcome


def taken_over() -> RuntimeError:
    """What an iterator of a turn ends with when another one has begun."""
    return RuntimeError(
        "another loop over this turn has begun and gets the rest of its messages; "
        "session.messages() is for any number of readers"
    )


class TurnState:
    """One prompt's turn. The session only refers to it weakly: forgotten turns hold nothing.

    Messages are held from the start, in case somebody iterates. What comes while the outcome is
    awaited and nobody iterates is let go, with all that was held, and so it is when it grows too
    large: a turn is not a log.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, uuid: str, limit: int) -> None:
        self.uuid = uuid
        self.outcome: asyncio.Future[Outcome[Any]] = loop.create_future()
        self.mailbox: Mailbox[Message] = Mailbox()
        self._limit = limit
        #: Whether somebody iterates: then falling behind is the session's concern.
        self.is_read = False
        #: How many wait for the outcome.
        self.waiting = 0
        self._has_missed = False

    def read(self) -> Mailbox[Message]:
        """Somebody iterates, and takes over from whoever did before."""
        if self._has_missed:
            raise RuntimeError(
                "messages of this turn came while its outcome was awaited and nobody iterated it, "
                "so they were not kept; iterate it first, or at the same time"
            )
        if self.is_read:
            self.mailbox = self.mailbox.hand_over(taken_over())
        self.is_read = True
        return self.mailbox

    def leave(self, mailbox: Mailbox[Message]) -> None:
        """Somebody iterates no more; what is unread is held for the next one."""
        if mailbox is self.mailbox:
            self.mailbox = mailbox.hand_over(None)
            self.is_read = False

    def put(self, messages: list[Message], size: int) -> None:
        """Messages of this turn came, of that many bytes."""
        if self.waiting and not self.is_read:
            self._has_missed = True
            self.mailbox.clear()
            return
        self.mailbox.put_messages(messages, size)
        unread = self.mailbox.unread_bytes
        if not self.is_read and unread > self._limit:
            self.mailbox.clear()
            self.mailbox.close(ConsumerTooSlow(unread, self._limit))

    def end(self, outcome: Outcome[Any]) -> None:
        """The turn is over."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)
        self.mailbox.close()
