"""Remember which stored sessions have no message, so that the pages of a list do not count them.

Lists leave such sessions out. A page must not read the sessions that it skips, so it can tell only
those that were read before, as when a program reads one page after the other.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable
from typing import TypeVar

_MOST = 10_000
"""How many sessions are remembered for one place. Then it begins anew."""

T = TypeVar("T", bound=Hashable)


class EmptySessions:
    """The sessions of one place that were found without a message.

    A session is known by a value that changes with its content.
    """

    def __init__(self) -> None:
        self._known: set[Hashable] = set()

    def note(self, session: Hashable, *, is_empty: bool) -> None:
        """Remember what was found when a session was read."""
        if not is_empty:
            self._known.discard(session)
            return
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known.add(session)

    def after(self, sessions: Iterable[T], offset: int) -> list[T]:
        """Return the sessions after the first ``offset`` ones that may have a message."""
        found: list[T] = []
        for session in sessions:
            if offset <= 0:
                found.append(session)
            elif session not in self._known:
                offset -= 1
        return found


IN_FILES = EmptySessions()
"""The sessions in the files of the CLI, wherever they are: their paths tell them apart."""

_stores: dict[int, EmptySessions] = {}
"""The sessions in each store, by the id of the object."""


def in_store(store: object) -> EmptySessions:
    """Return the sessions of a store. They are forgotten when the object is collected."""
    found = _stores.get(id(store))
    if found is None:
        found = EmptySessions()
        try:
            weakref.finalize(store, _stores.pop, id(store), None).atexit = False
        except TypeError:  # it cannot be referenced weakly, and its id may be used again
            return found
        _stores[id(store)] = found
    return found
