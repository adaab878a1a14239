"""How many plain functions of a session run at once: a bounded number of threads for each kind.

Further calls wait in the order they came. A function that nobody waits for any more (it outlived
its deadline, or the CLI withdrew its request) cannot be stopped: it gives its slot back and is
counted as abandoned until it returns. Too many of those, and the lane takes no call any more.
"""

from __future__ import annotations

from collections import OrderedDict

from bridle._core.actions import Call, CallKind

MAX_THREADS = 32
"""Functions of one kind that run at once."""

MAX_ABANDONED = 64
"""Abandoned functions of one kind; at this number further calls are refused until one returns."""


class Lane:
    """The calls of one kind. Used on the event loop only."""

    def __init__(self) -> None:
        #: Calls that have not started, the oldest first.
        self.waiting: OrderedDict[int, Call] = OrderedDict()
        #: Ids of calls that hold a slot.
        self.running: set[int] = set()
        #: Ids of calls that nobody waits for and that have not returned.
        self.abandoned: set[int] = set()
        #: Whether the loop has been asked to fill the free slots.
        self.is_due = False

    @property
    def is_full(self) -> bool:
        """Whether no slot is free.

        A function that runs may be abandoned next, so it counts towards that bound as well.
        """
        threads = len(self.running) + len(self.abandoned)
        return len(self.running) >= MAX_THREADS or (bool(self.running) and threads >= MAX_ABANDONED)

    @property
    def is_exhausted(self) -> bool:
        """Whether too many functions were abandoned to start another one."""
        return len(self.abandoned) >= MAX_ABANDONED

    def abandon(self, call_id: int) -> None:
        """Give back the slot of a call whose function goes on."""
        self.running.remove(call_id)
        self.abandoned.add(call_id)

    def returned(self, call_id: int) -> None:
        """Give back whatever a function held that has returned."""
        self.running.discard(call_id)
        self.abandoned.discard(call_id)


def lanes() -> dict[CallKind, Lane]:
    """Return the lanes of a session, by kind of call.

    Permission functions may wait for a person, and tools may take long. Neither may hold up a
    hook, so each group has its own lane.
    """
    hooks, people, tools = Lane(), Lane(), Lane()
    return {
        CallKind.HOOK: hooks,
        CallKind.PERMISSION: people,
        CallKind.QUESTION: people,
        CallKind.PLAN: people,
        CallKind.ELICITATION: people,
        CallKind.MCP: tools,
        CallKind.TOOL: tools,
    }
