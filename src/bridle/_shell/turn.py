"""A turn as the shell keeps it: its messages for the loop that iterates it, and its one outcome."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable
from typing import Any

from bridle._shell.mailbox import Mailbox
from bridle.errors import ConsumerTooSlow, UsageError
from bridle.messages import Message
from bridle.outcomes import Outcome


def taken_over() -> UsageError:
    """Return the error that ends a loop over a turn when another loop has begun."""
    return UsageError(
        "Another loop over this turn has begun and gets the rest of its messages.",
        fix="Use session.messages(), which any number of loops can read.",
    )


class TurnState:
    """One prompt's turn. The session only refers to it weakly: a dropped turn holds nothing.

    Until the first loop over it begins, its messages are held as lines, within a small bound that
    all turns of the session share (:class:`Turns`). Messages that come while the outcome is awaited
    and no loop reads are dropped, with all that were held.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, uuid: str, limit: int) -> None:
        self.uuid = uuid
        self.outcome: asyncio.Future[Outcome[Any]] = loop.create_future()
        self.mailbox: Mailbox[Message] = Mailbox(loop)
        self._limit = limit
        #: Whether a loop reads now: then falling behind is the session's concern.
        self.is_read = False
        #: Whether a loop has read before: then the rest is held for the next one.
        self.was_read = False
        #: How many wait for the outcome.
        self.waiting = 0
        self._has_missed = False

    def read(self) -> Mailbox[Message]:
        """Begin a loop, which takes over from the one before."""
        if self._has_missed:
            raise UsageError(
                "Messages of this turn came while its outcome was awaited and were not kept.",
                fix="Iterate the turn before you await it, or at the same time.",
            )
        if self.is_read:
            self.mailbox = self.mailbox.hand_over(taken_over())
        self.is_read = self.was_read = True
        return self.mailbox

    def leave(self, mailbox: Mailbox[Message]) -> None:
        """End a loop; the next one gets what is unread."""
        if mailbox is self.mailbox:
            self.mailbox = mailbox.hand_over(None)
            self.is_read = False

    def put(self, messages: list[Message], size: int) -> None:
        """Deliver messages of ``size`` bytes."""
        if self.waiting and not self.is_read:
            self._has_missed = True
            self.mailbox.clear()
            return
        self.mailbox.put_messages(messages, size, as_lines=not self.is_read)
        if not self.is_read and self.mailbox.unread_bytes > self._limit:
            self.drop(self._limit)

    def drop(self, limit: int) -> None:
        """Drop what is held, because it is more than ``limit`` bytes; the next loop is told."""
        error = ConsumerTooSlow(self.mailbox.unread_bytes, limit)
        error.fix = "Iterate a turn right after sending its prompt, or read session.messages()."
        self.mailbox.clear()
        self.mailbox.close(error)

    def end(self, outcome: Outcome[Any]) -> None:
        """The turn is over."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)
        self.mailbox.close()


class Turns:
    """The turns of a session that the application refers to.

    Args:
        limit: bytes that are held for the next loop over a turn, after one has been left.
        held: bytes that are held for all turns together that no loop has read yet. Beyond that the
            messages of the oldest turn are dropped.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int, held: int) -> None:
        self._loop = loop
        self._limit = limit
        self._held_limit = held
        self._states: weakref.WeakValueDictionary[str, TurnState] = weakref.WeakValueDictionary()
        # Turns that no loop has read yet, the oldest first, and about how much is held for them.
        self._unread: dict[str, None] = {}
        self._held = 0

    def begin(self, uuid: str) -> TurnState:
        """Make the turn of a prompt."""
        self._states[uuid] = state = TurnState(self._loop, uuid, self._limit)
        return state

    def put(self, uuids: Iterable[str], messages: list[Message], size: int) -> int:
        """Deliver messages of turns; return how many bytes the slowest loop has not read."""
        unread = 0
        for uuid in uuids:
            state = self._states.get(uuid)
            if state is None:
                continue
            state.put(messages, size)
            if state.is_read:
                unread = max(unread, state.mailbox.unread_bytes)
            elif not state.was_read:
                self._unread[uuid] = None
                self._held += size
        if self._held > self._held_limit:
            self._shrink()
        return unread

    def _shrink(self) -> None:
        """Find out how much is held, and drop the oldest if that is too much."""
        found = [(uuid, self._states.get(uuid)) for uuid in self._unread]
        states = {uuid: state for uuid, state in found if state is not None and not state.was_read}
        self._held = sum(state.mailbox.unread_bytes for state in states.values())
        self._unread = {}
        for uuid, state in states.items():
            size = state.mailbox.unread_bytes
            if self._held > self._held_limit and size:
                self._held -= size
                state.drop(self._held_limit)
            elif size:
                self._unread[uuid] = None

    def end(self, uuid: str, outcome: Outcome[Any]) -> None:
        """End a turn."""
        state = self._states.get(uuid)
        if state is not None:
            state.end(outcome)
