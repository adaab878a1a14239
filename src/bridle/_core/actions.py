"""What the engine wants done. The shell performs these in order and decides nothing.

Every input of the engine returns a list of actions. They are plain records: comparing and
printing them is all a test needs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import StrEnum
from typing import Any

from msgspec import Struct

from bridle.errors import BridleError
from bridle.events import SessionEvent, WarningKind
from bridle.messages import Message
from bridle.outcomes import Outcome


class Write(Struct, frozen=True):
    """Append these bytes to the CLI's standard input. They are always whole lines."""

    data: bytes


class EndInput(Struct, frozen=True):
    """Close the CLI's standard input once everything written so far has left."""


class Terminate(Struct, frozen=True):
    """Ask the whole process tree to end (SIGTERM)."""


class Kill(Struct, frozen=True):
    """End the whole process tree (SIGKILL)."""


Reader = int | str
"""Who has a queue: a subscription, by its number, or a turn, by the uuid of its prompt."""


class Deliver(Struct):
    """Put messages into the queues of ``readers``.

    ``turns`` are the uuids of the prompts that the messages belong to; it is empty for what belongs
    to none of ours, such as the follow-up turn of a background task. ``size`` counts the bytes of
    the messages' lines. Both grow as long as the action is in the outbox.
    """

    messages: list[Message]
    turns: tuple[str, ...]
    size: int
    readers: tuple[Reader, ...] = ()


class Attribute(Struct):
    """Put messages that were delivered to no turn earlier into the queues of their turns."""

    messages: list[Message]
    turns: tuple[str, ...]
    size: int = 0
    readers: tuple[Reader, ...] = ()


class Discard(Struct, frozen=True):
    """Clear the queue of a reader. Nothing is put into it any more."""

    reader: Reader


class DropOldest(Struct, frozen=True):
    """Drop the oldest item of a queue. ``notice`` is what its reader takes next instead."""

    reader: Reader
    notice: SessionEvent


class PauseReading(Struct, frozen=True):
    """Leave the CLI's output in its pipe."""


class ResumeReading(Struct, frozen=True):
    """Read the CLI's output again."""


class TurnStarted(Struct, frozen=True):
    """A prompt is on its way; from here on it is certain to get an outcome."""

    uuid: str


class TurnEnded(Struct, frozen=True):
    """The one outcome of a prompt."""

    uuid: str
    outcome: Outcome


class Resolve(Struct, frozen=True):
    """The operation somebody waits for under ``key`` succeeded."""

    key: Hashable
    value: object


class Reject(Struct, frozen=True):
    """The operation somebody waits for under ``key`` failed."""

    key: Hashable
    error: BridleError


class CallKind(StrEnum):
    """The kind of request that a call is for. It decides how the callback is run and reported."""

    HOOK = "hook"
    PERMISSION = "permission"
    QUESTION = "question"
    PLAN = "plan"
    ELICITATION = "elicitation"
    MCP = "mcp"
    TOOL = "tool"


class Call(Struct, frozen=True):
    """Call a function of the user and report its serialised result with ``call_id``.

    The call may have to wait before it starts. The engine keeps its deadline from the moment it is
    told that the call has started, withdraws it with :class:`CancelCall` when that passes, and
    ignores what is reported afterwards.
    """

    call_id: int
    kind: CallKind
    #: The function itself; opaque to the engine.
    callback: Any
    #: Its one argument.
    argument: Any
    #: What it is called for, in words, for logs: "PreToolUse hook of Bash".
    label: str
    #: The id of the request that it answers.
    request_id: str = ""
    #: Seconds it may take once it has started; None: no limit.
    timeout: float | None = None
    #: The request as the CLI sent it. The result is serialised for it.
    subject: Any = None
    #: The uuid of the prompt that the CLI works on; None for work of its own.
    prompt: str | None = None
    #: The name of the function, for warnings; empty where the label is enough.
    name: str = ""

    @property
    def who(self) -> str:
        """What the call is for and the name of its callback, for warnings."""
        return f"{self.label} ({self.name})" if self.name else self.label


class CancelCall(Struct, frozen=True):
    """Nobody waits for this call any more. Cancel it if it can be cancelled."""

    call_id: int
    #: Whether that is because it missed its deadline.
    timed_out: bool = False


class Publish(Struct, frozen=True):
    """Tell the subscribers of events."""

    event: SessionEvent


class Warn(Struct, frozen=True):
    """Something was off and the session goes on: log it, and publish it if it is serious."""

    kind: WarningKind
    detail: str


class Finished(Struct, frozen=True):
    """The process is gone and everything is settled. No further action will come."""


Action = (
    Write
    | EndInput
    | Terminate
    | Kill
    | Deliver
    | Attribute
    | Discard
    | DropOldest
    | PauseReading
    | ResumeReading
    | TurnStarted
    | TurnEnded
    | Resolve
    | Reject
    | Call
    | CancelCall
    | Publish
    | Warn
    | Finished
)


class Outbox:
    """The actions of one input, in the making.

    Messages that follow one another in the same turn share one :class:`Deliver`: a chunk of output
    often holds hundreds, and what is done for each of them is what reading costs.
    """

    __slots__ = ("_actions", "emit")

    def __init__(self) -> None:
        self._actions: list[Action] = []
        #: Adds an action.
        self.emit: Callable[[Action], None] = self._actions.append

    def deliver(self, messages: list[Message], turns: tuple[str, ...], size: int) -> None:
        """Add the delivery of messages, whose lines have that size; the list is kept."""
        last = self._actions[-1] if self._actions else None
        if type(last) is Deliver and last.turns is turns:
            last.messages += messages
            last.size += size
        else:
            self._actions.append(Deliver(messages, turns, size))

    def __len__(self) -> int:
        return len(self._actions)

    def take(self) -> list[Action]:
        """Remove and return the actions so far."""
        actions = self._actions.copy()
        self._actions.clear()
        return actions
