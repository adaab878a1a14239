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
        #: Whether somebody iterates: then falling behind is the session's concern.
        self.is_read = False
        self._holds = True
        self._has_missed = False

    def read(self) -> Mailbox[Message]:
        """Somebody iterates: hold what comes from now on, and hand out what is there."""
        is_over = self.mailbox.is_closed and not len(self.mailbox)
        if self.is_read and not is_over:
            raise RuntimeError(
                "this turn is being iterated already, and two would get some of its messages each; "
                "session.messages() is for any number of readers"
            )
        if self._has_missed and self.outcome.done():
            raise RuntimeError(
                "the messages of this turn were not kept, since nobody iterated it when they came; "
                "iterate it before you await its outcome, or at the same time"
            )
        self.is_read = self._holds = True
        return self.mailbox

    def leave(self, _: Mailbox[Message]) -> None:
        """Nobody iterates any more."""
        self.is_read = False
        self._let_go()

    def skip(self) -> None:
        """Somebody waits for the outcome alone: unless the turn is read too, hold nothing."""
        if not self.is_read and not self.outcome.done():
            self._let_go()

    def _let_go(self) -> None:
        self._holds = False
        self._has_missed = self._has_missed or len(self.mailbox) > 0
        self.mailbox.clear()

    def put(self, messages: list[Message], size: int) -> None:
        """Messages of this turn came, of that many bytes."""
        if not self._holds:
            self._has_missed = True
            return
        self.mailbox.put_messages(messages, size)
        if not self.is_read and self.mailbox.unread_bytes > self._limit:
            self.mailbox.clear()
            self.mailbox.close(ConsumerTooSlow(self._limit, self._limit))

    def end(self, outcome: Outcome[Any]) -> None:
        """The turn is over."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)
        self.mailbox.close()
