"""The messages of a conversation, as the CLI sends them; `system` ones have their own file.

The rule of this file: a class mirrors the shape of its line, with Python names for its fields.
Only `type` is ever required of the wire, so every field has a default: None (or an empty tuple)
means that this CLI did not say. Times are floats in the unit their name gives, counts are ints.
Whatever has no field here is in `.raw`. What nearly every line has stands in the order of the
wire: the decoder looks for each field behind the last one it found, and at the end begins anew.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct, field

from bridle import _api, _system
from bridle._api import *
from bridle._api import (
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
from bridle._message import Message
from bridle._source import JsonObject
from bridle._system import *
from bridle.content import ContentBlock, WireBlock, bind_block, bind_blocks, joined_text
from bridle.controls import ControlCancel, ControlRequest, ControlResponse

__all__ = [
    "AssistantMessage",
    "AuthStatus",
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
    """Who started a turn that no prompt of ours started."""

    kind: str = ""
    producer: str | None = None
    run_id: str | None = None


class AssistantMessage(Message, tag="assistant", frozen=True):
    """What the model said. The CLI sends one line per content block, all with one `message_id`.

    Built by hand around its API message: `AssistantMessage(ApiMessage(content=[...]))`.
    """

    # Behind `.message` and `.content`, which bind the blocks before they hand them out.
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
    parent_tool_use_id: str | None = None

    @property
    def message(self) -> ApiMessage:
        """The API's message: content, model, usage, stop reason."""
        bind_blocks(self, self._message.content, ("message", "content"))
        return self._message

    @property
    def content(self) -> list[ContentBlock]:
        """The blocks of this line."""
        content = self._message.content
        bind_blocks(self, content, ("message", "content"))
        return content

    @property
    def text(self) -> str:
        """The text blocks joined."""
        return joined_text(self._message.content)

    @property
    def message_id(self) -> str | None:
        """The API's id, shared by all lines of one answer."""
        return self._message.id

    @property
    def model(self) -> str | None:
        """The model that spoke; `<synthetic>` when it was the CLI itself."""
        return self._message.model

    @property
    def stop_reason(self) -> str | None:
        """Why the model stopped; None on the lines of a message that goes on."""
        return self._message.stop_reason

    @property
    def usage(self) -> Usage | None:
        """Tokens as known when the message began; totals are in the result."""
        return self._message.usage


class UserMessage(Message, tag="user", frozen=True):
    """A prompt echoed back, a tool's result, or a word the CLI put in the user's mouth.

    Built by hand around its API message: `UserMessage(ApiUserMessage("hi"))`.
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
    # Some writers of this protocol put the content beside `type`.
    _flat_content: str | list[WireBlock] | None = field(name="content", default=None)
    parent_tool_use_id: str | None = None

    @property
    def message(self) -> ApiUserMessage:
        """The API's message, made from the content where the line has none."""
        content = self.content
        return ApiUserMessage(content) if self._message is None else self._message

    @property
    def content(self) -> str | list[ContentBlock]:
        """The text, or the blocks."""
        content = self._content
        path = ("content",) if self._message is None else ("message", "content")
        bind_blocks(self, content, path)
        return content

    @property
    def text(self) -> str:
        """The text, or the text blocks joined; tool results are not part of it."""
        return joined_text(self._content)

    @property
    def _content(self) -> str | list[ContentBlock]:
        return (self._flat_content or "") if self._message is None else self._message.content


# ------------------------------------------------------------------------- result


class ModelUsage(Record, kw_only=True, rename="camel", frozen=True):
    """What one model was used for and what it cost, over the life of the CLI process."""

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
    """A tool call that was not permitted."""

    tool_name: str = ""
    tool_use_id: str = ""
    tool_input: JsonObject = field(default_factory=JsonObject)


class DeferredToolUse(Record, frozen=True):
    """The tool call a hook put off."""

    id: str = ""
    name: str = ""
    input: JsonObject = field(default_factory=JsonObject)


