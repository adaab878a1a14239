"""Keep one record for each prompt: what the engine knows of it, until no part of it needs it."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from msgspec import Struct, field

from bridle._engine.turns.classify import LimitHit
from bridle.errors import BridleError
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


class Account(Struct, eq=False):
    """The unread items of a reader."""

    unread: int = 0
    items: int = 0
    #: Items dropped since the reader last took one.
    dropped: int = 0


class TurnAccount(Account, kw_only=True, eq=False):
    """The unread messages of a turn that the program holds."""

    uuid: str
    #: Unread bytes that are echoes of prompts.
    repeated: int = 0
    #: Whether a loop reads the turn now, and whether a loop ever read it.
    is_read: bool = False
    was_read: bool = False
    #: True once all its messages were delivered.
    has_ended: bool = False
    #: Number of tasks that wait for the outcome.
    waiting: int = 0
    #: Why messages are missing. The next loop raises it.
    lost: BridleError | None = None


class Turn(Struct, kw_only=True, eq=False):
    """What the engine knows of one prompt."""

    uuid: str
    #: Its unread messages, while the program holds the turn.
    account: TurnAccount | None = None
    #: The time the prompt was written.
    sent_at: float = 0.0
    #: The limit that the prompt has reached.
    hit: LimitHit | None = None
    #: What earlier prompts of the same answer have used.
    used: Used = _NOTHING
    #: True until its outcome has passed the limits. False if there are none.
    is_limited: bool = False
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
        #: All records, by uuid.
        self.records: dict[str, Turn] = {}
        #: The prompts without an outcome, by uuid, in the order they were sent.
        self.open: dict[str, Turn] = {}
        self._has_limits = has_limits

    def __contains__(self, uuid: str) -> bool:
        """Return True if the program has no outcome of this prompt, which may be held."""
        turn = self.records.get(uuid)
        return turn is not None and (turn.is_limited or uuid in self.open)

    def hold(self, uuid: str) -> None:
        """Note that the program holds the turn of a prompt, which is about to be written."""
        self.records.setdefault(uuid, Turn(uuid=uuid)).account = TurnAccount(uuid=uuid)

    def start(self, uuid: str, now: float) -> None:
        """Add a prompt that was written."""
        turn = Turn(uuid=uuid, sent_at=now, is_limited=self._has_limits)
        if uuid in self.records:
            turn.account = self.records[uuid].account
        self.records[uuid] = self.open[uuid] = turn

    def forget(self, turn: Turn) -> None:
        """Remove a record if no part needs it any more."""
        if not (turn.is_limited or turn.account is not None or turn.uuid in self.open):
            self.records.pop(turn.uuid, None)
