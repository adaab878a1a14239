"""Readers of a simulated session: they open, read slowly, stop, leave loops and close.

This module stands for the queues of the shell. It holds what the engine says, and raises a
:class:`Violation` if a queue holds more than its bound, if a reader misses a message without a
cause, or if messages are dropped or the session fails although no bound was reached.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from msgspec import Struct, field
from tests.simulation.violation import Violation

from bridle._engine import actions as act
from bridle._engine.delivery.unread import (
    EVENT_COST,
    FAIL_FACTOR,
    LINE_COST,
    Delivery,
    DeliveryConfig,
)
from bridle._records.raw_line import line_size
from bridle.errors import ConsumerTooSlow, UsageError
from bridle.events import SessionEvent, SessionFailed, WarningKind
from bridle.messages import Message, UserMessage

_MAX_OPEN = 4
"""Subscriptions that are open at the same time."""

_HIGH_WATER = 4 << 20


class Queue(Struct):
    """What one reader has not taken: the sizes of batches, item by item."""

    messages: bool = False
    events: bool = False
    #: Whether its reader never reads.
    is_stopped: bool = False
    batches: deque[list[int]] = field(default_factory=deque)
    #: The sizes of what is left of the batch that is being read.
    ready: list[int] = field(default_factory=list)
    #: Set for turns.
    uuid: str = ""
    is_read: bool = False
    was_read: bool = False
    waiting: int = 0
    #: Bytes of unread repetitions of prompts, while no loop has begun.
    repeated: int = 0
    #: Whether its messages were dropped: it gets no more.
    is_lost: bool = False
    has_ended: bool = False

    @property
    def unread(self) -> int:
        return sum(map(sum, self.batches))

    @property
    def unbegun(self) -> int:
        return self.unread - self.repeated + LINE_COST * sum(map(len, self.batches))

    def lose(self) -> None:
        self.is_lost = True
        self.batches.clear()
        self.repeated = 0


class Readers:
    """All readers of one session.

    ``react`` takes the actions that follow from what a reader did, in a step of their own.
    """

    def __init__(
        self,
        delivery: Delivery,
        config: DeliveryConfig,
        chance: Callable[[], float],
        react: Callable[[], None],
        count: Callable[[str], None],
    ) -> None:
        self._delivery = delivery
        self._config = config
        self._chance = chance
        self._react = react
        self._count = count
        self.queues: dict[act.Reader, Queue] = {}
        self.is_paused = False
        self._events: deque[SessionEvent] = deque()
        # What the first subscription may get: the sizes of everything so far, by what it was.
        self._early: list[tuple[bool, int]] | None = []
        self._has_warned = False
        # Turns whose messages are dropped in the step under way.
        self._losing: set[act.Reader] = set()

    # -- what the engine decides ---------------------------------------------------------------

    def begin_step(self, actions: Iterable[act.Action]) -> None:
        """Note what is about to be dropped: the engine no longer delivers to it."""
        self._losing = {action.reader for action in actions if isinstance(action, act.Discard)}

    def deliver(self, action: act.Deliver | act.Attribute) -> None:
        """Put messages into the queues that the engine names; they must be the right ones."""
        sizes = [line_size(message) for message in action.messages]
        if action.size != sum(sizes):
            raise Violation(f"{sum(sizes)} bytes were counted as {action.size}")
        expected = {reader for reader, queue in self.queues.items() if self._gets(queue, action)}
        named = set(action.readers)
        if len(named) != len(action.readers) or not expected - self._losing <= named <= expected:
            raise Violation(f"{action} went to {action.readers}, not {expected}")
        for reader in action.readers:
            queue = self.queues[reader]
            queue.batches.append(sizes.copy())
            if queue.uuid and not queue.was_read:
                queue.repeated += _repeated(action.messages)
        if isinstance(action, act.Deliver) and self._early is not None:
            self._early += [(True, size) for size in sizes]

    def _gets(self, queue: Queue, action: act.Deliver | act.Attribute) -> bool:
        if not queue.uuid:
            return queue.messages and isinstance(action, act.Deliver)
        if queue.uuid not in action.turns or queue.is_lost or queue.has_ended:
            return False
        if queue.waiting and not queue.is_read:
            queue.lose()  # the engine says so with this step
            return False
        return True

    def discard(self, action: act.Discard) -> None:
        queue = self.queues.get(action.reader)
        if queue is None:
            raise Violation(f"the queue of {action.reader} was cleared, which is gone")
        if not queue.is_lost:
            total, unbegun = self._held()
            is_due = total > self._config.max_unread or unbegun > self._max_unbegun
            if queue.is_read or not is_due:
                raise Violation(f"turn {action.reader} was dropped without need")
            self._count("turn dropped")
        queue.lose()

    def drop_oldest(self, action: act.DropOldest) -> None:
        queue = self.queues[action.reader]
        if queue.messages or len(queue.batches) <= self._config.max_events:
            raise Violation(f"an event of {action.reader} was dropped without need")
        queue.batches.popleft()
        self._count("event dropped")

    def pause(self, _: act.PauseReading) -> None:
        if self.is_paused or self._most() <= self._slow_at:
            raise Violation("reading was paused without need")
        self.is_paused = True
        self._count("paused")

    def resume(self, _: act.ResumeReading) -> None:
        if not self.is_paused or 2 * self._most() > self._slow_at:
            raise Violation("reading was resumed too early")
        self.is_paused = False

    def warn(self, action: act.Warn) -> None:
        if action.kind is WarningKind.UNREAD_MESSAGES:
            if self._has_warned or self._most() <= self._config.max_unread:
                raise Violation("a warning of unread messages without need")
            self._has_warned = True
            self._count("slow")

    def published(self, event: SessionEvent) -> None:
        """Keep an event until the step is over."""
        if isinstance(event, SessionFailed) and isinstance(event.error, ConsumerTooSlow):
            if self._most() <= self._fail_at:
                raise Violation("the session failed although every reader kept up")
            self._count("too slow")
        self._events.append(event)

    def end_turn(self, uuid: str) -> None:
        if uuid in self.queues:
            self.queues[uuid].has_ended = True

    # -- what must hold ------------------------------------------------------------------------

    @property
    def _fail_at(self) -> int:
        return FAIL_FACTOR * self._config.max_unread

    @property
    def _slow_at(self) -> int:
        if not self._config.pauses_reading:
            return self._config.max_unread
        return min(self._config.max_unread, _HIGH_WATER)

    @property
    def _max_unbegun(self) -> int:
        return min(self._config.max_unbegun, self._config.max_unread)

    def _counted(self) -> Iterable[Queue]:
        """The queues whose readers can be slow."""
        return (queue for queue in self.queues.values() if queue.messages or queue.is_read)

    def _most(self) -> int:
        return max((queue.unread for queue in self._counted()), default=0)

    def _held(self) -> tuple[int, int]:
        """The bytes of turns that no loop reads, and of those that no loop has read yet."""
        held = [queue for queue in self.queues.values() if queue.uuid and not queue.is_read]
        unbegun = sum(each.unbegun for each in held if not each.was_read)
        return sum(queue.unread for queue in held), unbegun

    def check(self, *, delivered: bool, is_over: bool) -> None:
        """A step is over: what is unread must be within its bounds."""
        most = self._most()
        if self._config.pauses_reading:
            if most > self._slow_at and not self.is_paused:
                raise Violation(f"{most} bytes are unread, and reading goes on")
        elif most > self._fail_at and not is_over:
            raise Violation(f"{most} bytes are unread, and the session goes on")
        elif most > self._config.max_unread and not (self._has_warned or is_over):
            raise Violation(f"{most} bytes are unread without a warning")
        if delivered:
            total, unbegun = self._held()
            if total > self._config.max_unread or unbegun > self._max_unbegun:
                raise Violation(f"{total} bytes, {unbegun} of them new, wait for loops over turns")
        for queue in self.queues.values():
            bound = self._config.max_events
            if queue.events and not queue.messages and len(queue.batches) > bound:
                raise Violation(f"{len(queue.batches)} events are unread")

    # -- what readers do -----------------------------------------------------------------------

    def publish_events(self) -> None:
        """Put the events of a step into the queues that the engine names."""
        while self._events:
            event = self._events.popleft()
            readers = self._delivery.publish(event)
            if set(readers) != {reader for reader, queue in self.queues.items() if queue.events}:
                raise Violation(f"{event} went to {readers}")
            for reader in readers:
                self.queues[reader].batches.append([EVENT_COST])
            if self._early is not None:
                self._early.append((False, EVENT_COST))
            self._react()

    def hold_turn(self, uuid: str) -> None:
        """The program sends a prompt and keeps its turn."""
        self._delivery.open_turn(uuid)
        self.queues[uuid] = Queue(uuid=uuid, is_stopped=self._chance() < 0.3)

    def do_something(self) -> None:
        """One of the readers does something."""
        way = self._chance()
        if way < 0.06:
            self._open()
        elif way < 0.09:
            self._close()
        elif way < 0.5:
            self._read_some()
        else:
            self._act_on_turn()

    def _pick(self, queues: Iterable[Queue]) -> Queue | None:
        found = list(queues)
        return found[int(self._chance() * len(found))] if found else None

    def _reader_of(self, queue: Queue) -> act.Reader:
        return next(reader for reader, each in self.queues.items() if each is queue)

    def _open(self) -> None:
        if sum(not queue.uuid for queue in self.queues.values()) >= _MAX_OPEN:
            return
        way = self._chance()
        messages, events = way < 0.8, way > 0.6
        queue = Queue(messages=messages, events=events, is_stopped=self._chance() < 0.15)
        opened = self._delivery.subscribe(messages=messages, events=events)
        queue.batches.extend(list(map(_size, items)) for items, _ in opened.backlog)
        if messages:
            self._check_early(queue, with_events=events)
        self.queues[opened.reader] = queue
        self._count("opened")
        self._react()

    def _check_early(self, queue: Queue, *, with_events: bool) -> None:
        """The first subscription gets the newest of what came, as much as the bounds allow."""
        early, self._early = self._early, None
        expected: list[int] = []
        size = 0
        for number, (is_message, its_size) in enumerate(reversed(early or ()), 1):
            size += its_size
            if number > self._config.backlog_items or size > self._config.backlog_bytes:
                break
            if is_message or with_events:
                expected.insert(0, its_size)
        if [size for batch in queue.batches for size in batch] != expected:
            raise Violation(f"a first subscription got {queue.batches}, not {expected}")

    def _close(self) -> None:
        queue = self._pick(self.queues.values())
        if queue is not None:
            reader = self._reader_of(queue)
            del self.queues[reader]
            self._delivery.closed(reader)
            self._count("closed")
            if self.is_paused:
                self._react()

    def _read_some(self) -> None:
        may_read = (each for each in self.queues.values() if each.is_read or not each.uuid)
        queue = self._pick(each for each in may_read if not each.is_stopped)
        if queue is not None:
            self._read(queue, 1 + int(self._chance() * 4))

    def read_all(self) -> None:
        """Everything that waits is read, also by readers that had stopped."""
        for queue in tuple(self.queues.values()):
            if queue.is_read or not queue.uuid:
                self._read(queue, len(queue.batches))

    def _read(self, queue: Queue, batches: int) -> None:
        for _ in range(batches):
            if not queue.batches:
                queue.ready = []
                return
            sizes = queue.batches.popleft()
            if self._delivery.took(self._reader_of(queue), sum(sizes), len(sizes)):
                self._react()
            # What is taken is read in part; a loop that is left returns the rest.
            queue.ready = sizes[int(self._chance() * (len(sizes) + 1)) :]

    def _act_on_turn(self) -> None:
        queue = self._pick(queue for queue in self.queues.values() if queue.uuid)
        if queue is None:
            return
        way = self._chance()
        if way < 0.3:
            self._begin_loop(queue)
        elif way < 0.5 and queue.is_read:
            self._leave_loop(queue)
        elif way < 0.6 and not queue.waiting:
            queue.waiting += 1
            self._delivery.begin_wait(queue.uuid)
        elif queue.waiting and (queue.has_ended or way > 0.95):
            self._end_wait(queue)

    def _begin_loop(self, queue: Queue) -> None:
        error = self._delivery.begin_loop(queue.uuid)
        if queue.is_lost is (error is None):
            raise Violation(f"a loop over {queue} got {error!r}")
        if error is None:
            queue.is_read = queue.was_read = True
            queue.repeated = 0
            self._count("loop")

    def _leave_loop(self, queue: Queue) -> None:
        queue.is_read = False
        if queue.ready:
            queue.batches.appendleft(queue.ready)
        self._delivery.left_loop(queue.uuid, sum(queue.ready), len(queue.ready))
        queue.ready = []
        self._count("loop left")
        if self.is_paused:
            self._react()

    def _end_wait(self, queue: Queue) -> None:
        queue.waiting -= 1
        clears = self._delivery.end_wait(queue.uuid)
        is_over = queue.has_ended and not queue.batches
        if clears is not (not queue.is_read and not queue.is_lost and not is_over):
            raise Violation(f"the end of a wait for {queue}: {clears}")
        if clears:
            queue.lose()
            if not isinstance(self._delivery.begin_loop(queue.uuid), UsageError):
                raise Violation(f"the messages of {queue} were discarded without an error")
            self._count("awaited")


def _repeated(messages: list[Message]) -> int:
    """The bytes of repetitions of prompts."""
    return sum(
        line_size(each) for each in messages if isinstance(each, UserMessage) and each.is_replay
    )


def _size(item: bytes | SessionEvent) -> int:
    return len(item) if isinstance(item, bytes) else EVENT_COST
