"""The messages of a conversation. `bridle.messages._system` defines those of type `system`.

Each class has the fields of its JSON object, with Python names. Only `type` is required, so every
field has a default: None or an empty tuple means that the CLI did not send the field. Times are
floats in the unit that their name gives, counts are ints. `.raw` has the fields that a class does
not define. Common fields are in the order of the wire, because the decoder searches for each field
after the previous one, and that makes it faster.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct, field

from bridle._records.raw_line import JsonObject
from bridle.content import (
    ContentBlock,
    WireBlock,
    bind_block,
    bind_blocks,
    joined_text,
)
from bridle.controls import ControlCancel, ControlRequest, ControlResponse
from bridle.messages import _stream_objects as _api
from bridle.messages import _system
from bridle.messages._message import AgentPath, Message, Subagent
from bridle.messages._stream_objects import *
from bridle.messages._stream_objects import (
    ApiMessage,
    ApiUserMessage,
    ContentBlockDelta,
    ContentBlockStart,
    MessageStart,
    Record,
    TextDelta,
    ThinkingDelta,
    Usage,
    WireDelta,
    WireEvent,
)
from bridle.messages._system import *

__all__ = [
    "ActiveGoal",
    "ActiveGoalMessage",
    "AgentPath",
    "AssistantMessage",
    "AuthStatus",
    "AutocompactState",
    "AutocompactStateMessage",
    "CommandLifecycle",
    "ConversationReset",
    "DeferredToolUse",
    "Frame",
    "JsonObject",
    "KeepAlive",
    "MalformedLine",
    "Message",
    "ModelUsage",
    "Origin",
    "PermissionDenial",
    "PromptSuggestion",
    "RateLimitEvent",
    "RateLimitInfo",
    "ResultMessage",
    "StreamEvent",
    "Subagent",
    "ToolProgress",
    "ToolUseSummary",
    "TranscriptMirror",
    "UnknownMessage",
    "UserMessage",
    "WireDelta",
    "WireEvent",
]
__all__ += _api.__all__
__all__ += _system.__all__


# ------------------------------------------------------------------------- assistant and user


class Origin(Record, kw_only=True, rename="camel", frozen=True):
    """What started a turn that the program did not start, such as a background task."""

    kind: str = ""
    producer: str | None = None
    run_id: str | None = None


class AssistantMessage(Message, tag="assistant", frozen=True):
    """Content from the model. The CLI sends one message per content block, with one `message_id`.

    To create one in a test: `AssistantMessage(ApiMessage(content=[...]))`.
    """

    # Private: `.message` and `.content` bind the blocks to the raw line before they return them.
    _message: ApiMessage = field(name="message", default_factory=ApiMessage)
    timestamp: str | None = None
    request_id: str | None = None
    error: str | None = None
    is_partial: bool = False
    aborted: bool = False
    user_message_uuids: tuple[str, ...] = ()
    user_message_uuid: str | None = None
    agent_id: str | None = None
    subagent_type: str | None = None
    task_description: str | None = None
    tool_use_meta: tuple[JsonObject, ...] = ()
    is_api_error_message: bool = False
    api_error: str | None = None
    api_error_type: str | None = None
    api_error_status: int | None = None
    api_error_params: JsonObject | None = None
    local_command_source: str | None = None
    local_command_run: JsonObject | None = None
    local_command_outcome: JsonObject | None = None
    context_usage: JsonObject | None = None
    refused_message_id: str | None = None
    thinking_duration_ms: float | None = None
    thinking_display: str | None = None
    resume_reason: str | None = None
    resumed_from_incomplete_thinking: bool = False
    #: UUIDs of earlier messages that this message replaces.
    supersedes: tuple[str, ...] = ()
    usage_report: JsonObject | None = None
    parent_tool_use_id: str | None = None

    @property
    def message(self) -> ApiMessage:
        """Return the API message: content, model, usage, stop reason."""
        bind_blocks(self, self._message.content, ("message", "content"))
        return self._message

    @property
    def content(self) -> list[ContentBlock]:
        """Return the content blocks of this message."""
        content = self._message.content
        bind_blocks(self, content, ("message", "content"))
        return content

    @property
    def text(self) -> str:
        """Return the text blocks, joined."""
        return joined_text(self._message.content)

    @property
    def message_id(self) -> str | None:
        """Return the id of the API message. All messages of one answer have the same id."""
        return self._message.id

    @property
    def model(self) -> str | None:
        """Return the name of the model, or `<synthetic>` for text of the CLI itself."""
        return self._message.model

    @property
    def stop_reason(self) -> str | None:
        """Return why the model stopped, or None if the answer is not complete."""
        return self._message.stop_reason

    @property
    def usage(self) -> Usage | None:
        """Return the token usage at the start of the answer. The result has the totals."""
        return self._message.usage


class UserMessage(Message, tag="user", frozen=True):
    """A copy of a prompt, a tool result, or a message that the CLI wrote for the user.

    To create one in a test: `UserMessage(ApiUserMessage("hi"))`.
    """

    _message: ApiUserMessage | None = field(name="message", default=None)
    timestamp: str | None = None
    tool_use_result: Any = None
    tool_result_meta: tuple[JsonObject, ...] = ()
    is_replay: bool = field(name="isReplay", default=False)
    is_synthetic: bool = field(name="isSynthetic", default=False)
    agent_id: str | None = None
    subagent_type: str | None = None
    task_description: str | None = None
    refused_message_id: str | None = None
    origin: Origin | None = None
    priority: str | None = None
    should_query: bool | None = field(name="shouldQuery", default=None)
    client_composed: bool = False
    pasted_content: tuple[Any, ...] = ()
    inline_pastes: tuple[str, ...] = ()
    file_attachments: tuple[Any, ...] = ()
    # Some programs that use this protocol put the content next to `type`.
    _flat_content: str | list[WireBlock] | None = field(name="content", default=None)
    parent_tool_use_id: str | None = None

    @property
    def message(self) -> ApiUserMessage:
        """Return the API message. It is made from the content if the line has none."""
        content = self.content
        return ApiUserMessage(content) if self._message is None else self._message

    @property
    def content(self) -> str | list[ContentBlock]:
        """Return the text, or the list of content blocks."""
        content = self._content
        path = ("content",) if self._message is None else ("message", "content")
        bind_blocks(self, content, path)
        return content

    @property
    def text(self) -> str:
        """Return the text, or the text blocks joined. Tool results are not included."""
        return joined_text(self._content)

    @property
    def _content(self) -> str | list[ContentBlock]:
        return (self._flat_content or "") if self._message is None else self._message.content


# ------------------------------------------------------------------------- result


class ModelUsage(Record, kw_only=True, rename="camel", frozen=True):
    """Token usage and cost of one model since the CLI process started."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_creation_ephemeral_5m_input_tokens: int | None = field(
        name="cacheCreationEphemeral5mInputTokens", default=None
    )
    cache_creation_ephemeral_1h_input_tokens: int | None = field(
        name="cacheCreationEphemeral1hInputTokens", default=None
    )
    thinking_tokens: int | None = None
    web_search_requests: int = 0
    cost_usd: float = field(name="costUSD", default=0.0)
    cost_basis: str | None = None
    context_window: int | None = None
    max_output_tokens: int | None = None
    canonical_model: str | None = None
    provider: str | None = None