class ResultMessage(Message, tag="result", frozen=True):
    """The end of a turn. Ask `is_error`, not `subtype`: a failed API call is a `success` with it.

    `total_cost_usd`, `model_usage` and `duration_api_ms` count from the start of the process,
    `usage` and `num_turns` for this turn.
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


# ------------------------------------------------------------------------- partial messages


class StreamEvent(Message, tag="stream_event", frozen=True):
    """A step of an answer under way; sent only with partial messages on."""

    # Behind `.event`, which binds the blocks in it before it hands it out.
    _event: WireEvent = field(name="event")
    ttft_ms: float | None = None
    thinking_display: str | None = None
    api_message_id: str | None = None
    user_message_uuid: str | None = None
    user_message_uuids: tuple[str, ...] = ()
    abandoned_blocks: JsonObject | None = None
    owed_rows: Any = None
    parent_tool_use_id: str | None = None

    @property
    def event(self) -> WireEvent:
        """The API's event."""
        event = self._event
        if type(event) is ContentBlockDelta:  # holds no block, and nearly all events are deltas
            return event
        if isinstance(event, ContentBlockStart):
            bind_block(self, event.content_block, ("event",), "content_block")
        elif isinstance(event, MessageStart):
            bind_blocks(self, event.message.content, ("event", "message", "content"))
        return event

    @property
    def text_delta(self) -> str | None:
        """The text this event adds, or None."""
        event = self._event
        if type(event) is ContentBlockDelta and type(event.delta) is TextDelta:
            return event.delta.text
        return None

    @property
    def thinking_delta(self) -> str | None:
        """The thinking this event adds, or None."""
        event = self._event
        if type(event) is ContentBlockDelta and type(event.delta) is ThinkingDelta:
            return event.delta.thinking
        return None


# ------------------------------------------------------------------------- the rest


class RateLimitInfo(Record, kw_only=True, rename="camel", frozen=True):
    """How much of a subscription's allowance is used."""

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
    """The allowance changed; sent to subscribers only, not to users of an API key."""

    rate_limit_info: RateLimitInfo = field(default_factory=RateLimitInfo)


class CommandLifecycle(Message, tag="command_lifecycle", frozen=True):
    """Where the prompt with this uuid stands: queued, started, completed or cancelled."""

    command_uuid: str = ""
    state: str = ""


class ConversationReset(Message, tag="conversation_reset", frozen=True):
    """The conversation was cleared; what follows has another session id."""

    new_conversation_id: str | None = None
    trigger: str | None = None
    user_message_uuid: str | None = None
    timestamp: str | None = None


class ToolProgress(Message, tag="tool_progress", frozen=True):
    """A sign of life from a tool, or from a hook that is waited for."""

    tool_use_id: str = ""
    tool_name: str = ""
    parent_tool_use_id: str | None = None
    elapsed_time_seconds: float = 0.0
    heartbeat: bool = False
    task_id: str | None = None


class ToolUseSummary(Message, tag="tool_use_summary", frozen=True):
    """Several tool calls in one sentence."""

    summary: str = ""
    preceding_tool_use_ids: tuple[str, ...] = ()


class TranscriptMirror(Message, tag="transcript_mirror", frozen=True):
    """Lines the CLI added to a transcript file."""

    file_path: str = field(name="filePath", default="")
    entries: tuple[JsonObject, ...] = ()


class AuthStatus(Message, tag="auth_status", frozen=True):
    """A login under way."""

    is_authenticating: bool = field(name="isAuthenticating", default=False)
    output: tuple[str, ...] = ()
    error: str | None = None


class PromptSuggestion(Message, tag="prompt_suggestion", frozen=True):
    """What the user might say next."""

    suggestion: str = ""


class KeepAlive(Message, tag="keep_alive", frozen=True):
    """Nothing but a sign of life."""


class UnknownMessage(Message, frozen=True):
    """A message of a type this version of Bridle does not know; `.raw` has all of it."""

    type: str  # pyright: ignore[reportIncompatibleMethodOverride]  # read-only either way: frozen


class MalformedLine(Struct, frozen=True):
    """A line that is no message at all: not UTF-8, not JSON, or not an object.

    `line` is without its ending.
    """

    reason: str
    line: bytes


Frame: TypeAlias = Message | ControlRequest | ControlResponse | ControlCancel | MalformedLine
"""Everything a line of the CLI can be; `bridle.decode_line` returns one."""
