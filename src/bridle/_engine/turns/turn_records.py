"""Keep one record for each prompt: what the engine knows of it, until no part of it needs it."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from msgspec import Struct, field

from bridle._engine.turns.classify import LimitHit
from bridle.outcomes import Outcome


class Standing(Enum):
    """Where a prompt is when it reaches a limit."""

    #: Its turn runs, or may be running.
    RUNNING = auto()
    #: It waits for its turn.
    QUEUED = auto()
    #: It has its outcome.
    ENDED = auto()


class Used(Struct, frozen=True):
    """What earlier prompts of the same answer have used of its limits."""

    seconds: float = 0.0
    turns: int = 0
    usd: float = 0.0


_NOTHING = Used()


class Turn(Struct, kw_only=True, eq=False):
    """What the engine knows of one prompt."""

    uuid: str
    #: The time the prompt was written.
    sent_at: float = 0.0
    #: The limit that the prompt has reached.
    hit: LimitHit | None = None
    #: What earlier prompts of the same answer have used.
    used: Used = _NOTHING
    #: True while the limits count it.
    is_watched: bool = False
    #: The ids of the model's messages since it is watched.
    calls: set[str] = field(default_factory=set[str])
    #: True once the CLI has shown activity for it.
    is_alive: bool = False
    #: Where it was when it was ended for a limit. None if it was not.
    stopped: Standing | None = None
    #: The outcome that waits for background work, and the time its turn ended.
    held: tuple[Outcome[Any], float] | None = None


class Turns:
    """The records of the prompts of one session.

    ``has_limits``: the limits need a record until the outcome has passed them.
    """

    def __init__(self, *, has_limits: bool = False) -> None:
        #: The prompts without an outcome, by uuid, in the order they were sent.
        self.open: dict[str, Turn] = {}
        #: The prompts that the limits count, by uuid.
        self.limited: dict[str, Turn] = {}
        self._has_limits = has_limits

    def __contains__(self, uuid: str) -> bool:
        """Return True if the program has no outcome of this prompt, which may be held."""
        return uuid in self.open or uuid in self.limited

    def start(self, uuid: str, now: float) -> None:
        """Add a prompt that was written."""
        self.open[uuid] = turn = Turn(uuid=uuid, sent_at=now)
        if self._has_limits:
            self.limited[uuid] = turn