class PermissionDenial(Record, frozen=True):
    """A tool call that was denied."""

    tool_name: str = ""
    tool_use_id: str = ""
    tool_input: JsonObject = field(default_factory=JsonObject)


class DeferredToolUse(Record, frozen=True):
    """The tool call that a hook deferred."""

    id: str = ""
    name: str = ""
    input: JsonObject = field(default_factory=JsonObject)


class ResultMessage(Message, tag="result", frozen=True):
    """The result at the end of a turn.

    To see whether the turn failed, use `is_error`: a failed API request has the subtype `success`.
    `total_cost_usd`, `model_usage` and `duration_api_ms` count from the start of the process,
    `usage` and `num_turns` count for this turn.
    """

    subtype: str
    is_error: bool
    result: str | None = None
    structured_output: Any = None
    errors: tuple[str, ...] = ()
    stop_reason: str | None = None
    terminal_reason: str | None = None
    num_turns: int = 0
    total_cost_usd: float | None = None
    usage: Usage | None = None
    model_usage: dict[str, ModelUsage] = field(
        name="modelUsage", default_factory=dict[str, ModelUsage]
    )
    model_usage_since_last_result: dict[str, ModelUsage] | None = None
    permission_denials: tuple[PermissionDenial, ...] = ()
    deferred_tool_use: DeferredToolUse | None = None
    origin: Origin | None = None
    user_message_uuid: str | None = None
    user_message_uuids: tuple[str, ...] = ()
    result_index: int | None = None
    queued_turn_count: int | None = None
    api_error: str | None = None
    api_error_type: str | None = None
    api_error_status: int | None = None
    local_command: str | None = None
    duration_ms: float = 0.0
    duration_api_ms: float = 0.0
    ttft_ms: float | None = None
    ttft_stream_ms: float | None = None
    time_to_request_ms: float | None = None
    first_content_frame_ms: float | None = None
    request_sent_wall_ms: float | None = None
    first_request_input_tokens: int | None = None
    first_request_cache_read_input_tokens: int | None = None
    fast_mode_state: str | None = None
    fast_mode_disabled_reason: str | None = None
    subagent_stats: JsonObject | None = None
    safety_stops: int | None = None
    startup_failure_reason: str | None = None
    invalid_config_file: JsonObject | None = None
    resume_reason: str | None = None
    credential_expires_at: str | None = None
    warm_spare_claimed: bool | None = None
    time_origin_ms: float | None = None
    time_to_request_from_spawn_ms: float | None = None
    first_stream_post_ms: float | None = None
    first_stream_post_ack_ms: float | None = None
    first_stream_post_queue_wait_ms: float | None = None
    first_stream_post_queued_behind: str | None = None
    first_stream_post_wall_ms: float | None = None
    first_text_post_ms: float | None = None
    first_text_post_queue_wait_ms: float | None = None
    first_text_post_queued_behind: str | None = None
    first_text_post_wall_ms: float | None = None


