"""Events of a session and of a turn. Every event is a frozen record.

`session.events()` yields a `SessionEvent`: lifecycle changes, API retries, rate limits, warnings.
A warning reports something that the session survived: data that was dropped, or a request that
Bridle answered in place of your code. A failure that ends a turn or a session is also an outcome or
an error.

`turn.events()` yields a `TurnEvent`: what a user interface shows of one turn. `agent_path` says
which agent an event belongs to. It is empty for the main agent. `msgspec.json.encode(event)`
returns JSON with the kind of the event in `type`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import msgspec

from bridle.content import ContentBlock, joined_text
from bridle.errors import BridleError
from bridle.messages._message import AgentPath, Message

if TYPE_CHECKING:
    # At run time `bridle.outcomes` sets this name, because it imports this module.
    from bridle.outcomes import Outcome

__all__ = [
    "ApiRetry",
    "BlockEnded",
    "RateLimited",
    "RetryScheduled",
    "SdkWarning",
    "SessionCompleted",
    "SessionEnded",
    "SessionEvent",
    "SessionFailed",
    "SessionReady",
    "SubagentEnded",
    "SubagentStarted",
    "TextDelta",
    "ThinkingDelta",
    "ToolEnded",
    "ToolInput",
    "ToolStarted",
    "TurnEnded",
    "TurnEvent",
    "Update",
    "WarningKind",
    "WarningLevel",
]

WarningLevel: TypeAlias = Literal["debug", "info", "warning", "error"]


class WarningKind(StrEnum):
    """All kinds of warnings. `meaning` describes a kind, `level` is its log level."""

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
    DIALOG_FAILED = "dialog_failed"
    CANNOT_BLOCK = "cannot_block"
    CANNOT_DEFER = "cannot_defer"
    APPROVAL_LOST = "approval_lost"
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
    UNKNOWN_VALUE = "unknown_value"
    OPTION_UNSUPPORTED = "option_unsupported"
    UNTESTED_VERSION = "untested_version"
    STORE_FAILED = "store_failed"
    SESSION_UNLOCKED = "session_unlocked"

    @property
    def level(self) -> WarningLevel:
        """Return the log level of this kind."""
        return _KINDS[self][0]

    @property
    def meaning(self) -> str:
        """Return what happened and what Bridle did, in one or two sentences."""
        return _KINDS[self][1]


# error: code of the application failed, and a tool was denied or data was lost. warning: something
# is wrong or was lost. A failed hook is a warning, because by default the CLI continues without it.
# info: worth knowing. debug: expected in a healthy session, or of interest only to Bridle itself.
_KINDS: dict[WarningKind, tuple[WarningLevel, str]] = {
    WarningKind.UNKNOWN_CALLBACK: (
        "warning",
        "The CLI called a hook that is not registered. Bridle blocked the event if it is a gate.",
    ),
    WarningKind.LATE_RESPONSE: (
        "debug",
        "The CLI responded to a timed-out or cancelled request. The response was dropped.",
    ),
    WarningKind.ORPHAN_RESPONSE: (
        "warning",
        "The CLI sent a response to a request that Bridle did not make. The response was dropped.",
    ),
    WarningKind.MALFORMED_LINE: (
        "warning",
        "The CLI wrote a line that is not a JSON object. The line was dropped.",
    ),
    WarningKind.OVERSIZED_LINE: (
        "error",
        "A line longer than max_buffer_size was dropped. If it was a request, Bridle rejected it.",
    ),
    WarningKind.LONG_LINE: (
        "info",
        "A line from the CLI is unusually long. Bridle is still reading it.",
    ),
    WarningKind.LIMIT_REACHED: (
        "warning",
        "A limit was reached, so Bridle rejected a request: gates block, permissions are denied.",
    ),
    WarningKind.VERSION_INCONCLUSIVE: (
        "warning",
        "Bridle could not read the CLI's version, and started the CLI anyway.",
    ),
    WarningKind.MISSING_CAPABILITIES: (
        "info",
        "The CLI did not send its capabilities. CLI 2.1.197 never does. Nothing is disabled.",
    ),
    WarningKind.HOOK_FAILED: (
        "warning",
        "A hook raised (its on_error applied) or returned an invalid value (a gate blocked, "
        "unless its on_invalid lets the CLI decide). Or the CLI did not register the hooks.",
    ),
    WarningKind.HOOK_TIMED_OUT: (
        "warning",
        "A hook timed out, and its on_timeout or on_error applied. The default is to continue.",
    ),
    WarningKind.PERMISSION_FAILED: (
        "error",
        "A permission callback raised or returned an invalid value. The tool was denied.",
    ),
    WarningKind.PERMISSION_TIMED_OUT: (
        "error",
        "A permission callback timed out. The tool was denied.",
    ),
    WarningKind.NO_PERMISSION_CALLBACK: (
        "warning",
        "The CLI sent a permission request, but on_can_use_tool is not set. The tool was denied.",
    ),
    WarningKind.MCP_FAILED: (
        "error",
        "A tool or MCP handler raised. The model received an error as the result.",
    ),
    WarningKind.MCP_BUFFER_OVERFLOW: (
        "warning",
        "Too many MCP messages arrived before their server was ready. The oldest was dropped.",
    ),
    WarningKind.ELICITATION_FAILED: (
        "error",
        "An elicitation callback failed. The elicitation was cancelled.",
    ),
    WarningKind.DIALOG_FAILED: (
        "error",
        "A dialog callback failed. The dialog was cancelled.",
    ),
    WarningKind.CANNOT_BLOCK: (
        "warning",
        "A hook blocked an event that not every CLI can block. The CLI may continue.",
    ),
    WarningKind.CANNOT_DEFER: (
        "warning",
        "A hook deferred a tool call that cannot wait for approval. The tool was denied.",
    ),
    WarningKind.APPROVAL_LOST: (
        "warning",
        "A tool call that waits for approval, or its result, was lost.",
    ),
    WarningKind.UNENCODABLE_RESULT: (
        "error",
        "A callback returned a value that JSON cannot represent. Bridle handled it as a failure.",
    ),
    WarningKind.INVALID_REQUEST: (
        "warning",
        "A request from the CLI lacked required fields. Bridle responded with an error.",
    ),
    WarningKind.UNKNOWN_REQUEST: (
        "info",
        "The CLI sent a request of an unknown kind. Bridle responded with an error.",
    ),
    WarningKind.UNANSWERED_REQUEST: (
        "warning",
        "The CLI sent a request after its input was closed. The CLI decides without a response.",
    ),
    WarningKind.RESULT_IGNORED: (
        "warning",
        "A part of a callback's result has no effect here and was ignored. The rest was used.",
    ),
    WarningKind.INIT_FAILED_LATE: (
        "warning",
        "The CLI rejected or ignored the handshake, but is already serving the session.",
    ),
    WarningKind.UNREAD_MESSAGES: (
        "warning",
        "The unread messages exceed max_unread_bytes. At four times that size the session ends.",
    ),
    WarningKind.MISSED_MESSAGES: (
        "warning",
        "More messages were unread than Bridle keeps for a first subscription or for turns. "
        "The oldest were dropped.",
    ),
    WarningKind.MISSED_EVENTS: (
        "warning",
        "More events were unread than a subscription keeps. The oldest were dropped.",
    ),
    WarningKind.CALLBACK_ABANDONED: (
        "warning",
        "A plain function runs on after its timeout or cancellation. Its thread is left to finish.",
    ),
    WarningKind.STDERR_CALLBACK_FAILED: (
        "error",
        "on_stderr raised. The line is still in the stderr tail.",
    ),
    WarningKind.EVENT_CALLBACK_FAILED: (
        "error",
        "on_event or on_warning raised. The session continues.",
    ),
    WarningKind.DUPLICATE_REQUEST: (
        "warning",
        "The CLI reused the id of a pending request. Only the first request gets a response.",
    ),
    WarningKind.STRAY_RESULT: (
        "debug",
        "The CLI sent a result that belongs to no turn. Bridle delivered it as a message only.",
    ),
    WarningKind.COST_UNKNOWN: (
        "warning",
        "The CLI did not report its cost, so Limits.usd cannot be enforced. The turn ends.",
    ),
    WarningKind.USD_LIMIT_PASSED: (
        "warning",
        "A turn cost more than Limits.usd, but ended before Bridle could end it.",
    ),
    WarningKind.UNKNOWN_MESSAGE: (
        "debug",
        "The CLI sent a message of an unknown type. Bridle delivered it with its raw content.",
    ),
    WarningKind.INCOMPLETE_LINE: (
        "warning",
        "The CLI's output ended in the middle of a line. The incomplete line was dropped.",
    ),
    WarningKind.NO_RESULT: (
        "warning",
        "The CLI exited normally, but without sending a result for the query.",
    ),
    WarningKind.EXIT_AFTER_RESULT: (
        "warning",
        "The CLI exited abnormally after sending its result. The result is still valid.",
    ),
    WarningKind.SETTING_IGNORED: (
        "warning",
        "A variable, or the file in BRIDLE_CONFIG, sets an option that can weaken a gate. Bridle "
        "ignored it.",
    ),
    WarningKind.UNKNOWN_VALUE: (
        "warning",
        "An option has a value that this version of Bridle does not know. Bridle passed it on.",
    ),
    WarningKind.OPTION_UNSUPPORTED: (
        "warning",
        "The CLI is too old for an option and ignores it, or has no tool that `tools` names.",
    ),
    WarningKind.UNTESTED_VERSION: (
        "info",
        "The CLI is newer than the newest one that this version of Bridle was tested with. "
        "`bridle verify` tries Bridle's promises on it. A process says so once for each version.",
    ),
    WarningKind.STORE_FAILED: (
        "warning",
        "The session store failed or is too slow. Bridle keeps the entries in a spool file and "
        "tries again. The session continues.",
    ),
    WarningKind.SESSION_UNLOCKED: (
        "warning",
        "The session could not be locked on this machine, so that another process can continue the "
        "same conversation. The warning has the path of the lock file and the reason.",
    ),
}


class SessionReady(msgspec.Struct, frozen=True):
    """The handshake is complete. The session is running."""

    session_id: str | None = None
    capabilities: tuple[str, ...] = ()
    cli_version: str | None = None
    pid: int | None = None


class SessionCompleted(msgspec.Struct, frozen=True):
    """The CLI exited normally, without being told to."""

    exit_code: int = 0


class SessionEnded(msgspec.Struct, frozen=True):
    """The session ended because the program closed or stopped it."""

    exit_code: int | None = None


class SessionFailed(msgspec.Struct, frozen=True):
    """The session failed. `reason` says why; `error` is the exception, or None."""

    reason: str
    exit_code: int | None = None
    error: BridleError | None = None


class RateLimited(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a rate limit changed: `allowed`, `allowed_warning` (near it) or `rejected`."""

    status: str
    #: When the limit resets: Unix time in seconds.
    resets_at: float | None = None
    #: The CLI's name for the time window, such as `five_hour` or `seven_day`.
    limit_type: str | None = None
    #: Used share of the limit, from 0 to 1.
    utilization: float | None = None
    surpassed_threshold: float | None = None
    overage_status: str | None = None
    using_overage: bool = False


