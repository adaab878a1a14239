"""Objects of the Messages API that the CLI forwards: token usage, messages, stream events.

Each class has the fields of the API, in the order in which the API sends them. `bridle.messages`
defines the messages of the CLI that contain these objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field

from bridle._records.raw_line import JsonObject
from bridle.content import WireBlock

__all__ = [
    "ApiMessage",
    "ApiUserMessage",
    "CacheCreation",
    "CitationsDelta",
    "CompactionDelta",
    "ContentBlockDelta",
    "ContentBlockStart",
    "ContentBlockStop",
    "Delta",
    "InputJsonDelta",
    "MessageDelta",
    "MessageStart",
    "MessageStop",
    "OutputTokensDetails",
    "ServerToolUsage",
    "SignatureDelta",
    "StopDelta",
    "StreamError",
    "TextDelta",
    "ThinkingDelta",
    "UnknownDelta",
    "UnknownStreamEvent",
    "Usage",
]


class Record(Struct, frozen=True, gc=False, repr_omit_defaults=True):
    """Base class of parts of a message other than content blocks."""


# ------------------------------------------------------------------------- usage


class ServerToolUsage(Record, frozen=True):
    """How often the API ran its server-side tools."""

    web_search_requests: int = 0
    web_fetch_requests: int = 0


class CacheCreation(Record, frozen=True):
    """Tokens written to the prompt cache, by cache lifetime."""

    ephemeral_5m_input_tokens: int = 0
    ephemeral_1h_input_tokens: int = 0


class OutputTokensDetails(Record, frozen=True):
    """Output tokens by kind."""

    thinking_tokens: int = 0


class Usage(Record, kw_only=True, frozen=True):
    """Token usage of one API message, or of a whole turn in a result."""

    input_tokens: int = 0
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation: CacheCreation | None = None
    output_tokens: int = 0
    service_tier: str | None = None
    inference_geo: str | None = None
    server_tool_use: ServerToolUsage | None = None
    output_tokens_details: OutputTokensDetails | None = None
    speed: str | None = None
    iterations: tuple[Any, ...] | None = None
    fallback_credit: Any = None


# ------------------------------------------------------------------------- messages


class ApiMessage(Record, kw_only=True, frozen=True):
    """The API message inside an `AssistantMessage`."""

    model: str | None = None
    id: str | None = None
    type: str = "message"
    role: str = "assistant"
    content: list[WireBlock] = []
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: Usage | None = None
    context_management: Any = None
    stop_details: Any = None
    container: Any = None
    diagnostics: Any = None


class ApiUserMessage(Record, frozen=True):
    """The API message inside a `UserMessage`."""

    content: str | list[WireBlock] = ""
    role: str = "user"


# ------------------------------------------------------------------------- stream events


class Delta(Struct, frozen=True, gc=False, repr_omit_defaults=True):
    """Base class of deltas: data that is added to a content block."""


class TextDelta(Delta, tag="text_delta", frozen=True):
    """Text that is added to a text block."""

    text: str


class ThinkingDelta(Delta, tag="thinking_delta", frozen=True):
    """Text that is added to a thinking block."""

    thinking: str


class SignatureDelta(Delta, tag="signature_delta", frozen=True):
    """The signature at the end of a thinking block."""

    signature: str


class InputJsonDelta(Delta, tag="input_json_delta", frozen=True):
    """A part of a tool's input. The parts of a block joined are the JSON text."""

    partial_json: str


class CitationsDelta(Delta, tag="citations_delta", frozen=True):
    """A citation that is added to a text block."""

    citation: JsonObject


class CompactionDelta(Delta, tag="compaction_delta", frozen=True):
    """Text that is added to the summary in a compaction block, and its encrypted form."""

    content: str | None = None
    encrypted_content: str | None = None


class UnknownDelta(Delta, frozen=True):
    """A delta of a type that this version of Bridle does not know. `raw` has its content."""

    type: str
    raw: Any


class ApiEvent(Struct, frozen=True, gc=False, repr_omit_defaults=True):
    """Base class of the stream events of the API."""


class MessageStart(ApiEvent, tag="message_start", frozen=True):
    """A message starts. Its content is still empty."""

    message: ApiMessage = field(default_factory=ApiMessage)


class ContentBlockStart(ApiEvent, tag="content_block_start", frozen=True):
    """A content block starts."""

    content_block: WireBlock
    index: int = 0


class ContentBlockDelta(ApiEvent, tag="content_block_delta", frozen=True):
    """Data is added to a content block."""

    delta: WireDelta
    index: int = 0


class ContentBlockStop(ApiEvent, tag="content_block_stop", frozen=True):
    """A content block is complete."""

    index: int = 0


class StopDelta(Record, kw_only=True, frozen=True):
    """Why a message ended."""

    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Any = None
    container: Any = None


class MessageDelta(ApiEvent, tag="message_delta", frozen=True):
    """The stop reason and the final token usage of a message."""

    delta: StopDelta = field(default_factory=StopDelta)
    usage: Usage | None = None
    context_management: Any = None


class MessageStop(ApiEvent, tag="message_stop", frozen=True):
    """The message is complete."""


class StreamError(ApiEvent, tag="error", frozen=True):
    """The API reported an error during the stream."""

    error: JsonObject = field(default_factory=JsonObject)


class UnknownStreamEvent(ApiEvent, frozen=True):
    """An event of a type that this version of Bridle does not know. `raw` has its content."""

    type: str
    raw: Any


if TYPE_CHECKING:
    WireDelta: TypeAlias = (
        TextDelta
        | ThinkingDelta
        | SignatureDelta
        | InputJsonDelta
        | CitationsDelta
        | CompactionDelta
        | UnknownDelta
    )
    """Every kind of delta. The decoder selects the class by `type`."""
    WireEvent: TypeAlias = (
        MessageStart
        | ContentBlockStart
        | ContentBlockDelta
        | ContentBlockStop
        | MessageDelta
        | MessageStop
        | StreamError
        | UnknownStreamEvent
    )
    """Every kind of stream event. The decoder selects the class by `type`."""
else:
    WireDelta = (
        TextDelta
        | ThinkingDelta
        | SignatureDelta
        | InputJsonDelta
        | CitationsDelta
        | CompactionDelta
    )
    WireEvent = (
        MessageStart
        | ContentBlockStart
        | ContentBlockDelta
        | ContentBlockStop
        | MessageDelta
        | MessageStop
        | StreamError
    )
