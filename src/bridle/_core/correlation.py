"""Requests in flight, and the one place that keeps deadlines.

* :class:`Deadlines` are points in time, each under a token. Setting a token again moves it,
  clearing it forgets it.
* :class:`Ledger` pairs our requests with their answers. An entry leaves the ledger on the first
  of answer, deadline, withdrawal and end of session; whoever comes second finds nothing.

Request ids are ``req_<n>`` with a counter that only grows. So an id that is no longer pending can
be told apart without keeping a history: one we issued is late, any other is a stranger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping

from msgspec import Struct

MAX_PENDING_REQUESTS = 64
"""Requests we let wait for the CLI at once; the next one is refused."""

_PREFIX = "req_"


class Deadlines:
    """Points in time under tokens.

    Tokens are compared by equality and may be any hashable value. Times are whatever clock the
    caller uses, as long as it is one clock. There are few at a time as a rule, and nearly all are
    cleared before they are due: looking through them is cheaper than keeping them in order.
    """

    def __init__(self) -> None:
        self._due: dict[Hashable, float] = {}
        #: Nothing is due before this. It may be too early: until somebody asks for `next`, it
        #: still counts what was cleared.
        self.soonest = math.inf

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, token: Hashable) -> bool:
        return token in self._due

    def set(self, token: Hashable, when: float) -> None:
        """Make ``token`` due at ``when``, instead of whenever it was due before."""
        self._due[token] = when
        if when < self.soonest:
            self.soonest = when

    def clear(self, token: Hashable) -> None:
        """Forget ``token``; unknown tokens are fine."""
        self._due.pop(token, None)
        if not self._due:
            self.soonest = math.inf

    def clear_all(self) -> None:
        """Forget every token."""
        self._due.clear()
        self.soonest = math.inf

    @property
    def next(self) -> float | None:
        """When the earliest token is due, or None."""
        self.soonest = min(self._due.values(), default=math.inf)
        return self.soonest if self._due else None

    def pop_expired(self, now: float) -> Iterator[Hashable]:
        """Yield and forget the tokens due at ``now`` or before, earliest first.

        Tokens may be set and cleared while this runs; one that is cleared before its turn is
        not yielded.
        """
        while (when := self.next) is not None and when <= now:
            token = next(token for token, due in self._due.items() if due == when)
            del self._due[token]
            yield token


Fields = Mapping[str, object]
"""The fields of a request, without its subtype."""

Then = Callable[[object], None] | None
"""Takes the payload of an answer, or the error in its place."""


class Request(Struct, frozen=True):
    """One of our requests: it waits for the session first, if it has to, then for its answer."""

    #: The caller's handle: what the engine resolves or rejects. None: nobody waits for it.
    key: Hashable | None
    #: The control subtype, as errors name it.
    operation: str
    fields: Fields
    #: Seconds the CLI has for its answer.
    timeout: float
    #: Called with the payload of the answer, or with the error, where the engine itself asks.
    then: Then = None


class Ledger:
    """Our requests that the CLI has not answered yet."""

    def __init__(self) -> None:
        #: By id, in the order they were issued.
        self.pending: dict[str, Request] = {}
        #: The id the next request will have.
        self.next_id = f"{_PREFIX}0"
        self._issued = 0

    def issue(self, request: Request) -> str:
        """Enter a new request under a fresh id, which is returned.

        The limit is the caller's to check first: some requests of our own making (the interrupt
        of a gentle close) must go out even when callers have filled the ledger.
        """
        request_id = self.next_id
        self.pending[request_id] = request
        self._issued += 1
        self.next_id = f"{_PREFIX}{self._issued}"
        return request_id

    def id_for(self, key: Hashable) -> str | None:
        """The request somebody waits for under ``key``."""
        return next((id for id, request in self.pending.items() if request.key == key), None)

    def was_issued(self, request_id: str) -> bool:
        """True if ``request_id`` is one of ours, pending or not."""
        digits = request_id.removeprefix(_PREFIX)
        # No number of ours has more digits than the next one; longer ones int() may even refuse.
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(self._issued))
        if digits == request_id or not is_number:
            return False
        # Only the spelling we use ourselves: "req_007" is nobody's.
        return str(int(digits)) == digits and int(digits) < self._issued
