"""Observations of sessions and queries, for spans, metrics and logs.

An observation is a frozen record of one moment. An activity has two: a `Began`, and an `Ended` that
refers to it. A single event has one. New versions may add classes and fields, so an observer should
ignore classes that it does not know.

Observations can contain user data: an outcome has a text, an error has a message. The observer
decides which data may leave the process. Bridle's log and its spans contain no user data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from bridle.events import SessionEvent
from bridle.messages import ResultMessage
from bridle.outcomes import Outcome

__all__ = [
    "Began",
    "CallBegan",
    "CallEnded",
    "Ended",
    "Happened",
    "Observation",
    "OperationBegan",
    "OperationEnded",
    "QueryBegan",
    "QueryEnded",
    "Telemetry",
    "ToolUseBegan",
    "ToolUseEnded",
    "TracingTelemetry",
    "TurnBegan",
    "TurnEnded",
]

CANCELLED = "cancelled"
TIMED_OUT = "timed_out"
UNFINISHED = "unfinished"
"""Values of `Ended.failure` besides names of exceptions: the caller cancelled it, it timed out, or
the activity that it was part of ended first."""


class Observation(Struct, frozen=True, kw_only=True):
    """Base class of observations."""

    #: Seconds on a monotonic clock. Use it for differences, not for dates.
    at: float
    #: Id of the session. Empty until it is known.
    session_id: str = ""


class Began(Observation, frozen=True, kw_only=True):
    """An activity began. An `Ended` always follows."""

    #: Unique in this process.
    id: int
    #: Id of the running activity that this one is part of, or None.
    parent: int | None = None


class Ended(Observation, frozen=True, kw_only=True):
    """An activity ended."""

    began: Began
    #: None if it succeeded. Otherwise the name of an exception class, the reason of an outcome,
    #: `timed_out`, `cancelled` (by the caller), `unfinished` (the activity that it was part of
    #: ended first), or `error`.
    failure: str | None = None
    #: The exception, or None.
    error: BaseException | None = None

    @property
    def duration(self) -> float:
        """Return the duration in seconds."""
        return self.at - self.began.at


# ---------------------------------------------------------------- turns, queries, operations


class TurnBegan(Began, frozen=True, kw_only=True):
    """A prompt was sent to the CLI. Observed in the context (contextvars) of the sender."""

    #: UUID of the prompt, as in `turn.uuid`.
    uuid: str
    #: The requested model, or the one that was used last.
    model: str | None = None


class TurnEnded(Ended, frozen=True, kw_only=True):
    """The turn of a prompt ended. Prompts that were merged into one turn share an outcome."""

    began: TurnBegan
    outcome: Outcome[Any]
    #: The model that answered.
    model: str | None = None


class QueryBegan(Began, frozen=True, kw_only=True):
    """A query is about to start its CLI. Observed in the context (contextvars) of the caller."""

    model: str | None = None


class QueryEnded(Ended, frozen=True, kw_only=True):
    """The CLI of a query exited, or did not start."""

    began: QueryBegan
    #: The results of its turns. A failed turn is not a failure of the query.
    results: tuple[ResultMessage, ...] = ()
    model: str | None = None


class OperationBegan(Began, frozen=True, kw_only=True):
    """The program started an operation. Observed in the context (contextvars) of the caller."""

    #: `start`, `send_user_message`, or the subtype of a control operation.
    operation: str


class OperationEnded(Ended, frozen=True, kw_only=True):
    """The operation succeeded, was rejected, timed out or was cancelled."""

    began: OperationBegan


# ---------------------------------------------------------------- tools, callbacks, events


class ToolUseBegan(Began, frozen=True, kw_only=True):
    """The model calls a tool: of the CLI, of an MCP server, or of this process."""

    #: Name of the tool, such as `Bash` or `mcp__shop__price`.
    tool: str
    tool_use_id: str


class ToolUseEnded(Ended, frozen=True, kw_only=True):
    """The result of the tool was sent to the model."""

    began: ToolUseBegan


class CallBegan(Began, frozen=True, kw_only=True):
    """Bridle is about to call a callback or a tool of the program.

    Observed in the context (contextvars) in which the function will run: the function sees context
    variables that an observer sets here.
    """

    #: Kind of function: `hook`, `permission`, `question`, `plan`, `elicitation`, `dialog`, `tool`
    #: or `mcp`.
    kind: str
    #: What the function is called for, such as "permission for Bash".
    label: str
    #: Name of the tool, or None.
    tool: str | None = None
    tool_use_id: str | None = None


class CallEnded(Ended, frozen=True, kw_only=True):
    """The function returned or raised, or Bridle no longer waits for it."""

    began: CallBegan


class Happened(Observation, frozen=True, kw_only=True):
    """A session event: the session became ready or ended, an API retry, a warning, and so on."""

    event: SessionEvent
    #: Id of the turn or query in which it happened, or None.
    parent: int | None = None


# ---------------------------------------------------------------- observers


class Telemetry(Protocol):
    """An observer: `SdkOptions(telemetry=...)`. Several sessions can share one."""

    def observe(self, observation: Observation, /) -> None:
        """Receive an observation. Return quickly: this blocks the event loop.

        An exception does not affect the session. Bridle logs the first one.
        """
        ...


@runtime_checkable
class TracingTelemetry(Telemetry, Protocol):
    """Telemetry that passes its trace context to the CLI."""

    def environment(self) -> Mapping[str, str]:
        """Return environment variables for a CLI that is about to start.

        Called in the context (contextvars) of the caller. If the program sets one of these
        variables itself, Bridle uses none of the returned ones.
        """
        ...
