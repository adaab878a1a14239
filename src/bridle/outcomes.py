"""How a turn ended: an `Outcome` with exactly one `OutcomeReason`.

Only the reason `completed` is a success. Every other reason has an error class. This module defines
the reasons; the core decides which one a turn gets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Protocol, cast

import msgspec

from bridle import errors, events
from bridle.approvals import PendingApproval
from bridle.errors import OptionsError, OutcomeError, ProcessInfo
from bridle.events import ApiRetry
from bridle.messages import DeferredToolUse, Message, ModelUsage, ResultMessage, Usage

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The default allows plain `Outcome` in annotations, and calls without an `output_type`. Only
    # type checkers support it so far.
    Output = TypeVar("Output", default=Any)
    _Output_co = TypeVar("_Output_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    Output = TypeVar("Output")
    _Output_co = TypeVar("_Output_co", covariant=True)

__all__ = [
    "OUTCOME_ERRORS",
    "CompletedOutcome",
    "Outcome",
    "OutcomeReason",
    "SessionUsage",
    "TokenUsage",
    "TurnUsage",
]


class OutcomeReason(StrEnum):
    """Why a turn ended. Every turn has exactly one reason."""

    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    MAX_TURNS = "max_turns"
    MAX_BUDGET = "max_budget"
    API_ERROR = "api_error"
    RATE_LIMITED = "rate_limited"
    AUTH_FAILED = "auth_failed"
    REFUSED = "refused"
    PROMPT_BLOCKED = "prompt_blocked"
    STOPPED_BY_HOOK = "stopped_by_hook"
    TOOL_DEFERRED = "tool_deferred"
    OUTPUT_MISSING = "output_missing"
    OUTPUT_INVALID = "output_invalid"
    LIMIT_FIRST_EVENT = "limit_first_event"
    LIMIT_IDLE = "limit_idle"
    LIMIT_TOTAL = "limit_total"
    LIMIT_TURNS = "limit_turns"
    LIMIT_USD = "limit_usd"
    EXECUTION_ERROR = "execution_error"
    MESSAGE_LOST = "message_lost"
    CLI_EXITED = "cli_exited"
    STOPPED = "stopped"
    START_FAILED = "start_failed"


#: The error class of each reason except `completed`.
OUTCOME_ERRORS: Mapping[OutcomeReason, type[OutcomeError]] = MappingProxyType(
    {
        OutcomeReason.INTERRUPTED: errors.TurnInterruptedError,
        OutcomeReason.MAX_TURNS: errors.MaxTurnsError,
        OutcomeReason.MAX_BUDGET: errors.MaxBudgetError,
        OutcomeReason.API_ERROR: errors.ApiError,
        OutcomeReason.RATE_LIMITED: errors.RateLimitedError,
        OutcomeReason.AUTH_FAILED: errors.AuthFailedError,
        OutcomeReason.REFUSED: errors.RefusedError,
        OutcomeReason.PROMPT_BLOCKED: errors.PromptBlockedError,
        OutcomeReason.STOPPED_BY_HOOK: errors.StoppedByHookError,
        OutcomeReason.TOOL_DEFERRED: errors.ToolDeferredError,
        OutcomeReason.OUTPUT_MISSING: errors.OutputMissingError,
        OutcomeReason.OUTPUT_INVALID: errors.OutputInvalidError,
        OutcomeReason.LIMIT_FIRST_EVENT: errors.FirstEventLimitError,
        OutcomeReason.LIMIT_IDLE: errors.IdleLimitError,
        OutcomeReason.LIMIT_TOTAL: errors.TotalLimitError,
        OutcomeReason.LIMIT_TURNS: errors.TurnsLimitError,
        OutcomeReason.LIMIT_USD: errors.UsdLimitError,
        OutcomeReason.EXECUTION_ERROR: errors.ExecutionError,
        OutcomeReason.MESSAGE_LOST: errors.MessageLostError,
        OutcomeReason.CLI_EXITED: errors.CliExitedError,
        OutcomeReason.STOPPED: errors.TurnStoppedError,
        OutcomeReason.START_FAILED: errors.StartFailedError,
    }
)


_RETRYABLE = frozenset({OutcomeReason.RATE_LIMITED, OutcomeReason.CLI_EXITED})

_API_REASONS = frozenset(
    {OutcomeReason.API_ERROR, OutcomeReason.RATE_LIMITED, OutcomeReason.AUTH_FAILED}
)

# Statuses of the API below 500 that say nothing about the request itself: timeout, conflict, rate.
_PASSING = frozenset({408, 409, 429})

# The CLI's names for failures of the API itself. A lost connection is a `server_error`.
_PASSING_ERRORS = frozenset({"overloaded", "rate_limit", "server_error"})


class Clock(Protocol):
    """A clock that can wait. This module does not import one; `bind_clock` sets it."""

    def until(self, moment: float) -> Awaitable[None]:
        """Return an awaitable that finishes at that Unix time (seconds)."""
        ...

    def until_sync(self, moment: float) -> None:
        """Block until that Unix time (seconds)."""
        ...

    def in_seconds(self, seconds: float) -> float:
        """Return the Unix time that is `seconds` from now."""
        ...


_make_clock: Callable[[], Clock]


def bind_clock(clock: Callable[[], Clock]) -> None:
    """Set the function that returns the clock. `wait_for_reset` calls it."""
    global _make_clock
    _make_clock = clock


# The fields that repr shows, in this order, unless they are empty.
_SHOWN = (
    "detail",
    "text",
    "output",
    "cost_usd",
    "num_turns",
    "api_retries",
    "session_id",
    "merged_with",
)


class Outcome(msgspec.Struct, Generic[_Output_co], frozen=True, kw_only=True):
    """How a turn ended, with everything that is known about it.

    The type parameter is the requested `output_type`. Without one, `output` is None.
    """

    reason: OutcomeReason
    #: What failed, as text. Empty if the turn completed.
    detail: str = ""
    #: The last text block of the model, also if the turn failed later. It never contains the CLI's
    #: error text (see `detail`) or the text of a refused answer.
    text: str = ""
    #: The structured output as `output_type`. None if it was not requested or is invalid.
    output: _Output_co | None = None
    #: The structured output as the CLI sent it.
    structured_output: object = None
    #: The errors that the CLI listed in its result.
    errors: tuple[str, ...] = ()
    #: UUID of the prompt. Pass it to `rewind_files`.
    uuid: str | None = None
    #: UUIDs of other prompts that the CLI merged into the same turn. They share this outcome.
    merged_with: tuple[str, ...] = ()
    session_id: str | None = None
    #: Cost of this turn in US dollars, or None if the CLI exited before reporting it. With
    #: `Limits.usd`, a turn whose CLI exited has the cost that the CLI reported last.
    cost_usd: float | None = None
    #: Tokens of the main agent in this turn. `session.usage` also counts subagents.
    usage: Usage | None = None
    num_turns: int = 0
    #: Calls of the model in this turn, and tool calls that it made. Both include subagents.
    model_calls: int = 0
    tool_calls: int = 0
    #: Calls of the model by the main agent, without subagents. `Limits.turns` limits these.
    main_model_calls: int = 0
    #: Seconds from the prompt to this outcome.
    duration: float = 0.0
    #: The CLI's result message, or None.
    result: ResultMessage | None = None
    #: All messages of the turn, if `run` was called with `keep_messages=True`.
    messages: tuple[Message, ...] | None = None
    #: The tool call that waits for a decision, or None. Pass it to `Agent.resume`. If a resumed
    #: turn failed before the decision took effect, it is the same call, which still waits.
    pending: PendingApproval | None = None
    #: The tool call that a hook deferred, as the CLI describes it, or None.
    deferred_tool_use: DeferredToolUse | None = None
    #: The CLI's name for the API error that the last answer of the model is, such as
    #: `server_error`, `invalid_request` or `max_output_tokens`. None if it is not an error.
    api_error: str | None = None
    #: When the rate limit resets: Unix time in seconds, or None.
    resets_at: float | None = None
    #: How often the CLI repeated a failed request to the model API in this turn.
    api_retries: int = 0
    #: The last retry, with its HTTP status or kind of failure and its delay.
    last_retry: ApiRetry | None = None
    process: ProcessInfo | None = None

    @property
    def ok(self) -> bool:
        """Return True if the turn completed."""
        return self.reason is OutcomeReason.COMPLETED

    @property
    def api_status(self) -> int | None:
        """Return the HTTP status of the API error that ended the turn, or None."""
        if self.reason not in _API_REASONS or self.result is None:
            return None
        return self.result.api_error_status

    @property
    def retryable(self) -> bool:
        """Return True if the same prompt may succeed later.

        That is the case if the API was overloaded, limited the rate or could not be reached, or if
        the CLI crashed. It is False for errors that would come again, such as an invalid request.
        """
        if self.reason is not OutcomeReason.API_ERROR:
            return self.reason in _RETRYABLE
        status = self.api_status
        if status is None:  # there was no response
            return self.api_error in _PASSING_ERRORS
        return status in _PASSING or status >= 500

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the CLI, or None. It is negative for a signal."""
        return self.process.exit_code if self.process else None

    @property
    def stderr_tail(self) -> str:
        """Return the last lines that the CLI wrote to stderr, or an empty text."""
        return self.process.stderr_tail if self.process else ""

    def raise_for_reason(self) -> CompletedOutcome[_Output_co]:
        """Return this outcome if the turn completed. Otherwise raise the error of the reason.

        Raises:
            OutcomeError: the turn failed. The subclass depends on the reason (`OUTCOME_ERRORS`).
        """
        if self.ok:
            return cast("CompletedOutcome[_Output_co]", self)
        raise OUTCOME_ERRORS[self.reason](self)

    def wait_for_reset(self, default: float | None = None) -> Awaitable[None]:
        """Wait until the rate limit resets (`resets_at`). Await the result.

        Args:
            default: seconds to wait if `resets_at` is None or in the past. Without it, a time in
                the past returns at once.

        Raises:
            OptionsError: `resets_at` and `default` are both None.

        Cancellation: the wait can be cancelled at any time.
        """
        return _make_clock().until(self._reset(default))

    def wait_for_reset_sync(self, default: float | None = None) -> None:
        """Block until the rate limit resets: `wait_for_reset` for code without async."""
        _make_clock().until_sync(self._reset(default))

    def _reset(self, default: float | None) -> float:
        moment, clock = self.resets_at, _make_clock()
        if moment is not None and (default is None or moment > clock.in_seconds(0.0)):
            return moment
        if default is None:
            raise OptionsError(
                "default",
                f"is missing, and this outcome ({self.reason}) does not say when the limit resets",
                fix="Pass the seconds to wait: wait_for_reset(60).",
            )
        return clock.in_seconds(default)

    def __str__(self) -> str:
        words = self.text if self.ok else self.detail
        return f"{self.reason}: {words}" if words else str(self.reason)

    def __repr__(self) -> str:
        shown = [f"{name}={value!r}" for name in _SHOWN if (value := getattr(self, name))]
        return f"Outcome({', '.join([str(self.reason), *shown])})"