# ------------------------------------------------------------------------- partial messages


class StreamEvent(Message, tag="stream_event", frozen=True):
    """A part of an answer that the model is writing. Needs `include_partial_messages`."""

    # Private: `.event` binds the blocks to the raw line before it returns them.
    _event: WireEvent = field(name="event")
    ttft_ms: float | None = None
    thinking_display: str | None = None
    api_message_id: str | None = None
    user_message_uuid: str | None = None
    user_message_uuids: tuple[str, ...] = ()
    abandoned_blocks: JsonObject | None = None
    owed_rows: Any = None
    resume_reason: str | None = None
    parent_tool_use_id: str | None = None

    @property
    def event(self) -> WireEvent:
        """Return the stream event of the API."""
        event = self._event
        if (
            type(event) is ContentBlockDelta
        ):  # has no block; checked first because most events are deltas
            return event
        if isinstance(event, ContentBlockStart):
            bind_block(self, event.content_block, ("event",), "content_block")
        elif isinstance(event, MessageStart):
            bind_blocks(self, event.message.content, ("event", "message", "content"))
        return event

    @property
    def text_delta(self) -> str | None:
        """Return the text that this event adds, or None."""
        event = self._event
        if type(event) is ContentBlockDelta and type(event.delta) is TextDelta:
            return event.delta.text
        return None

    @property
    def thinking_delta(self) -> str | None:
        """Return the thinking that this event adds, or None."""
        event = self._event
        if type(event) is ContentBlockDelta and type(event.delta) is ThinkingDelta:
            return event.delta.thinking
        return None


# ------------------------------------------------------------------------- other messages


