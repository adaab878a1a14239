"""The table of a pool, for random callers, keys, ends and times."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridle._pool.table import (
    Close,
    Lend,
    PoolAction,
    PoolLimits,
    PoolTable,
    Refuse,
    Source,
    Start,
)

KEYS = ("a", "b", "c", "d")


class Shell(RuleBasedStateMachine):
    """Performs the actions of a table, and knows what every process has been used for."""

    def __init__(self) -> None:
        super().__init__()
        self.table: PoolTable | None = None
        self.now = 0.0
        self.tickets = 0
        #: Each place with a process: its state, and the conversation that the process served.
        self.ready: set[int] = set()
        self.lent: dict[int, str | None] = {}
        self.idle: dict[int, str] = {}
        self.closing: dict[int, str | None] = {}
        self.waiting: dict[int, tuple[str | None, float | None]] = {}
        self.reserved: set[str] = set()
        self.drained = False

    @precondition(lambda self: self.table is None)
    @rule(data=st.data())
    def open(self, data: st.DataObject) -> None:
        size = data.draw(st.integers(1, 4))
        self.limits = PoolLimits(
            size=size,
            ready=data.draw(st.integers(0, size)),
            max_idle=data.draw(st.sampled_from([None, 5.0])),
            max_age=data.draw(st.sampled_from([None, 20.0])),
        )
        self.table = PoolTable(self.limits)
        self.perform(self.table.open(self.now))

    def perform(self, actions: list[PoolAction]) -> None:
        for action in actions:
            match action:
                case Start(place):
                    assert not self.drained
                    self.ready.add(place)
                case Lend(ticket, place, source):
                    assert isinstance(ticket, int)
                    key, deadline = self.waiting.pop(ticket)
                    assert deadline is None or self.now < deadline
                    # An earlier caller waits for its own key, or for a process that ends for it.
                    taken = {*self.lent.values(), *self.closing.values(), *self.reserved}
                    passed = [
                        earlier
                        for other, (earlier, _) in self.waiting.items()
                        if other < ticket and earlier not in taken and earlier != key
                    ]
                    if source is not Source.IDLE:
                        assert len({*passed}) <= (source is Source.READY) * len(self.closing)
                    if source is Source.READY:
                        self.ready.remove(place)
                    elif source is Source.IDLE:
                        assert self.idle.pop(place) == key
                    if key is not None:
                        assert key not in taken
                        assert key not in self.idle.values()
                    assert place not in self.lent
                    self.lent[place] = key
                case Close(place):
                    assert place not in self.lent or self.lent[place] is not None
                    was_ready = place in self.ready
                    self.ready.discard(place)
                    key = self.idle.pop(place, None) or self.lent.pop(place, None)
                    assert was_ready or key is not None
                    self.closing[place] = key
                case Refuse(ticket, _, is_closing):
                    assert isinstance(ticket, int)
                    _, deadline = self.waiting.pop(ticket)
                    assert is_closing or (deadline is not None and self.now >= deadline)

    @precondition(lambda self: self.table is not None)
    @rule(
        key=st.sampled_from([None, *KEYS]),
        timeout=st.sampled_from([None, 1.0, 10.0]),
        takes_ready=st.booleans(),
    )
    def borrow(self, key: str | None, timeout: float | None, takes_ready: bool) -> None:
        assert self.table is not None
        self.tickets += 1
        deadline = None if timeout is None else self.now + timeout
        self.waiting[self.tickets] = (key, deadline)
        self.perform(
            self.table.borrow(
                self.tickets, self.now, key=key, takes_ready=takes_ready, deadline=deadline
            )
        )

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        assert self.table is not None
        ticket = data.draw(st.sampled_from(sorted(self.waiting)))
        del self.waiting[ticket]
        self.perform(self.table.cancel(ticket, self.now))

    @precondition(lambda self: self.lent)
    @rule(data=st.data(), keep=st.booleans())
    def end(self, data: st.DataObject, keep: bool) -> None:
        assert self.table is not None
        place = data.draw(st.sampled_from(sorted(self.lent)))
        key = self.lent[place]
        if key is None:
            del self.lent[place]
            self.perform(self.table.closed(place, self.now))
            return
        actions = self.table.give_back(place, self.now, keep=keep)
        if Close(place) not in actions or keep:
            # It was kept, and perhaps closed or lent at once.
            self.idle[place] = key
            del self.lent[place]
        self.perform(actions)

    @precondition(lambda self: self.closing)
    @rule(data=st.data())
    def closed(self, data: st.DataObject) -> None:
        assert self.table is not None
        place = data.draw(st.sampled_from(sorted(self.closing)))
        del self.closing[place]
        self.perform(self.table.closed(place, self.now))

    @precondition(lambda self: self.ready)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        assert self.table is not None
        place = data.draw(st.sampled_from(sorted(self.ready)))
        self.ready.remove(place)
        self.perform(self.table.lost(place, self.now))

    @precondition(lambda self: self.table is not None)
    @rule(key=st.sampled_from(KEYS))
    def reserve(self, key: str) -> None:
        assert self.table is not None
        actions = self.table.reserve(key, self.now)
        is_used = key in self.lent.values() or key in self.reserved
        assert (actions is None) == is_used
        if actions is not None:
            self.reserved.add(key)
            self.perform(actions)
            assert key not in self.idle.values()

    @precondition(lambda self: self.reserved)
    @rule(data=st.data())
    def unreserve(self, data: st.DataObject) -> None:
        assert self.table is not None
        key = data.draw(st.sampled_from(sorted(self.reserved)))
        self.reserved.discard(key)
        self.perform(self.table.unreserve(key, self.now))

    @precondition(lambda self: self.idle)
    @rule(data=st.data())
    def exit(self, data: st.DataObject) -> None:
        """The idle process of a key exits."""
        assert self.table is not None
        place = data.draw(st.sampled_from(sorted(self.idle)))
        assert self.table.is_idle(place)
        self.perform(self.table.drop(place, self.now))
        assert self.table.has_process(self.closing[place] or "")

    @precondition(lambda self: self.table is not None)
    @rule(seconds=st.sampled_from([0.5, 3.0, 30.0]))
    def wait(self, seconds: float) -> None:
        assert self.table is not None
        end = self.now + seconds
        while (due := self.table.next_deadline) is not None and due <= end:
            self.now = max(self.now, due)
            actions = self.table.advance(self.now)
            self.perform(actions)
            assert actions, "a deadline has something to do"
        self.now = end

    @precondition(lambda self: self.table is not None and not self.drained)
    @rule(really=st.integers(0, 9))
    def drain(self, really: int) -> None:
        assert self.table is not None
        if really == 0:
            self.drained = True
            self.perform(self.table.drain())

    @invariant()
    def the_table_agrees(self) -> None:
        if self.table is None:
            return
        numbers = self.table.metrics()
        assert (numbers.ready, numbers.in_use) == (len(self.ready), len(self.lent))
        assert (numbers.idle, numbers.closing) == (len(self.idle), len(self.closing))
        assert numbers.waiting == len(self.waiting)
        total = numbers.ready + numbers.in_use + numbers.idle + numbers.closing
        assert total <= self.limits.size

    @invariant()
    def a_key_has_one_process(self) -> None:
        keys = [*self.lent.values(), *self.idle.values(), *self.closing.values()]
        named = [key for key in keys if key is not None]
        assert len(named) == len(set(named))

    @invariant()
    def nobody_waits_for_a_free_place(self) -> None:
        if self.table is None or self.drained:
            return
        taken = {*self.lent.values(), *self.closing.values(), *self.reserved} - {None}
        short = [key for key, _ in self.waiting.values() if key not in taken]
        used = len(self.ready) + len(self.lent) + len(self.idle) + len(self.closing)
        if short:
            assert used == self.limits.size
            # Processes that no caller uses make room.
            keys = len({key for key in short if key is not None}) + short.count(None)
            assert len(self.closing) >= min(keys, len(self.closing) + len(self.idle))


TestPool: Any = Shell.TestCase
TestPool.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


@given(st.lists(st.booleans(), max_size=30))
def test_callers_without_keys_are_served_strictly_in_order(ends: list[bool]) -> None:
    """A list of events: True ends the oldest use, False adds a caller."""
    table = PoolTable(PoolLimits(size=2, ready=1))
    places: list[int] = []
    served: list[int] = []
    count = 0

    def perform(actions: list[PoolAction]) -> None:
        for action in actions:
            if isinstance(action, Lend):
                assert isinstance(action.ticket, int)
                served.append(action.ticket)
                places.append(action.place)

    perform(table.open(0.0))
    for is_end in ends:
        if is_end and places:
            perform(table.closed(places.pop(0), 0.0))
        elif not is_end:
            count += 1
            perform(table.borrow(count, 0.0))
    assert served == sorted(served)
