"""Keep the points in time at which the shell has to call the engine, each under a token."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator


class Deadlines:
    """Points in time, each under a token.

    Tokens are any hashable values, compared by equality. All times must come from one clock. There
    are usually few tokens, and nearly all are cleared before they are due, so a linear search is
    cheaper than keeping them sorted.
    """

    def __init__(self) -> None:
        self._due: dict[Hashable, float] = {}
        #: The earliest time at which a token can be due. It may be too early: it still counts
        #: cleared tokens until `next` is read.
        self.soonest = math.inf

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, token: Hashable) -> bool:
        return token in self._due

    def set(self, token: Hashable, when: float) -> None:
        """Set the time at which ``token`` is due. Replaces the previous time of the token."""
        self._due[token] = when
        if when < self.soonest:
            self.soonest = when

    def clear(self, token: Hashable) -> None:
        """Remove ``token``. Ignores unknown tokens."""
        self._due.pop(token, None)
        if not self._due:
            self.soonest = math.inf

    def clear_all(self) -> None:
        """Remove every token."""
        self._due.clear()
        self.soonest = math.inf

    @property
    def next(self) -> float | None:
        """Return when the earliest token is due, or None if there is no token."""
        self.soonest = min(self._due.values(), default=math.inf)
        return self.soonest if self._due else None

    def pop_expired(self, now: float) -> Iterator[Hashable]:
        """Remove and yield the tokens due at ``now`` or before, earliest first.

        Tokens may be set and cleared during the iteration. A token that is cleared before its turn
        is not yielded.
        """
        while (when := self.next) is not None and when <= now:
            token = next(token for token, due in self._due.items() if due == when)
            del self._due[token]
            yield token