class RateLimitInfo(Record, kw_only=True, rename="camel", frozen=True):
    """The state of a rate limit of a subscription."""

    status: str = ""
    resets_at: float | None = None
    rate_limit_type: str | None = None
    utilization: float | None = None
    surpassed_threshold: float | None = None
    is_using_overage: bool = False
    overage_status: str | None = None
    overage_resets_at: float | None = None
    overage_disabled_reason: str | None = None


class RateLimitEvent(Message, tag="rate_limit_event", frozen=True):
    """The state of a rate limit changed. Sent only with a subscription, not with an API key."""

    rate_limit_info: RateLimitInfo = field(default_factory=RateLimitInfo)


class CommandLifecycle(Message, tag="command_lifecycle", frozen=True):
    """The state of the prompt with this UUID: queued, started, completed or cancelled."""

    command_uuid: str = ""
    state: str = ""


class ConversationReset(Message, tag="conversation_reset", frozen=True):
    """The conversation was cleared. Later messages have another session id."""

    new_conversation_id: str | None = None
    trigger: str | None = None
    user_message_uuid: str | None = None
    timestamp: str | None = None


class ToolProgress(Message, tag="tool_progress", frozen=True):
    """A tool, or a hook that the CLI waits for, is still running."""

    tool_use_id: str = ""
    tool_name: str = ""
    parent_tool_use_id: str | None = None
    elapsed_time_seconds: float = 0.0
    heartbeat: bool = False
    task_id: str | None = None
    subagent_type: str | None = None
    #: The API retry that a subagent waits for.
    subagent_retry: JsonObject | None = None


class ActiveGoal(Record, kw_only=True, frozen=True):
    """A goal that the CLI works towards over several turns."""

    condition: str = ""
    iterations: int = 0
    set_at: float | None = None
    tokens_at_start: int | None = None
    last_reason: str | None = None


class ActiveGoalMessage(Message, tag="active_goal", frozen=True):
    """The goal of the session changed. `value` is None if there is no goal any more."""

    value: ActiveGoal | None = None


class AutocompactState(Record, kw_only=True, frozen=True):
    """When the CLI compacts the conversation by itself. The sizes are in tokens."""

    enabled: bool = False
    effective_window: int | None = None
    threshold: int | None = None
    enforced: bool | None = None
    source: str | None = None


class AutocompactStateMessage(Message, tag="autocompact_state", frozen=True):
    """The settings of automatic compaction changed."""

    value: AutocompactState | None = None


class ToolUseSummary(Message, tag="tool_use_summary", frozen=True):
    """A summary of several tool calls."""

    summary: str = ""
    preceding_tool_use_ids: tuple[str, ...] = ()


class TranscriptMirror(Message, tag="transcript_mirror", frozen=True):
    """Lines that the CLI added to a transcript file."""

    file_path: str = field(name="filePath", default="")
    entries: tuple[JsonObject, ...] = ()


class AuthStatus(Message, tag="auth_status", frozen=True):
    """The progress of a login."""

    is_authenticating: bool = field(name="isAuthenticating", default=False)
    output: tuple[str, ...] = ()
    error: str | None = None


class PromptSuggestion(Message, tag="prompt_suggestion", frozen=True):
    """A suggestion for the next prompt."""

    suggestion: str = ""


class KeepAlive(Message, tag="keep_alive", frozen=True):
    """The CLI is still running."""


class UnknownMessage(Message, frozen=True):
    """A message of a type that this version of Bridle does not know. `.raw` has its content."""

    type: str  # pyright: ignore[reportIncompatibleMethodOverride]  # read-only either way: frozen


class MalformedLine(Struct, frozen=True):
    """A line that is not UTF-8, not JSON, or not a JSON object.

    `line` has the bytes without the line ending.
    """

    reason: str
    line: bytes


Frame: TypeAlias = Message | ControlRequest | ControlResponse | ControlCancel | MalformedLine
"""Every kind of line that the CLI can send. `bridle.decode_line` returns one of them."""
