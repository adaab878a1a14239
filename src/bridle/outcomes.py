"""How a turn ended: one `OutcomeReason`, always, inside one `Outcome`.

The set of reasons is closed and only `completed` is a success. Which reason a turn gets is decided
by the core; here is the vocabulary, and the error class that speaks for each failing reason.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Protocol, cast

import msgspec

from bridle import errors
from bridle.errors import OptionsError, OutcomeError, ProcessInfo
from bridle.events import ApiRetry
from bridle.messages import DeferredToolUse, Message, ResultMessage, Usage

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The default is what lets annotations say plain `Outcome`; only type checkers know it yet.
    _Output_co = TypeVar("_Output_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    _Output_co = TypeVar("_Output_co", covariant=True)

__all__ = ["OUTCOME_ERRORS", "CompletedOutcome", "Outcome", "OutcomeReason"]


class OutcomeReason(StrEnum):
    """Why a turn is over. Every turn gets exactly one."""

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


#: The error class of every reason but `completed`.
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
    }
)


class Clock(Protocol):
    """What can wait. This module knows no time, so the package lends it one (`bind_clock`)."""

    def until(self, moment: float) -> Awaitable[None]:
        """Return something to await until that moment of unix time."""
        ...

    def until_sync(self, moment: float) -> None:
        """Block until that moment of unix time."""
        ...

    def in_seconds(self, seconds: float) -> float:
        """The moment that many seconds from now."""
        ...


_lent: list[Callable[[], Clock]] = []


def bind_clock(clock: Callable[[], Clock]) -> None:
    """Lend every outcome a clock; it is asked for when somebody waits."""
    _lent[:] = [clock]


# What repr shows, in this order and only where there is something to show.
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
    """The one ending of a turn, with everything that is known about it.

    The type parameter is the `output_type` that was asked for; without one `output` stays None.
    """

    reason: OutcomeReason
    #: The cause of a failure in words; empty when completed.
    detail: str = ""
    #: What the model said: its last text block, also if the turn failed after it. Never the CLI's
    #: error text (see `detail`), nor text of an answer that was refused.
    text: str = ""
    #: The structured output, validated and converted; None if none was asked for or none fits.
    output: _Output_co | None = None
    #: The structured output as the CLI sent it.
    structured_output: object = None
    #: What the CLI itself listed as errors.
    errors: tuple[str, ...] = ()
    #: The uuid of the prompt; what `rewind_files` takes.
    uuid: str | None = None
    #: Uuids of other prompts the CLI answered in the same turn; they share this outcome.
    merged_with: tuple[str, ...] = ()
    session_id: str | None = None
    #: What this turn alone cost; None where the CLI did not live to say.
    cost_usd: float | None = None
    usage: Usage | None = None
    num_turns: int = 0
    #: Seconds from the prompt to this outcome.
    duration: float = 0.0
    #: The CLI's result message, if one came.
    result: ResultMessage | None = None
    #: Every message of the turn, where they were asked to be kept.
    messages: tuple[Message, ...] | None = None
    #: The tool call a hook deferred.
    deferred_tool_use: DeferredToolUse | None = None
    #: When a rate limit resets, as unix time in seconds.
    resets_at: float | None = None
    #: How often the CLI repeated a request of the model API in this turn, because it had failed.
    api_retries: int = 0
    #: The last of these retries: the HTTP status or the kind of failure, and the delay.
    last_retry: ApiRetry | None = None
    process: ProcessInfo | None = None

    @property
    def ok(self) -> bool:
        """True only for a clean completion."""
        return self.reason is OutcomeReason.COMPLETED

    @property
    def exit_code(self) -> int | None:
        """How the CLI process ended, if it did; negative for a signal."""
        return self.process.exit_code if self.process else None

    @property
    def stderr_tail(self) -> str:
        """The last of what the CLI wrote to stderr, where it was kept."""
        return self.process.stderr_tail if self.process else ""

    def raise_for_reason(self) -> CompletedOutcome[_Output_co]:
        """Raise the error that belongs to the reason; return self if the turn is ok."""
        if self.ok:
            return cast("CompletedOutcome[_Output_co]", self)
        raise OUTCOME_ERRORS[self.reason](self)

    def wait_for_reset(self, default: float | None = None) -> Awaitable[None]:
        """Await this to wait until the rate limit resets (`resets_at`).

        `default` is how many seconds to wait when the CLI did not say when that will be. It also
        takes the place of a moment that has passed; without one the wait is over at once then.

        Raises:
            OptionsError: neither the CLI nor `default` says how long to wait.

        Cancellation: the wait can be cancelled at any time.
        """
        return _lent[0]().until(self._reset(default))

    def wait_for_reset_sync(self, default: float | None = None) -> None:
        """Block until the rate limit resets, as `wait_for_reset` does without blocking."""
        _lent[0]().until_sync(self._reset(default))

    def _reset(self, default: float | None) -> float:
        moment, clock = self.resets_at, _lent[0]()
        if moment is not None and (default is None or moment > clock.in_seconds(0.0)):
            return moment
        if default is None:
            raise OptionsError(
                "default",
                f"is missing, and this outcome ({self.reason}) does not say when a limit resets",
                fix="Give wait_for_reset the seconds to wait.",
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
        """What type checkers know of an outcome that is ok: an output asked for is there."""

        output: _Output_co = cast("Any", None)
else:
    CompletedOutcome = Outcome

# The annotations of `OutcomeError` name a class that its module cannot import: it is defined above.
errors.__dict__["Outcome"] = Outcome
