"""The points in time at which the engine has to be called, each under a token."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator


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
