"""A turn as the shell keeps it: its messages for the loop that iterates it, and its one outcome."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from bridle._shell.mailbox import Mailbox, size_of
from bridle.errors import BridleError, ConsumerTooSlow, UsageError
from bridle.messages import Message, UserMessage
from bridle.outcomes import Outcome


def taken_over() -> UsageError:
    """Return the error that ends a loop over a turn when another loop has begun."""
    return UsageError(
        "Another loop over this turn has begun and gets the rest of its messages.",
        fix="Use session.messages(), which any number of loops can read.",
    )


HELD_BYTES = 8 << 20
"""Bytes that are held for the turns of a session that no loop has read yet."""

Dropped = Callable[[str, int, int, int], None]
"""Called with a turn's uuid, the messages and bytes of it that were dropped, and the bound."""


class TurnState:
    """One prompt's turn. The session only refers to it weakly: a dropped turn holds nothing.

    While no loop reads it, its messages are held as lines, within bounds that all turns of the
    session share (:class:`Turns`). Waiting for the outcome while no loop reads discards them: a
    program that only awaits turns holds nothing.

    ``left`` gets the uuid whenever messages are left for the next loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, uuid: str, left: deque[str]) -> None:
        self.uuid = uuid
        self.outcome: asyncio.Future[Outcome[Any]] = loop.create_future()
        self.mailbox: Mailbox[Message] = Mailbox(loop)
        self._left = left
        #: Whether a loop reads now: then falling behind is the session's concern.
        self.is_read = False
        #: Whether a loop has read before: then the rest is held for the next one.
        self.was_read = False
        #: Bytes held that are the CLI's repetitions of prompts.
        self.repeated = 0
        self._waiting = 0
        # Why messages are missing; the next loop raises it.
        self._lost: BridleError | None = None

    def read(self) -> Mailbox[Message]:
        """Begin a loop, which takes over from the one before.

        Raises:
            UsageError: the outcome was awaited while no loop read.
            ConsumerTooSlow: more messages were left unread than may be.
        """
        if self._lost is not None:
            raise self._lost
        if self.is_read:
            self.mailbox = self.mailbox.hand_over(taken_over())
        self.is_read = self.was_read = True
        return self.mailbox

    def leave(self, mailbox: Mailbox[Message]) -> None:
        """End a loop; the next one gets what is unread."""
        if mailbox is self.mailbox:
            self.mailbox = mailbox.hand_over(None)
            self.is_read = False
            self.put_back([])

    def put_back(self, messages: list[Message]) -> None:
        """Keep messages that a loop took and did not read, for the next one."""
        if self._lost is None:
            self.mailbox.put_back(messages)
            self._left.append(self.uuid)

    def put(self, messages: list[Message], size: int) -> None:
        """Deliver messages of ``size`` bytes."""
        if self._waiting:
            self._discard()
        if self._lost is None:
            self.mailbox.put_messages(messages, size, as_lines=not self.is_read)

    async def wait(self) -> Outcome[Any]:
        """Wait for the outcome. Unread messages are discarded, unless a loop reads them."""
        self._waiting += 1
        try:
            if self.outcome.done():
                await asyncio.sleep(0)  # a loop that begins in the same step still gets them
            return await asyncio.shield(self.outcome)
        finally:
            self._waiting -= 1
            self._discard()

    def _discard(self) -> None:
        is_over = self.mailbox.is_closed and not len(self.mailbox)
        if not self.is_read and not is_over and self._lost is None:
            fix = "Begin the loop over a turn before you await it, or at the same time."
            text = "The outcome of this turn was awaited while no loop read its messages."
            self._lose(UsageError(f"{text} They were not kept.", fix=fix))

    def drop(self, limit: int) -> None:
        """Drop what is held, because it is more than ``limit`` bytes."""
        error = ConsumerTooSlow(self.mailbox.unread_bytes, limit)
        error.fix = "Iterate a turn right after sending its prompt, or read session.messages()."
        self._lose(error)

    def _lose(self, error: BridleError) -> None:
        self._lost = error
        self.mailbox.clear()

    def end(self, outcome: Outcome[Any]) -> None:
        """The turn is over."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)
        self.mailbox.close()


class Turns:
    """The turns of a session that the application refers to.

    Beyond a bound the messages of the turn that was left unread first are dropped, and ``dropped``
    is called.

    Args:
        limit: bytes that are held for all turns together that no loop reads now.
        held: bytes that are held for those among them that no loop has read yet. The CLI's
            repetitions of prompts are not counted: they are as long as the program made them.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limit: int, held: int, dropped: Dropped
    ) -> None:
        self._loop = loop
        self._limit = limit
        self._held_limit = min(held, limit)
        self._dropped = dropped
        self._states: weakref.WeakValueDictionary[str, TurnState] = weakref.WeakValueDictionary()
        # Turns that no loop reads, the one that was left unread first at the front.
        self._unread: dict[str, None] = {}
        # Turns that loops have left since the last delivery. Garbage collection may end a loop at
        # any moment, so that is only noted.
        self._left: deque[str] = deque()
        # At most so many bytes are held: for turns that no loop has read yet, and for all.
        self._held = 0
        self._total = 0

    def begin(self, uuid: str) -> TurnState:
        """Make the turn of a prompt."""
        self._states[uuid] = state = TurnState(self._loop, uuid, self._left)
        return state

    def put(self, uuids: Iterable[str], messages: list[Message], size: int) -> int:
        """Deliver messages of turns; return how many bytes the slowest loop has not read."""
        self._note_left()
        unread = 0
        for uuid in uuids:
            state = self._states.get(uuid)
            if state is None:
                continue
            state.put(messages, size)
            if state.is_read:
                unread = max(unread, state.mailbox.unread_bytes)
            elif _holds(state) and not state.mailbox.is_closed:
                self._unread[uuid] = None
                self._total += size
                if not state.was_read:
                    repeated = size_of([each for each in messages if _repeats_prompt(each)])
                    state.repeated += repeated
                    self._held += size - repeated
        if self._held > self._held_limit or self._total > self._limit:
            self._shrink()
        return unread

    def _note_left(self) -> None:
        while self._left:
            uuid = self._left.popleft()
            state = self._states.get(uuid)
            if state is not None and _holds(state):
                self._unread[uuid] = None
                self._total += state.mailbox.unread_bytes

    def _shrink(self) -> None:
        """Find out how much is held, and drop the oldest if that is too much."""
        found = [self._states.get(uuid) for uuid in self._unread]
        states = [each for each in found if each is not None and _holds(each)]
        self._total = sum(state.mailbox.unread_bytes for state in states)
        self._held = sum(map(_held_by, states))
        self._unread = {}
        for state in states:
            size, held = state.mailbox.unread_bytes, _held_by(state)
            too_much = held and self._held > self._held_limit
            if too_much or self._total > self._limit:
                self._total -= size
                self._held -= held
                limit = self._held_limit if too_much else self._limit
                count = len(state.mailbox)
                state.drop(limit)
                self._dropped(state.uuid, count, size, limit)
            else:
                self._unread[state.uuid] = None

    def end(self, uuid: str, outcome: Outcome[Any]) -> None:
        """End a turn."""
        state = self._states.get(uuid)
        if state is not None:
            state.end(outcome)


def _holds(state: TurnState) -> bool:
    return not state.is_read and state.mailbox.unread_bytes > 0


def _held_by(state: TurnState) -> int:
    return 0 if state.was_read else state.mailbox.unread_bytes - state.repeated


def _repeats_prompt(message: Message) -> bool:
    return isinstance(message, UserMessage) and message.is_replay
