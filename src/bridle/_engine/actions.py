"""Define the actions that the engine returns. The shell performs them in order.

Every input of the engine returns a list of actions. Actions are plain records, so tests can
compare and print them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
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
    """Close the CLI's standard input after everything written so far has been sent."""


class Terminate(Struct, frozen=True):
    """Send SIGTERM to the whole process tree."""


class Kill(Struct, frozen=True):
    """Send SIGKILL to the whole process tree."""


Reader = int | str
"""The owner of a queue: a subscription (its number) or a turn (the uuid of its prompt)."""


class Deliver(Struct):
    """Put messages into the queues of ``readers``.

    ``turns`` are the uuids of the prompts that the messages belong to. It is empty for messages
    that belong to no prompt of ours, such as the follow-up turn of a background task. ``size`` is
    the number of bytes of the messages' lines. Both grow while the action is in the outbox.
    """

    messages: list[Message]
    turns: tuple[str, ...]
    size: int
    readers: tuple[Reader, ...] = ()


class Attribute(Struct):
    """Put messages that were delivered without a turn into the queues of their turns."""

    messages: list[Message]
    turns: tuple[str, ...]
    size: int = 0
    readers: tuple[Reader, ...] = ()


class Discard(Struct, frozen=True):
    """Clear the queue of a reader. The engine puts nothing more into it."""

    reader: Reader


class DropOldest(Struct, frozen=True):
    """Drop the oldest item of a queue. The reader takes ``notice`` next."""

    reader: Reader
    notice: SessionEvent


class PauseReading(Struct, frozen=True):
    """Stop reading the CLI's output. It stays in the pipe."""


class ResumeReading(Struct, frozen=True):
    """Read the CLI's output again."""


class TurnStarted(Struct, frozen=True):
    """Report that a prompt was written. It gets exactly one outcome."""

    uuid: str


class TurnEnded(Struct, frozen=True):
    """Report the outcome of a prompt."""

    uuid: str
    outcome: Outcome


class Resolve(Struct, frozen=True):
    """Resolve the operation that the caller awaits under ``key``."""

    key: Hashable
    value: object


class Reject(Struct, frozen=True):
    """Fail the operation that the caller awaits under ``key``."""

    key: Hashable
    error: BridleError


class CallKind(StrEnum):
    """The kind of request that a call is for. It decides how the callback is run and reported."""

    HOOK = "hook"
    PERMISSION = "permission"
    QUESTION = "question"
    PLAN = "plan"
    ELICITATION = "elicitation"
    DIALOG = "dialog"
    MCP = "mcp"
    TOOL = "tool"


class Call(Struct, frozen=True):
    """Call a function of the user and report its serialised result with ``call_id``.

    The call may have to wait before it starts. The deadline starts when the shell reports that the
    call has started. When it passes, the engine emits :class:`CancelCall` and ignores results that
    are reported later.
    """

    call_id: int
    kind: CallKind
    #: The function itself. The engine only passes it on.
    callback: Any
    #: Its one argument.
    argument: Any
    #: A description of the call for logs: "PreToolUse hook of Bash".
    label: str
    #: The id of the request that it answers.
    request_id: str = ""
    #: Seconds that it may take once it has started. None means no limit.
    timeout: float | None = None
    #: The request as the CLI sent it. The result is serialised for it.
    subject: Any = None
    #: The uuid of the prompt that the CLI works on. None if it works on a turn of its own.
    prompt: str | None = None
    #: The name of the function, for warnings. Empty if the label is enough.
    name: str = ""

    @property
    def who(self) -> str:
        """Return what the call is for and the name of its callback, for warnings."""
        return f"{self.label} ({self.name})" if self.name else self.label


class CancelCall(Struct, frozen=True):
    """Cancel this call if possible. The engine no longer needs its result."""

    call_id: int
    #: True if the call is cancelled because it missed its deadline.
    timed_out: bool = False


class Publish(Struct, frozen=True):
    """Send an event to the subscribers of events."""

    event: SessionEvent


class Warn(Struct, frozen=True):
    """Log a warning, and publish it if it is serious. The session goes on."""

    kind: WarningKind
    detail: str


class Mirror(Struct, frozen=True):
    """Copy entries that the CLI added to the transcript file ``path`` to the session store.

    ``size`` is the number of bytes of the line. An empty path says that a line with entries was
    lost, so they have to be read from the file.
    """

    path: str
    entries: Sequence[Mapping[str, Any]]
    size: int


class SessionNamed(Struct, frozen=True):
    """Lock the session that the CLI writes from now on. Its id was not known before."""

    session_id: str


class Finished(Struct, frozen=True):
    """Report that the process has exited and everything is settled. This is the last action."""


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
    | Mirror
    | SessionNamed
    | Finished
)


class Outbox:
    """Collect the actions of one input.

    Consecutive messages of the same turn share one :class:`Deliver`. A chunk of output often holds
    hundreds of messages, and the cost of reading is the work done for each of them.
    """

    __slots__ = ("actions", "emit")

    def __init__(self) -> None:
        #: The actions so far.
        self.actions: list[Action] = []
        #: Adds an action.
        self.emit: Callable[[Action], None] = self.actions.append

    def deliver(self, messages: list[Message], turns: tuple[str, ...], size: int) -> None:
        """Add the delivery of messages whose lines have ``size`` bytes. Keeps the list."""
        last = self.actions[-1] if self.actions else None
        if type(last) is Deliver and last.turns is turns:
            last.messages += messages
            last.size += size
        else:
            self.actions.append(Deliver(messages, turns, size))

    def take(self) -> list[Action]:
        """Remove and return the actions so far."""
        actions = self.actions.copy()
        self.actions.clear()
        return actions
