"""Requests in flight, and the one place that keeps deadlines.

* :class:`Deadlines` is a heap of points in time, each under a token. Setting a token again moves
  it, clearing it forgets it, and what is forgotten costs nothing later: the heap is rebuilt when
  dead entries outnumber living ones.
* :class:`Ledger` pairs our requests with their answers. An entry leaves the ledger on the first
  of answer, deadline, withdrawal and end of session; whoever comes second finds nothing.

Request ids are ``req_<n>`` with a counter that only grows. So an id that is no longer pending can
be told apart without keeping a history: one we issued is late, any other is a stranger.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator

from msgspec import Struct

MAX_PENDING_REQUESTS = 64
"""Requests we let wait for the CLI at once; the next one is refused."""

_PREFIX = "req_"
_REBUILD_ABOVE = 64
"""Dead heap entries tolerated beyond the living ones before the heap is rebuilt."""


class Deadlines:
    """Points in time under tokens, earliest first.

    Tokens are compared by equality and may be any hashable value. Times are whatever clock the
    caller uses, as long as it is one clock.
    """

    def __init__(self) -> None:
        # The truth: when each living token is due, and which heap entry stands for it.
        self._due: dict[Hashable, tuple[float, int]] = {}
        # (when, serial, token); an entry whose serial is not its token's is dead.
        self._heap: list[tuple[float, int, Hashable]] = []
        # Breaks ties in setting order and tells an entry from its token's earlier ones.
        self._serial = 0

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, token: Hashable) -> bool:
        return token in self._due

    def set(self, token: Hashable, when: float) -> None:
        """Make ``token`` due at ``when``, instead of whenever it was due before."""
        self._serial += 1
        self._due[token] = (when, self._serial)
        heapq.heappush(self._heap, (when, self._serial, token))
        if len(self._heap) > 2 * len(self._due) + _REBUILD_ABOVE:
            self._heap = [(at, serial, key) for key, (at, serial) in self._due.items()]
            heapq.heapify(self._heap)

    def clear(self, token: Hashable) -> None:
        """Forget ``token``; unknown tokens are fine."""
        self._due.pop(token, None)

    def clear_all(self) -> None:
        """Forget every token."""
        self._due.clear()
        self._heap.clear()

    @property
    def next(self) -> float | None:
        """When the earliest living token is due, or None."""
        heap = self._heap
        while heap:
            when, serial, token = heap[0]
            due = self._due.get(token)
            if due is not None and due[1] == serial:
                return when
            heapq.heappop(heap)
        return None

    def pop_expired(self, now: float) -> Iterator[Hashable]:
        """Yield and forget the tokens due at ``now`` or before, earliest first.

        Tokens may be set and cleared while this runs; one that is cleared before its turn is
        not yielded.
        """
        while (when := self.next) is not None and when <= now:
            token = heapq.heappop(self._heap)[2]
            del self._due[token]
            yield token


class PendingRequest(Struct, frozen=True):
    """One of our requests, waiting for the CLI's answer."""

    request_id: str
    #: The control subtype, as errors name it.
    operation: str
    #: The caller's handle: what the engine resolves or rejects. None: nobody waits for it.
    key: Hashable | None
    #: Seconds the caller was ready to wait, for the error's text.
    timeout: float


class Ledger:
    """Our requests that the CLI has not answered yet, in the order they were issued."""

    def __init__(self) -> None:
        self._pending: dict[str, PendingRequest] = {}
        self._by_key: dict[Hashable, str] = {}
        self._issued = 0

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def is_full(self) -> bool:
        """True when the next request has to be refused."""
        return len(self._pending) >= MAX_PENDING_REQUESTS

    @property
    def next_id(self) -> str:
        """The id the next request will have."""
        return f"{_PREFIX}{self._issued}"

    def issue(self, operation: str, key: Hashable | None, timeout: float) -> PendingRequest:
        """Enter a new request under a fresh id.

        The limit is the caller's to check first: some requests of our own making (the interrupt
        of a gentle close) must go out even when callers have filled the ledger.
        """
        request_id = self.next_id
        self._issued += 1
        entry = PendingRequest(request_id, operation, key, timeout)
        self._pending[request_id] = entry
        if key is not None:
            self._by_key[key] = request_id
        return entry

    def take(self, request_id: str) -> PendingRequest | None:
        """Remove and return the request of that id; None if it is not pending."""
        entry = self._pending.pop(request_id, None)
        if entry is not None and entry.key is not None:
            del self._by_key[entry.key]
        return entry

    def take_key(self, key: Hashable) -> PendingRequest | None:
        """Remove and return the request somebody waits for under ``key``."""
        request_id = self._by_key.get(key)
        return None if request_id is None else self.take(request_id)

    def take_callers(self) -> list[PendingRequest]:
        """Remove and return the requests somebody waits for, oldest first."""
        entries = [entry for entry in self._pending.values() if entry.key is not None]
        for entry in entries:
            self.take(entry.request_id)
        return entries

    def take_all(self) -> list[PendingRequest]:
        """Remove and return every pending request, oldest first."""
        entries = list(self._pending.values())
        self._pending.clear()
        self._by_key.clear()
        return entries

    def was_issued(self, request_id: str) -> bool:
        """True if ``request_id`` is one of ours, pending or not."""
        digits = request_id.removeprefix(_PREFIX)
        # No number of ours has more digits than the next one; longer ones int() may even refuse.
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(self._issued))
        if digits == request_id or not is_number:
            return False
        # Only the spelling we use ourselves: "req_007" is nobody's.
        return str(int(digits)) == digits and int(digits) < self._issued