if TYPE_CHECKING:

    class CompletedOutcome(Outcome[_Output_co], Generic[_Output_co], frozen=True, kw_only=True):
        """An outcome that is ok, for type checkers: a requested `output` is not None."""

        output: _Output_co = cast("Any", None)
else:
    CompletedOutcome = Outcome


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and cost, by model."""

    #: By the CLI's name of the model. Subagents and background tasks are included.
    models: Mapping[str, ModelUsage] = {}
    #: US dollars by the CLI's own count. None before the first result, or if it has no cost.
    cost_usd: float | None = None

    @property
    def input_tokens(self) -> int:
        """Return the input tokens of all models. Tokens of the prompt cache are not included."""
        return sum(usage.input_tokens for usage in self.models.values())

    @property
    def output_tokens(self) -> int:
        """Return the output tokens of all models."""
        return sum(usage.output_tokens for usage in self.models.values())

    @property
    def cache_read_input_tokens(self) -> int:
        """Return the tokens that all models read from the prompt cache."""
        return sum(usage.cache_read_input_tokens for usage in self.models.values())

    @property
    def cache_creation_input_tokens(self) -> int:
        """Return the tokens that all models wrote to the prompt cache."""
        return sum(usage.cache_creation_input_tokens for usage in self.models.values())


class TurnUsage(TokenUsage, frozen=True, kw_only=True):
    """What was used between two results: by a turn, and by background tasks since the last one."""

    #: UUIDs of the prompts of the turn. Empty if the CLI ran it by itself, for a background task.
    prompts: tuple[str, ...] = ()


class SessionUsage(TokenUsage, frozen=True, kw_only=True):
    """What a session has used since it started. A resumed conversation starts at zero.

    `models` includes the answers of the turn that runs, each once. Their output tokens and their
    cost are known when the result arrives.
    """

    #: The newest 256 turns, in order. The totals include older ones.
    turns: tuple[TurnUsage, ...] = ()


# The annotations of `OutcomeError` and `TurnEnded` name this class. Their modules cannot import it.
errors.__dict__["Outcome"] = Outcome
events.__dict__["Outcome"] = Outcome
