"""The limit on plain ``def`` callbacks of a session that run at once, for each kind of callback.

Further calls wait in the order in which they came. A function whose result is no longer needed (it
missed its deadline, or the CLI cancelled its request) cannot be stopped. It gives back its slot and
counts as abandoned until it returns. A lane with too many abandoned functions rejects calls.
"""

from __future__ import annotations

from collections import OrderedDict

from bridle._callbacks.prompt_contexts import Sender
from bridle._engine.actions import Call, CallKind

MAX_THREADS = 32
"""Functions of one lane that run at once."""

MAX_ABANDONED = 64
"""Abandoned functions of one lane. At this number, calls are rejected until one returns."""


class Lane:
    """The calls of some kinds of callbacks. Used on the event loop only."""

    def __init__(self) -> None:
        #: Calls that have not started, with the senders of their prompts, the oldest first.
        self.waiting: OrderedDict[int, tuple[Call, Sender]] = OrderedDict()
        #: Ids of calls that hold a slot.
        self.running: set[int] = set()
        #: Ids of abandoned calls that have not returned.
        self.abandoned: set[int] = set()
        #: Whether the loop has been asked to fill the free slots.
        self.is_due = False

    @property
    def is_full(self) -> bool:
        """Whether no slot is free.

        Running functions count towards MAX_ABANDONED too, because each may be abandoned next.
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
        """Record that the function of a call has returned."""
        self.running.discard(call_id)
        self.abandoned.discard(call_id)


def lanes() -> dict[CallKind, Lane]:
    """Return the lanes of a session, by kind of call.

    Permission callbacks may wait for a person, and tools may take long. Neither may delay a hook,
    so each group has its own lane.
    """
    hooks, people, tools = Lane(), Lane(), Lane()
    return {
        CallKind.HOOK: hooks,
        CallKind.PERMISSION: people,
        CallKind.QUESTION: people,
        CallKind.PLAN: people,
        CallKind.ELICITATION: people,
        CallKind.DIALOG: people,
        CallKind.MCP: tools,
        CallKind.TOOL: tools,
    }
