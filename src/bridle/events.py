"""What a session tells beside the conversation: its lifecycle, the API's troubles, and warnings.

Every event is a frozen record; `SessionEvent` is their union, the element type of
`session.events()`. A warning never stands alone for a failure that ends something: that is an
error or an outcome. It says that something was survived, dropped or answered in your place.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

from bridle._message import Message
from bridle.errors import BridleError

__all__ = [
    "ApiRetry",
    "RateLimited",
    "SdkWarning",
    "SessionCompleted",
    "SessionEnded",
    "SessionEvent",
    "SessionFailed",
    "SessionReady",
    "Update",
    "WarningKind",
    "WarningLevel",
]

WarningLevel: TypeAlias = Literal["debug", "info", "warning", "error"]


class WarningKind(StrEnum):
    """The closed set of things Bridle warns about; `meaning` and `level` say more of each."""

    UNKNOWN_CALLBACK = "unknown_callback"
    LATE_RESPONSE = "late_response"
    ORPHAN_RESPONSE = "orphan_response"
    MALFORMED_LINE = "malformed_line"
    OVERSIZED_LINE = "oversized_line"
    LONG_LINE = "long_line"
    LIMIT_REACHED = "limit_reached"
    VERSION_INCONCLUSIVE = "version_inconclusive"
    MISSING_CAPABILITIES = "missing_capabilities"
    HOOK_FAILED = "hook_failed"
    HOOK_TIMED_OUT = "hook_timed_out"
    PERMISSION_FAILED = "permission_failed"
    PERMISSION_TIMED_OUT = "permission_timed_out"
    NO_PERMISSION_CALLBACK = "no_permission_callback"
    MCP_FAILED = "mcp_failed"
    MCP_BUFFER_OVERFLOW = "mcp_buffer_overflow"
    ELICITATION_FAILED = "elicitation_failed"
    CANNOT_BLOCK = "cannot_block"
    UNENCODABLE_RESULT = "unencodable_result"
    INVALID_REQUEST = "invalid_request"
    UNKNOWN_REQUEST = "unknown_request"
    UNANSWERED_REQUEST = "unanswered_request"
    RESULT_IGNORED = "result_ignored"
    INIT_FAILED_LATE = "init_failed_late"
    UNREAD_MESSAGES = "unread_messages"
    MISSED_MESSAGES = "missed_messages"
    MISSED_EVENTS = "missed_events"
    CALLBACK_ABANDONED = "callback_abandoned"
    STDERR_CALLBACK_FAILED = "stderr_callback_failed"
    EVENT_CALLBACK_FAILED = "event_callback_failed"
    DUPLICATE_REQUEST = "duplicate_request"
    STRAY_RESULT = "stray_result"
    COST_UNKNOWN = "cost_unknown"
    USD_LIMIT_PASSED = "usd_limit_passed"
    UNKNOWN_MESSAGE = "unknown_message"
    INCOMPLETE_LINE = "incomplete_line"
    NO_RESULT = "no_result"
    EXIT_AFTER_RESULT = "exit_after_result"
    SETTING_IGNORED = "setting_ignored"

    @property
    def level(self) -> WarningLevel:
        """How loud this is in a log."""
        return _KINDS[self][0]

    @property
    def meaning(self) -> str:
        """One sentence: what happened and what Bridle did about it."""
        return _KINDS[self][1]


# error: something of the application failed, and was refused or lost for it. warning: something is
# wrong or was lost; a hook that failed too, as things go on without it.
# info: worth knowing. debug: expected in a healthy session, or only of interest to Bridle itself.
_KINDS: dict[WarningKind, tuple[WarningLevel, str]] = {
    WarningKind.UNKNOWN_CALLBACK: (
        "warning",
        "The CLI called a hook that is not registered. An event that decides is blocked.",
    ),
    WarningKind.LATE_RESPONSE: (
        "debug",
        "The CLI answered a request that had timed out or was withdrawn; the answer was dropped.",
    ),
    WarningKind.ORPHAN_RESPONSE: (
        "warning",
        "The CLI answered a request that was never made; the answer was dropped.",
    ),
    WarningKind.MALFORMED_LINE: (
        "warning",
        "The CLI wrote a line that is no JSON object; it was skipped.",
    ),
    WarningKind.OVERSIZED_LINE: (
        "error",
        "A line longer than max_buffer_size was dropped; if it was a request, it was answered.",
    ),
    WarningKind.LONG_LINE: (
        "info",
        "A line has grown unusually long without an end; it is still being read.",
    ),
    WarningKind.LIMIT_REACHED: (
        "warning",
        "A limit was reached and the new request refused: gates block, permissions are denied.",
    ),
    WarningKind.VERSION_INCONCLUSIVE: (
        "warning",
        "The CLI's version could not be read; it was started anyway.",
    ),
    WarningKind.MISSING_CAPABILITIES: (
        "info",
        "The CLI did not say what it can do, as older ones do not; nothing is switched off.",
    ),
    WarningKind.HOOK_FAILED: (
        "warning",
        "A hook raised (its on_error decided) or returned an invalid value (a gate blocked).",
    ),
    WarningKind.HOOK_TIMED_OUT: (
        "warning",
        "A hook missed its deadline; its on_error decided, by default to go on.",
    ),
    WarningKind.PERMISSION_FAILED: (
        "error",
        "A permission callback raised or returned nonsense; the tool was denied.",
    ),
    WarningKind.PERMISSION_TIMED_OUT: (
        "error",
        "A permission callback missed its deadline; the tool was denied.",
    ),
    WarningKind.NO_PERMISSION_CALLBACK: (
        "warning",
        "The CLI asked for a permission and no on_can_use_tool is set; the tool was denied.",
    ),
    WarningKind.MCP_FAILED: (
        "error",
        "A tool or MCP handler raised; the model was told that the call failed.",
    ),
    WarningKind.MCP_BUFFER_OVERFLOW: (
        "warning",
        "Too many MCP messages came before their server was ready; the oldest was dropped.",
    ),
    WarningKind.ELICITATION_FAILED: (
        "error",
        "An elicitation callback failed; the question was cancelled.",
    ),
    WarningKind.CANNOT_BLOCK: (
        "warning",
        "A hook blocked an event the CLI cannot block; it went on.",
    ),
    WarningKind.UNENCODABLE_RESULT: (
        "error",
        "A callback returned a value JSON cannot carry; its failure answer was sent instead.",
    ),
    WarningKind.INVALID_REQUEST: (
        "warning",
        "A request of the CLI lacked what is needed to act on it; it was answered with an error.",
    ),
    WarningKind.UNKNOWN_REQUEST: (
        "info",
        "The CLI made a request of a kind Bridle does not know; it was answered with an error.",
    ),
    WarningKind.UNANSWERED_REQUEST: (
        "warning",
        "The CLI asked when its input had ended; it decides by itself then.",
    ),
    WarningKind.RESULT_IGNORED: (
        "warning",
        "A part of what a callback returned means nothing here; the rest was used.",
    ),
    WarningKind.INIT_FAILED_LATE: (
        "warning",
        "The CLI refused or ignored the handshake of a session it had already begun to serve.",
    ),
    WarningKind.UNREAD_MESSAGES: (
        "warning",
        "Unread messages have passed max_unread_bytes; at four times that the session ends.",
    ),
    WarningKind.MISSED_MESSAGES: (
        "warning",
        "More messages were unread than are kept for a first subscription or for turns; "
        "the oldest were dropped.",
    ),
    WarningKind.MISSED_EVENTS: (
        "warning",
        "More events were unread than a subscription keeps; the oldest were dropped.",
    ),
    WarningKind.CALLBACK_ABANDONED: (
        "warning",
        "A plain function outlived its deadline or its request; its thread was left to finish.",
    ),
    WarningKind.STDERR_CALLBACK_FAILED: (
        "error",
        "on_stderr raised; the line was kept in the tail all the same.",
    ),
    WarningKind.EVENT_CALLBACK_FAILED: (
        "error",
        "on_event or on_warning raised; the session went on.",
    ),
    WarningKind.DUPLICATE_REQUEST: (
        "warning",
        "The CLI used a request id twice while the first was open; the first one is answered.",
    ),
    WarningKind.STRAY_RESULT: (
        "debug",
        "A result came that belongs to no turn of ours; it was delivered as a message only.",
    ),
    WarningKind.COST_UNKNOWN: (
        "warning",
        "The CLI did not tell what it has spent; Limits.usd cannot end this turn while it runs.",
    ),
    WarningKind.USD_LIMIT_PASSED: (
        "warning",
        "A turn cost more than Limits.usd and ended by itself before Bridle could end it.",
    ),
    WarningKind.UNKNOWN_MESSAGE: (
        "debug",
        "A message of a kind Bridle does not know came; it was delivered with its raw content.",
    ),
    WarningKind.INCOMPLETE_LINE: (
        "warning",
        "The CLI's output ended in the middle of a line; what there was of it was dropped.",
    ),
    WarningKind.NO_RESULT: (
        "warning",
        "The CLI ended a query in order, but without a result.",
    ),
    WarningKind.EXIT_AFTER_RESULT: (
        "warning",
        "The CLI gave its result and did not end in order then; the result stands.",
    ),
    WarningKind.SETTING_IGNORED: (
        "warning",
        "The environment set something that could weaken a gate; it was ignored.",
    ),
}


class SessionReady(msgspec.Struct, frozen=True):
    """The handshake is done: the session is running."""

    session_id: str | None = None
    capabilities: tuple[str, ...] = ()
    cli_version: str | None = None
    pid: int | None = None


class SessionCompleted(msgspec.Struct, frozen=True):
    """The CLI ended by itself, in order."""

    exit_code: int = 0


class SessionEnded(msgspec.Struct, frozen=True):
    """The session ended because it was told to."""

    exit_code: int | None = None


class SessionFailed(msgspec.Struct, frozen=True):
    """The session ended although nobody told it to; `error` is why, where there is one."""

    reason: str
    exit_code: int | None = None
    error: BridleError | None = None


class RateLimited(msgspec.Struct, frozen=True, kw_only=True):
    """The account's rate limit changed: near (`allowed_warning`), reached (`rejected`) or fine."""

    status: str
    #: Unix time in seconds.
    resets_at: float | None = None
    #: Which window is meant, as the CLI names it (`five_hour`, `seven_day`…).
    limit_type: str | None = None
    #: Share of the window that is used up, 0 to 1.
    utilization: float | None = None
    surpassed_threshold: float | None = None
    overage_status: str | None = None
    using_overage: bool = False


class ApiRetry(msgspec.Struct, frozen=True, kw_only=True):
    """A call of the model API failed and the CLI will repeat it after `delay` seconds."""

    attempt: int
    max_retries: int
    delay: float
    #: HTTP status, if the API answered at all.
    error_status: int | None = None
    #: The CLI's name of the failure, such as `overloaded` or `rate_limit`.
    error: str = ""
    #: Seconds since the first attempt of this request failed.
    waited: float = 0.0


class SdkWarning(msgspec.Struct, frozen=True):
    """Something Bridle survived. `error` is the exception behind it, where there was one."""

    kind: WarningKind
    detail: str = ""
    error: BaseException | None = None
    #: How many warnings of this kind it stands for. More than one if they came too fast: the first
    #: 20 are told each, after that at most one a second.
    count: int = 1

    @property
    def level(self) -> WarningLevel:
        """How loud this is in a log; it goes with the kind."""
        return self.kind.level

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail or self.kind.meaning}"


SessionEvent: TypeAlias = (
    SessionReady
    | SessionCompleted
    | SessionEnded
    | SessionFailed
    | RateLimited
    | ApiRetry
    | SdkWarning
)

Update: TypeAlias = Message | SessionEvent
"""A message or an event: what `session.subscribe()` yields."""
