"""Decide which caller of a pool gets which process, and when a process of a pool is closed.

The table holds the places of the pool. A place holds one process and serves one conversation. The
shell reports what happened and at what time, and performs the actions that the table returns.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from heapq import heappop, heappush
from typing import TypeAlias

from msgspec import Struct

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
"""Seconds before a ready process is started again after one has exited. Doubled every time."""


class PoolLimits(Struct, frozen=True, kw_only=True):
    """The limits of a pool. Times are in seconds; None means no limit."""

    #: Maximum number of processes.
    size: int
    #: Number of processes to keep ready.
    ready: int
    #: How long the process of a key may be unused.
    max_idle: float | None = None
    #: The age from which on a process is not handed out.
    max_age: float | None = None


class PoolMetrics(Struct, frozen=True, kw_only=True):
    """The numbers of a pool: the present state, then totals since the pool was opened."""

    #: Maximum number of processes.
    size: int
    #: Processes that are started and wait for a caller.
    ready: int
    #: Processes that callers use.
    in_use: int
    #: Processes of keys that no caller uses at the moment.
    idle: int
    #: Processes that are being closed.
    closing: int
    #: Callers that wait.
    waiting: int
    #: Times that a caller got a process that was ready.
    from_ready: int
    #: Times that a caller got the open process of its key.
    from_idle: int
    #: Times that a process was started for a caller, also to resume the conversation of its key.
    from_start: int
    #: Callers whose deadline passed, and which got PoolTimeout.
    timeouts: int
    #: Processes that were started in advance.
    started: int
    #: Processes that exited, or did not start, while they were ready.
    lost: int
    #: Idle processes that were closed to make room for another conversation.
    evicted: int
    #: Seconds that all callers have waited for a process, and the longest wait.
    wait_total: float
    wait_longest: float


class Source(Enum):
    """Where the process that a caller gets comes from."""

    READY = "ready"
    IDLE = "idle"
    START = "start"


class Start(Struct, frozen=True):
    """Start a process that waits in this place."""

    place: int


class Lend(Struct, frozen=True):
    """Give a place to a caller. With `Source.START` the place is empty: start a process for it."""

    ticket: Hashable
    place: int
    source: Source


class Close(Struct, frozen=True):
    """Close the process of a place that no caller uses, then report `closed`."""

    place: int


class Refuse(Struct, frozen=True):
    """Reject a caller: its deadline has passed, or the pool is closing."""

    ticket: Hashable
    waited: float
    is_closing: bool = False


PoolAction: TypeAlias = Start | Lend | Close | Refuse


class _State(Enum):
    READY = "ready"
    LENT = "lent"
    IDLE = "idle"
    CLOSING = "closing"


# Bound to local names because enum attribute access is slow.
_READY, _LENT, _IDLE, _CLOSING = _State


class _Place(Struct, eq=False):
    number: int
    state: _State
    #: When its process was started.
    born: float
    key: str | None = None
    #: When it became ready or idle.
    since: float = 0.0


class _Caller(Struct, eq=False):
    ticket: Hashable
    key: str | None
    #: Whether it can use a ready process.
    takes_ready: bool
    asked: float
    deadline: float | None


class PoolTable:
    """The places of a pool, and the callers that wait for one.

    Callers are served in the order in which they asked. Two kinds of callers do not hold up the
    next ones: one that waits for the process of its key, and one that cannot use a ready process
    while a process ends to make room for it.
    """

    def __init__(self, limits: PoolLimits) -> None:
        self._limits = limits
        self._places: dict[int, _Place] = {}
        self._by_key: dict[str, _Place] = {}
        # By ticket, in the order of asking.
        self._waiting: dict[Hashable, _Caller] = {}
        # The deadlines of callers. Entries of callers that have left are skipped.
        self._deadlines: list[tuple[float, int, Hashable]] = []
        # Keys whose conversation is being forgotten. Their callers wait.
        self._reserved: set[str] = set()
        self._last_number = self._asked = 0
        self._is_closing = False
        self._pause = _FIRST_PAUSE
        self._start_at = 0.0
        self._from = dict.fromkeys(Source, 0)
        self._timeouts = self._started = self._lost = self._evicted = 0
        self._wait_total = self._wait_longest = 0.0
        self._actions: list[PoolAction] = []

    # -- state -------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Return True if no place holds a process, and no key is reserved."""
        return not self._places and not self._reserved

    @property
    def is_closing(self) -> bool:
        """Return True after `drain`."""
        return self._is_closing

    def key_of(self, place: int) -> str | None:
        """Return the key of the conversation in a place."""
        return self._places[place].key

    def has_process(self, key: str) -> bool:
        """Return True if a place holds the conversation of this key."""
        return key in self._by_key

    def is_idle(self, place: int) -> bool:
        """Return True if the place holds the process of a key that no caller uses."""
        return place in self._places and self._places[place].state is _IDLE

    def is_ready(self, place: int) -> bool:
        """Return True if the place holds a process that waits for a caller."""
        return place in self._places and self._places[place].state is _READY

    def metrics(self) -> PoolMetrics:
        """Return the numbers of the pool."""
        count = dict.fromkeys(_State, 0)
        for place in self._places.values():
            count[place.state] += 1
        return PoolMetrics(
            size=self._limits.size,
            ready=count[_READY],
            in_use=count[_LENT],
            idle=count[_IDLE],
            closing=count[_CLOSING],
            waiting=len(self._waiting),
            from_ready=self._from[Source.READY],
            from_idle=self._from[Source.IDLE],
            from_start=self._from[Source.START],
            timeouts=self._timeouts,
            started=self._started,
            lost=self._lost,
            evicted=self._evicted,
            wait_total=self._wait_total,
            wait_longest=self._wait_longest,
        )

    @property
    def next_deadline(self) -> float | None:
        """Return the time at which `advance` has something to do, or None."""
        while self._deadlines and self._deadlines[0][2] not in self._waiting:
            heappop(self._deadlines)
        times = [when for when, _, _ in self._deadlines[:1]]
        times += [end for place in self._places.values() if (end := self._end_of(place))]
        if self._wants_ready() and not self._is_closing:
            times.append(self._start_at)
        return min(times, default=None)

    # -- inputs ------------------------------------------------------------------------------------

    def open(self, now: float) -> list[PoolAction]:
        """Start the processes to keep ready."""
        return self._settle(now)

    def borrow(
        self,
        ticket: Hashable,
        now: float,
        *,
        key: str | None = None,
        takes_ready: bool = True,
        deadline: float | None = None,
    ) -> list[PoolAction]:
        """Add a caller to the queue.

        Args:
            ticket: identifies the caller in actions.
            now: the time.
            key: the key of its conversation. None for a new conversation.
            takes_ready: whether the caller can use a ready process: it has the right options, and
                the key has no conversation yet.
            deadline: when the caller stops to wait. None means never.
        """
        if self._is_closing:
            return [Refuse(ticket, 0.0, is_closing=True)]
        caller = _Caller(ticket, key, takes_ready, now, deadline)
        self._waiting[ticket] = caller
        if deadline is not None:
            self._asked += 1  # orders callers with the same deadline
            heappush(self._deadlines, (deadline, self._asked, ticket))
        return self._settle(now)

    def cancel(self, ticket: Hashable, now: float) -> list[PoolAction]:
        """Remove a caller that no longer waits. Ignores one that has its place."""
        self._waiting.pop(ticket, None)
        return self._settle(now)

    def give_back(self, place: int, now: float, *, keep: bool) -> list[PoolAction]:
        """Take back the process of a key. Close it if ``keep`` is False or it is too old."""
        one, limits = self._places[place], self._limits
        is_old = limits.max_age is not None and now >= one.born + limits.max_age
        if keep and not (is_old or self._is_closing):
            one.state, one.since = _IDLE, now
        else:
            self._close(one)
        return self._settle(now)

    def closed(self, place: int, now: float) -> list[PoolAction]:
        """Note that the process of a place has ended, so that the place is free."""
        one = self._places.pop(place)
        if one.key is not None:
            del self._by_key[one.key]
        return self._settle(now)

    def lost(self, place: int, now: float) -> list[PoolAction]:
        """Note that a ready process has exited or did not start. Start the next one later."""
        if self._places[place].state is _READY:
            self._lost += 1
            self._start_at, self._pause = now + self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        return self.closed(place, now)

    def came_up(self) -> None:
        """Note that a ready process works, so that the next one need not start later."""
        self._pause = _FIRST_PAUSE

    def restarted(self, place: int, now: float) -> None:
        """Note that the idle process which a caller got is replaced by a new one."""
        one = self._places[place]
        one.born = now
        self._from[Source.IDLE] -= 1
        self._from[Source.START] += 1

    def reserve(self, key: str, now: float) -> list[PoolAction] | None:
        """Close the process of a key, and let its callers wait until `unreserve`.

        Return None if a caller uses the key, or if it is reserved.
        """
        place = self._by_key.get(key)
        if key in self._reserved or (place is not None and place.state is _LENT):
            return None
        self._reserved.add(key)
        if place is not None and place.state is _IDLE:
            self._close(place)
        return self._settle(now)

    def unreserve(self, key: str, now: float) -> list[PoolAction]:
        """Serve the callers of a key again."""
        self._reserved.discard(key)
        return self._settle(now)

    def drop(self, place: int, now: float) -> list[PoolAction]:
        """Close the idle process of a key."""
        self._close(self._places[place])
        return self._settle(now)

    def advance(self, now: float) -> list[PoolAction]:
        """Reject callers whose deadline has passed, and close processes at their limits."""
        return self._settle(now)

    def drain(self) -> list[PoolAction]:
        """Reject all waiting callers, and close the processes that no caller uses."""
        self._is_closing = True
        for caller in self._waiting.values():
            self._actions.append(Refuse(caller.ticket, 0.0, is_closing=True))
        self._waiting.clear()
        for place in list(self._places.values()):
            if place.state in (_READY, _IDLE):
                self._close(place)
        return self._take()

    # -- decisions ---------------------------------------------------------------------------------

    def _settle(self, now: float) -> list[PoolAction]:
        """Apply the limits, serve the callers, then start ready processes in what is left."""
        if not self._is_closing:
            self._expire(now)
            short = self._serve(now)
            if not short and now >= self._start_at:
                while self._wants_ready():
                    place = self._new_place(_READY, now)
                    self._started += 1
                    self._actions.append(Start(place.number))
        return self._take()

    def _expire(self, now: float) -> None:
        """Reject callers whose deadline has passed, and close processes at their limits."""
        while self._deadlines and self._deadlines[0][0] <= now:
            caller = self._waiting.pop(heappop(self._deadlines)[2], None)
            if caller is not None:
                self._timeouts += 1
                self._count_wait(now - caller.asked)
                self._actions.append(Refuse(caller.ticket, now - caller.asked))
        for place in list(self._places.values()):
            end = self._end_of(place)
            if end is not None and now >= end:
                self._close(place)

    def _serve(self, now: float) -> int:
        """Serve callers in order. Return how many of them still need a place."""
        short = 0
        passed: set[str] = set()
        for caller in list(self._waiting.values()):
            if not self._has_room():
                return short + 1
            key = caller.key
            if key is not None:
                if key in passed or key in self._reserved:
                    continue
                own = self._by_key.get(key)
                if own is not None and own.state is not _IDLE:
                    passed.add(key)  # its process is in use, or must end before it is resumed
                    continue
                if own is not None:
                    self._lend(caller, own, Source.IDLE, now)
                    continue
            if not self._find_place(caller, short, now):
                short += 1
                if key is not None:
                    passed.add(key)
        return short

    def _has_room(self) -> bool:
        """Return False if every place is in use or promised, so that no caller can be served."""
        is_full = len(self._places) >= self._limits.size
        return not is_full or any(one.state in (_READY, _IDLE) for one in self._places.values())

    def _find_place(self, caller: _Caller, short: int, now: float) -> bool:
        """Give the caller a place. If there is none, close a process unless one is closing for it.

        ``short`` is the number of earlier callers that wait for a process to end.
        """
        ready = [one for one in self._places.values() if one.state is _READY]
        if caller.takes_ready and ready:
            self._lend(caller, ready[0], Source.READY, now)
            return True
        if len(self._places) < self._limits.size:
            self._lend(caller, self._new_place(_LENT, now), Source.START, now)
            return True
        closing = sum(one.state is _CLOSING for one in self._places.values())
        if closing <= short:
            victim = ready[-1] if ready else self._least_recent()
            if victim is not None:
                self._evicted += victim.state is _IDLE
                self._close(victim)
        return False

    def _least_recent(self) -> _Place | None:
        """Return the idle place to give up: the least recently used that no caller waits for."""
        wanted = {caller.key for caller in self._waiting.values()}
        idle = [one for one in self._places.values() if one.state is _IDLE]
        return min(idle, key=lambda one: (one.key in wanted, one.since), default=None)

    def _lend(self, caller: _Caller, place: _Place, source: Source, now: float) -> None:
        del self._waiting[caller.ticket]
        place.state, place.key = _LENT, caller.key
        if caller.key is not None:
            self._by_key[caller.key] = place
        self._from[source] += 1
        self._count_wait(now - caller.asked)
        self._actions.append(Lend(caller.ticket, place.number, source))

    def _close(self, place: _Place) -> None:
        place.state = _CLOSING
        self._actions.append(Close(place.number))

    def _new_place(self, state: _State, now: float) -> _Place:
        self._last_number += 1
        place = _Place(self._last_number, state, now, since=now)
        self._places[place.number] = place
        return place

    def _wants_ready(self) -> bool:
        """Return True if another process should be ready, and there is a place for it."""
        ready = sum(one.state is _READY for one in self._places.values())
        return ready < self._limits.ready and len(self._places) < self._limits.size

    def _end_of(self, place: _Place) -> float | None:
        """Return when a process that no caller uses reaches a limit. None if never."""
        if place.state not in (_READY, _IDLE):
            return None
        ends: list[float] = []
        if self._limits.max_age is not None:
            ends.append(place.born + self._limits.max_age)
        if self._limits.max_idle is not None and place.state is _IDLE:
            ends.append(place.since + self._limits.max_idle)
        return min(ends, default=None)

    def _count_wait(self, seconds: float) -> None:
        self._wait_total += seconds
        self._wait_longest = max(self._wait_longest, seconds)

    def _take(self) -> list[PoolAction]:
        actions, self._actions = self._actions, []
        return actions
