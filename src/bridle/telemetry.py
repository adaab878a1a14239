"""What an application may observe of sessions and queries while they run.

The rule of the file: an observation is a frozen record of one moment. What takes time is two of
them, a `Began` and an `Ended` that refers to it; what merely happens is one. New kinds and new
fields may come with any version, so an observer handles what it knows and ignores the rest.

Records may refer to what was said: an outcome has a text, an error a message. Whoever passes them
on decides what of that may leave the process; Bridle's log and its spans leave all of it out.
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
"""Failures that are no exception's name: nobody waited any more, it took too long, or what it was
part of ended first."""


class Observation(Struct, frozen=True, kw_only=True):
    """Anything that can be observed."""

    #: Seconds on a clock that only goes forward; for differences, not for dates.
    at: float
    #: The conversation's id; empty as long as it is not known.
    session_id: str = ""


class Began(Observation, frozen=True, kw_only=True):
    """Something that takes time began. An `Ended` follows, whatever happens."""

    #: Unique in this process.
    id: int
    #: The id of what this is a part of, where that is known and still goes on.
    parent: int | None = None


class Ended(Observation, frozen=True, kw_only=True):
    """What began is over."""

    began: Began
    #: None if it went well. Else why not, in a word: the name of an exception's class, an outcome's
    #: reason, `timed_out`, `cancelled` (nobody waited any more), `unfinished` (what it was part of
    #: ended first), or `error`.
    failure: str | None = None
    #: The exception, where there was one.
    error: BaseException | None = None

    @property
    def duration(self) -> float:
        """Seconds it took."""
        return self.at - self.began.at


# ---------------------------------------------------------------- what a CLI is asked to do


class TurnBegan(Began, frozen=True, kw_only=True):
    """A prompt left for the CLI. Observed in the context of whoever sent it."""

    #: The prompt's, as in `turn.uuid`.
    uuid: str
    #: The model that was asked for, or was used last.
    model: str | None = None


class TurnEnded(Ended, frozen=True, kw_only=True):
    """The prompt has its outcome. Prompts that were merged into one turn share one."""

    began: TurnBegan
    outcome: Outcome[Any]
    #: The model that answered.
    model: str | None = None


class QueryBegan(Began, frozen=True, kw_only=True):
    """A query is about to start its CLI. Observed in the context of whoever started it."""

    model: str | None = None


class QueryEnded(Ended, frozen=True, kw_only=True):
    """The CLI of a query is gone, or there never was one."""

    began: QueryBegan
    #: How its turns went is in here, and no failure of the query.
    results: tuple[ResultMessage, ...] = ()
    model: str | None = None


class OperationBegan(Began, frozen=True, kw_only=True):
    """The application asks something of a session. Observed in the context of whoever asks."""

    #: `start`, `send_user_message`, or the subtype of a control operation.
    operation: str


class OperationEnded(Ended, frozen=True, kw_only=True):
    """The operation is answered, refused, overdue or withdrawn."""

    began: OperationBegan


# ---------------------------------------------------------------- what goes on meanwhile


class ToolUseBegan(Began, frozen=True, kw_only=True):
    """The model uses a tool: one of the CLI, of an MCP server, or of this process."""

    #: As the model names it: `Bash`, `mcp__shop__price`.
    tool: str
    tool_use_id: str


class ToolUseEnded(Ended, frozen=True, kw_only=True):
    """The model has the tool's result."""

    began: ToolUseBegan


class CallBegan(Began, frozen=True, kw_only=True):
    """A function of the application is called.

    Observed in the very context the function will run in: context variables an observer sets here
    are the function's.
    """

    #: What it answers: `hook`, `permission`, `question`, `plan`, `elicitation`, `tool` or `mcp`.
    kind: str
    #: What it is called for, in words: "permission for Bash".
    label: str
    #: The tool concerned, where one is.
    tool: str | None = None
    tool_use_id: str | None = None


class CallEnded(Ended, frozen=True, kw_only=True):
    """The function returned, raised, or is no longer waited for."""

    began: CallBegan


class Happened(Observation, frozen=True, kw_only=True):
    """A session became ready or ended, the API was tried again, a warning was given…"""

    event: SessionEvent
    #: The id of the turn or query it happened in, where there is one.
    parent: int | None = None


# ---------------------------------------------------------------- who observes


class Telemetry(Protocol):
    """Observes sessions and queries: `SdkOptions(telemetry=...)`. One object may observe many."""

    def observe(self, observation: Observation, /) -> None:
        """Take note of something, at once: the event loop waits.

        What it raises harms nothing; it is logged, the first time.
        """
        ...


@runtime_checkable
class TracingTelemetry(Telemetry, Protocol):
    """Telemetry that a CLI is to take part in."""

    def environment(self) -> Mapping[str, str]:
        """Variables for a CLI about to start, in the context of whoever starts it.

        Where the application sets one of them itself, none is used.
        """
        ...