class ApiRetry(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the model API failed. The CLI repeats it after `delay` seconds."""

    attempt: int
    max_retries: int
    delay: float
    #: HTTP status, or None if there was no response.
    error_status: int | None = None
    #: The CLI's name for the failure, such as `overloaded` or `rate_limit`.
    error: str = ""
    #: Seconds since the first attempt of this request failed.
    waited: float = 0.0


class SdkWarning(msgspec.Struct, frozen=True):
    """A problem that did not end the session. `error` is the exception that caused it, or None."""

    kind: WarningKind
    detail: str = ""
    error: BaseException | None = None
    #: Number of warnings of this kind that this one summarizes. Bridle reports the first 20
    #: separately, and after that at most one per second.
    count: int = 1

    @property
    def level(self) -> WarningLevel:
        """Return the log level of the kind."""
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
"""A message or an event. `session.subscribe()` yields them."""


# ------------------------------------------------------------------------- events of a turn


class _OfTurn(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base class of the events of a turn."""

    #: The agent that the event belongs to. For `SubagentStarted` and `SubagentEnded`, the last
    #: part is that subagent.
    agent_path: AgentPath = ()


class TextDelta(_OfTurn, frozen=True, tag="text_delta"):
    """The agent wrote text. Without partial messages this is a whole block."""

    text: str


class ThinkingDelta(_OfTurn, frozen=True, tag="thinking_delta"):
    """The agent wrote thinking. Without partial messages this is a whole block."""

    text: str


class ToolStarted(_OfTurn, frozen=True, tag="tool_started"):
    """The agent calls a tool. With partial messages the input is still being written."""

    id: str
    name: str


class ToolInput(_OfTurn, frozen=True, tag="tool_input"):
    """The input of a tool call is complete."""

    id: str
    name: str
    input: dict[str, Any]


class ToolEnded(_OfTurn, frozen=True, tag="tool_ended"):
    """A tool call has a result.

    A call that is cut off by the end of its turn or of its subagent has no such event.
    """

    id: str
    #: Empty if the call itself was not seen.
    name: str
    #: What the model gets: text, or a list of content blocks. The result of a tool that the API
    #: runs may have another form.
    content: Any = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """Return the text of the result. Images and other blocks are omitted."""
        content: object = self.content
        if not isinstance(content, str | list):
            return ""
        return joined_text(cast("str | list[ContentBlock]", content))


class BlockEnded(_OfTurn, frozen=True, tag="block_ended"):
    """A content block of the agent ended: text, thinking or a tool call.

    An agent writes one block at a time, so the event refers to all deltas since the last
    `BlockEnded` with the same `agent_path`, or to the last `ToolStarted` with it.
    """

    #: The `type` of the block: `text`, `thinking`, `tool_use` and others.
    kind: str
    #: The complete block. None if it was abandoned.
    block: ContentBlock | None = None
    #: True if the block is void: the connection to the API was lost, or the turn ended, before it
    #: was complete. It is not part of the conversation. Remove what you have shown of it. If the
    #: CLI asks the model again, the new answer follows. A new answer that begins with the same text
    #: continues the block instead.
    abandoned: bool = False


class SubagentStarted(_OfTurn, frozen=True, tag="subagent_started"):
    """A subagent started. `agent_path[-1]` names it."""

    description: str = ""
    prompt: str = ""


class SubagentEnded(_OfTurn, frozen=True, tag="subagent_ended"):
    """A subagent ended. A subagent in the background may outlive its turn and has no such event."""

    #: `completed`, `failed` or `stopped`.
    status: str


class RetryScheduled(_OfTurn, frozen=True, tag="retry_scheduled"):
    """A request to the model API failed. The CLI repeats it after `delay` seconds."""

    attempt: int
    max_retries: int
    delay: float
    #: HTTP status, or None if there was no response.
    error_status: int | None = None
    #: The CLI's name for the failure, such as `overloaded` or `rate_limit`.
    error: str = ""


class TurnEnded(_OfTurn, frozen=True, tag="turn_ended"):
    """The turn ended. This is always the last event, also if the turn failed."""

    outcome: Outcome[Any]


TurnEvent: TypeAlias = (
    TextDelta
    | ThinkingDelta
    | ToolStarted
    | ToolInput
    | ToolEnded
    | BlockEnded
    | SubagentStarted
    | SubagentEnded
    | RetryScheduled
    | TurnEnded
)
