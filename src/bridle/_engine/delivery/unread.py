"""Decide which readers get a message, and bound the memory of unread messages.

A reader is a subscription (identified by a number) or a turn that the program holds (identified by
the uuid of its prompt). The shell holds one queue for each reader. This module decides what goes
into a queue, what is dropped, and when a slow reader causes a warning, a pause in reading or the
end of the session.

Sizes are bytes of lines. A message counts for every reader that has not taken it, although the
queues share its line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from bridle._engine.actions import (
    Action,
    Attribute,
    Deliver,
    Discard,
    DropOldest,
    PauseReading,
    Reader,
    ResumeReading,
    TurnEnded,
    Warn,
)
from bridle._engine.turns.subagents import AgentBook
from bridle._engine.turns.turn_records import Account, TurnAccount, Turns
from bridle._records.raw_line import line_size, lines_of
from bridle.errors import BridleError, ConsumerTooSlow, UsageError
from bridle.events import SdkWarning, SessionEvent, WarningKind
from bridle.messages import Message, UserMessage

EVENT_COST = 256
"""Bytes that an event counts for. This is roughly its size in memory."""

LINE_COST = 41
"""Bytes that Python adds to a line: the rest of the object, and a reference to it."""

FAIL_FACTOR = 4
"""The session fails when a reader has this many times `max_unread` bytes unread."""

_HIGH_WATER = 4 << 20
"""Unread bytes at which a query pauses reading, unless `max_unread` is less."""


class DeliveryConfig(Struct, frozen=True, kw_only=True):
    """The bounds of unread messages and events."""

    #: Unread bytes of one reader at which a warning is given. Also the bytes that are held for all
    #: turns together that no loop reads.
    max_unread: int = 64 << 20
    #: Bytes that are held for those of these turns that no loop has ever read, with `LINE_COST` for
    #: each message. It is small so that a program that never reads them uses little memory. The
    #: CLI's echoes of prompts do not count, because the program chose their size.
    max_unbegun: int = 8 << 20
    #: The messages kept for the first subscription to messages.
    backlog_items: int = 256
    backlog_bytes: int = 1 << 20
    #: Unread events kept for a subscription that receives only events.
    max_events: int = 256
    #: Pause reading for a slow reader instead of warning and failing. Only for a session in which
    #: the CLI sends no requests, because a pause delays them too.
    pauses_reading: bool = False


Batch = tuple[list[bytes] | list[SessionEvent], int]
"""The lines of messages, or events, with their size in bytes."""


class Opened(Struct, frozen=True):
    """A new subscription: its number, and the first items of its queue."""

    reader: int
    backlog: Sequence[Batch] = ()


class _Subscription(Account, kw_only=True, eq=False):
    messages: bool
    events: bool


class Delivery:
    """The readers of one session. Inputs return decisions, or emit actions.

    ``Engine.react`` returns the actions that the inputs of readers emit. ``failure`` is
    set when a reader is too slow. The engine then ends the session.
    """

    def __init__(
        self,
        config: DeliveryConfig,
        emit: Callable[[Action], None],
        agents: AgentBook | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._config = config
        self._emit = emit
        #: Decodes messages that are kept as lines, when a reader takes them.
        self.agents = agents or AgentBook()
        self._fail_at = FAIL_FACTOR * config.max_unread
        self._slow_at = config.max_unread
        if config.pauses_reading:
            self._slow_at = min(config.max_unread, _HIGH_WATER)
        self._subscriptions: dict[int, _Subscription] = {}
        self._turns = turns or Turns()
        self._records = self._turns.records
        self._opened = 0
        # The subscriptions to messages, kept here so that a batch needs no lookup.
        self._of_messages: tuple[_Subscription, ...] = ()
        self._message_readers: tuple[Reader, ...] = ()
        # Messages since the start, for the first subscription to messages. None after that.
        self._backlog: _Backlog | None = _Backlog(config.backlog_items, config.backlog_bytes)
        # Turns with unread messages that no loop reads, with the sums of their bytes. The turn that
        # has been unread for longest comes first. The values are not used.
        self._held: dict[TurnAccount, None] = {}
        self._held_bytes = 0
        self._unbegun_bytes = 0
        self._max_unbegun = min(config.max_unbegun, config.max_unread)
        # Notes of readers that may arrive at any moment, for example during garbage collection.
        # They take effect with the next input.
        self._notes: deque[tuple[Reader, int, int] | tuple[Reader]] = deque()
        self._has_warned = False
        self.is_paused = False
        self.failure: ConsumerTooSlow | None = None

    # -- messages and events -----------------------------------------------------------------------

    def account(self, actions: Iterable[Action]) -> ConsumerTooSlow | None:
        """Decide which queues get the messages in these actions. Return :attr:`failure`."""
        if self._notes:
            self._read_notes()
        for action in actions:
            if type(action) is Deliver:
                self._deliver(action)
            elif type(action) is Attribute:
                self._attribute(action)
            elif type(action) is TurnEnded and (account := self._account(action.uuid)) is not None:
                account.has_ended = True
        if self._unbegun_bytes > self._max_unbegun or self._held_bytes > self._config.max_unread:
            self._shrink()
        return self.failure

    def _deliver(self, action: Deliver) -> None:
        size, most = action.size, 0
        for account in self._of_messages:
            account.unread = unread = account.unread + size
            if unread > most:
                most = unread
        action.readers = self._message_readers
        backlog = self._backlog  # drop_backlog() may clear it at any moment
        if backlog is not None:
            backlog.put_messages(action.messages, size)
        if action.turns:
            readers, most = self._add_to_turns(action.turns, action.messages, size, most)
            action.readers += readers
        if most > self._slow_at:
            self._on_slow(most)

    def _attribute(self, action: Attribute) -> None:
        action.size = sum(map(len, lines_of(action.messages)))
        readers, most = self._add_to_turns(action.turns, action.messages, action.size, 0)
        action.readers = readers
        if most > self._slow_at:
            self._on_slow(most)

    def publish(self, event: SessionEvent) -> tuple[int, ...]:
        """Return the readers of an event. The shell puts it into their queues at once."""
        self._read_notes()
        readers: list[int] = []
        most = 0
        for reader, account in self._subscriptions.items():
            if not account.events:
                continue
            readers.append(reader)
            account.unread += EVENT_COST
            if account.messages:
                most = max(most, account.unread)
            elif account.unread > self._config.max_events * EVENT_COST:
                self._drop_oldest(reader, account)
        backlog = self._backlog
        if backlog is not None:
            backlog.put_event(event)
        if most > self._slow_at:
            self._on_slow(most)
        return tuple(readers)

    def _drop_oldest(self, reader: Reader, account: _Subscription) -> None:
        account.unread -= EVENT_COST
        account.dropped += 1
        kept = self._config.max_events
        detail = f"{account.dropped} events were dropped, at most {kept} are kept unread"
        self._emit(DropOldest(reader, SdkWarning(WarningKind.MISSED_EVENTS, detail)))

    def _on_slow(self, unread: int) -> None:
        if self._config.pauses_reading:
            if not self.is_paused:
                self.is_paused = True
                self._emit(PauseReading())
        elif unread > self._fail_at:
            self.failure = self.failure or ConsumerTooSlow(unread, self._fail_at)
        elif not self._has_warned:
            self._has_warned = True
            detail = f"{unread} bytes wait to be read, {self._slow_at} are allowed"
            self._emit(Warn(WarningKind.UNREAD_MESSAGES, detail))

    # -- subscriptions -----------------------------------------------------------------------------

    def subscribe(self, *, messages: bool = False, events: bool = False) -> Opened:
        """Open a subscription. The first one to messages gets the messages since the start."""
        self._read_notes()
        self._opened += 1
        account = _Subscription(messages=messages, events=events)
        self._subscriptions[self._opened] = account
        if not messages:
            return Opened(self._opened)
        self._note_subscriptions()
        backlog, self._backlog = self._backlog, None
        if backlog is None:
            return Opened(self._opened)
        batches = backlog.take(with_events=events)
        account.unread = sum(size for _, size in batches)
        missed = f"{backlog.dropped_messages} messages"
        if events and backlog.dropped_events:
            missed += f" and {backlog.dropped_events} events"
        elif not backlog.dropped_messages:
            return Opened(self._opened, batches)
        bounds = f"{self._config.backlog_items} and {self._config.backlog_bytes} bytes"
        detail = f"{missed} were dropped, at most {bounds} are kept"
        self._emit(Warn(WarningKind.MISSED_MESSAGES, detail))
        return Opened(self._opened, batches)

    def _note_subscriptions(self) -> None:
        found = {reader: each for reader, each in self._subscriptions.items() if each.messages}
        self._of_messages = tuple(found.values())
        self._message_readers = tuple(found)

    def took(self, reader: Reader, size: int, items: int) -> bool:
        """Note that a reader took ``items`` of ``size`` bytes. Return True if there is an action.

        A reader takes a whole batch at once, so this is called once for each batch.
        """
        account: Account | None
        if isinstance(reader, int):
            account = self._subscriptions.get(reader)
        else:
            turn = self._records.get(reader)
            account = None if turn is None else turn.account
        if account is not None:
            account.unread -= size
            account.items -= items
            account.dropped = 0
        return self.is_paused and self._resume()

    def _resume(self) -> bool:
        """Resume reading if every reader has at most half of its limit unread."""
        held = (turn.account for turn in self._records.values())
        read = [account for account in held if account is not None and account.is_read]
        most = max((each.unread for each in (*self._of_messages, *read)), default=0)
        if 2 * most > self._slow_at:
            return False
        self.is_paused = False
        self._emit(ResumeReading())
        return True

    def error_for(self, reader: Reader) -> ConsumerTooSlow | None:
        """Return the error that a reader gets at the end of the session."""
        return self.failure if reader in self._message_readers else None

    def closed(self, reader: Reader) -> None:
        """Note that a subscription was closed, or that the program dropped a turn.

        This and :meth:`left_loop` may be called at any moment, also by the garbage collector.
        """
        self._notes.append((reader,))

    def drop_backlog(self) -> None:
        """Keep no messages, because no subscription will follow. May be called at any moment."""
        self._backlog = None

    def restart_backlog(self) -> None:
        """Keep the messages from now on for the first subscription of another caller."""
        self._backlog = _Backlog(self._config.backlog_items, self._config.backlog_bytes)

    def _read_notes(self) -> None:
        while self._notes:
            reader, *returned = self._notes.popleft()
            if isinstance(reader, int):
                self._subscriptions.pop(reader, None)
                self._note_subscriptions()
            elif (account := self._account(reader)) is not None:
                self._leave(account, *returned)
            if self.is_paused:
                self._resume()

    def _leave(self, account: TurnAccount, *returned: int) -> None:
        if returned:
            account.is_read = False
            self._return(account, *returned)
        else:
            self._release(account)
            turn = self._records[account.uuid]
            turn.account = None
            self._turns.forget(turn)

    # -- turns -------------------------------------------------------------------------------------

    def _account(self, uuid: str) -> TurnAccount | None:
        """Return the account of a turn. None if the program does not hold the turn."""
        turn = self._records.get(uuid)
        return None if turn is None else turn.account

    def _held_turn(self, uuid: str) -> TurnAccount:
        """Return the account of a turn that the program holds."""
        account = self._records[uuid].account
        assert account is not None, "only the holder of a turn reads it"
        return account

    def open_turn(self, uuid: str) -> None:
        """Note that the program holds the turn of a prompt."""
        self._turns.hold(uuid)

    def begin_loop(self, uuid: str) -> BridleError | None:
        """Note that a loop over a turn begins. Return an error if its messages were dropped."""
        self._read_notes()
        account = self._held_turn(uuid)
        if account.lost is None:
            self._release(account)
            account.is_read = account.was_read = True
        return account.lost

    def left_loop(self, uuid: str, size: int, items: int) -> None:
        """Note that a loop was left with ``items`` of its current batch unread."""
        self._notes.append((uuid, size, items))

    def drop_turn(self, uuid: str) -> BridleError | None:
        """Drop the messages of a turn. Return the error for its reader, or None if it has none."""
        self._read_notes()
        account = self._account(uuid)
        if account is None or account.lost is not None:
            return None
        self._lose(account, _left())
        return account.lost

    def put_back(self, uuid: str, size: int, items: int) -> bool:
        """Note that taken messages were put back. Return False if they must not be kept."""
        self._read_notes()
        account = self._held_turn(uuid)
        if account.lost is None:
            self._return(account, size, items)
        return account.lost is None

    def begin_wait(self, uuid: str) -> None:
        """Note that a task begins to wait for the outcome of a turn."""
        self._held_turn(uuid).waiting += 1

    def end_wait(self, uuid: str) -> bool:
        """Note that a task no longer waits. Return True if the queue of the turn must be cleared.

        Waiting for the outcome discards the messages that no loop reads, so a program that only
        awaits turns holds no messages.
        """
        self._read_notes()
        account = self._held_turn(uuid)
        account.waiting -= 1
        was_read_to_the_end = account.has_ended and not account.unread
        if account.is_read or was_read_to_the_end or account.lost is not None:
            return False
        self._lose(account, _awaited())
        return True

    def _add_to_turns(
        self, uuids: Iterable[str], messages: list[Message], size: int, most: int
    ) -> tuple[tuple[Reader, ...], int]:
        """Return the turns that get these messages, and the largest unread size of a loop."""
        readers: tuple[Reader, ...] = ()
        for uuid in uuids:
            turn = self._records.get(uuid)
            account = None if turn is None else turn.account
            if account is None or account.lost is not None or account.has_ended:
                continue
            if account.waiting and not account.is_read:
                self._lose(account, _awaited())
                self._emit(Discard(uuid))
                continue
            readers += (uuid,)
            account.unread += size
            account.items += len(messages)
            if account.is_read:
                if account.unread > most:
                    most = account.unread
            else:
                self._hold(account, messages, size)
        return readers, most

    def _hold(self, account: TurnAccount, messages: list[Message], size: int) -> None:
        self._held[account] = None
        self._held_bytes += size
        if not account.was_read:
            repeated = sum(
                line_size(message)
                for message in messages
                if isinstance(message, UserMessage) and message.is_replay
            )
            account.repeated += repeated
            self._unbegun_bytes += size - repeated + LINE_COST * len(messages)

    def _return(self, account: TurnAccount, size: int, items: int) -> None:
        """Add messages that a loop has taken but not read."""
        is_held = account in self._held
        account.unread += size
        account.items += items
        if is_held:
            self._held_bytes += size
        elif account.unread and not account.is_read:
            self._held[account] = None
            self._held_bytes += account.unread

    def _release(self, account: TurnAccount) -> None:
        """Remove a turn from the turns that no loop reads."""
        if account in self._held:
            del self._held[account]
            self._held_bytes -= account.unread
            self._unbegun_bytes -= _unbegun(account)

    def _lose(self, account: TurnAccount, error: BridleError) -> None:
        self._release(account)
        account.lost = error
        account.unread = account.items = account.repeated = 0

    def _shrink(self) -> None:
        """Drop the messages of turns that no loop reads, oldest first, until the limits hold."""
        for account in tuple(self._held):
            limit = self._config.max_unread
            if _unbegun(account) and self._unbegun_bytes > self._max_unbegun:
                limit = self._max_unbegun
            elif self._held_bytes <= limit:
                continue
            lost = f"{account.items} messages ({account.unread} bytes) of turn {account.uuid}"
            kept = f"at most {limit} bytes are held for turns that no loop reads"
            error = ConsumerTooSlow(account.unread, limit)
            error.fix = "Iterate a turn right after sending its prompt, or read session.messages()."
            self._lose(account, error)
            self._emit(Discard(account.uuid))
            detail = f"{lost} were dropped, {kept}"
            self._emit(Warn(WarningKind.MISSED_MESSAGES, detail))


def _unbegun(account: TurnAccount) -> int:
    """Return the bytes of a turn that count against `DeliveryConfig.max_unbegun`."""
    if account.was_read:
        return 0
    return account.unread - account.repeated + LINE_COST * account.items


def _awaited() -> UsageError:
    return UsageError(
        "The outcome of this turn was awaited while no loop read its messages. They were not kept.",
        fix="Begin the loop over a turn before you await it, or at the same time.",
    )


def _left() -> UsageError:
    return UsageError(
        "Another caller of the pool uses the session of this turn. Its messages were not kept.",
        fix="Read the messages of a turn inside the block of pool.session().",
    )


class _Backlog:
    """The newest messages (as lines) and events before the first subscription.

    Whole batches are dropped, so that the cost of a batch does not depend on its length. Up to
    twice the bounds are kept. :meth:`take` returns what the bounds allow.
    """

    def __init__(self, max_items: int, max_bytes: int) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._batches: deque[tuple[list[Any], int]] = deque()
        self._items = 0
        self._bytes = 0
        self.dropped_messages = 0
        self.dropped_events = 0

    def put_messages(self, messages: list[Message], size: int) -> None:
        """Add messages of ``size`` bytes."""
        lines: list[Any] = lines_of(messages)
        if len(lines) > self._max_items or size > self._max_bytes:
            # Drop everything older, and keep only the part of these messages that fits.
            self._put(lines, size)
            kept = self.take(with_events=True)
            self._batches.clear()
            self._items = self._bytes = 0
            if not kept:
                return
            [(lines, size)] = kept
        self._put(lines, size)

    def put_event(self, event: SessionEvent) -> None:
        """Add an event."""
        self._put([event], EVENT_COST)

    def _put(self, items: list[Any], size: int) -> None:
        batches = self._batches
        batches.append((items, size))
        self._items += len(items)
        self._bytes += size
        while True:
            oldest, its_size = batches[0]
            rest = self._items - len(oldest)
            if rest < self._max_items and self._bytes - its_size < self._max_bytes:
                return
            batches.popleft()
            self._items = rest
            self._bytes -= its_size
            if isinstance(oldest[0], bytes):
                self.dropped_messages += len(oldest)
            else:
                self.dropped_events += 1

    def take(self, *, with_events: bool) -> list[Batch]:
        """Return the items that the bounds allow, in order, and count the others as dropped."""
        items = [item for batch, _ in self._batches for item in batch]
        first = max(0, len(items) - self._max_items)
        size = sum(map(_size_of, items[first:]))
        while size > self._max_bytes:
            size -= _size_of(items[first])
            first += 1
        batches: list[Batch] = []
        for batch, _ in self._batches:
            kept = batch[first:]
            if isinstance(batch[0], bytes):
                self.dropped_messages += len(batch) - len(kept)
            else:
                self.dropped_events += len(batch) - len(kept)
            first = max(0, first - len(batch))
            if kept and (with_events or isinstance(kept[0], bytes)):
                batches.append((kept, sum(map(_size_of, kept))))
        return batches


def _size_of(item: bytes | SessionEvent) -> int:
    return len(item) if isinstance(item, bytes) else EVENT_COST
