"""What the Messages API itself says inside the CLI's lines: usage, messages, stream events.

The rule of this file: shapes of the API, field by field, in the order it sends them; nothing here
knows the CLI. Lines that carry these values are in `bridle.messages`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field

from bridle._source import JsonObject
from bridle.content import WireBlock

__all__ = [
    "ApiMessage",
    "ApiUserMessage",
    "CacheCreation",
    "CitationsDelta",
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
    """A part of a message that is no message and no block itself."""


# ------------------------------------------------------------------------- usage


class ServerToolUsage(Record, frozen=True):
    """How often the API ran its own tools."""

    web_search_requests: int = 0
    web_fetch_requests: int = 0


class CacheCreation(Record, frozen=True):
    """Tokens written to the prompt cache, by how long they live."""

    ephemeral_5m_input_tokens: int = 0
    ephemeral_1h_input_tokens: int = 0


class OutputTokensDetails(Record, frozen=True):
    """What the output tokens were spent on."""

    thinking_tokens: int = 0


class Usage(Record, kw_only=True, frozen=True):
    """Tokens of one API message, or of a whole turn in a result."""

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
    """The Messages API's own message inside an assistant line."""

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
    """The Messages API's own message inside a user line."""

    content: str | list[WireBlock] = ""
    role: str = "user"


# ------------------------------------------------------------------------- the stream


class Delta(Struct, frozen=True, gc=False, repr_omit_defaults=True):
    """A piece of a growing block."""


class TextDelta(Delta, tag="text_delta", frozen=True):
    """More text."""

    text: str


class ThinkingDelta(Delta, tag="thinking_delta", frozen=True):
    """More thinking."""

    thinking: str


class SignatureDelta(Delta, tag="signature_delta", frozen=True):
    """The signature of the thinking block that ends."""

    signature: str


class InputJsonDelta(Delta, tag="input_json_delta", frozen=True):
    """More of a tool's input, as JSON text that is whole only at the end."""

    partial_json: str


class CitationsDelta(Delta, tag="citations_delta", frozen=True):
    """One more citation of a text block."""

    citation: JsonObject


class UnknownDelta(Delta, frozen=True):
    """A delta of a type this version of Bridle does not know, kept as it was."""

    type: str
    raw: Any


class ApiEvent(Struct, frozen=True, gc=False, repr_omit_defaults=True):
    """An event of the API's own stream."""


class MessageStart(ApiEvent, tag="message_start", frozen=True):
    """A message begins; its content is still empty."""

    message: ApiMessage = field(default_factory=ApiMessage)


class ContentBlockStart(ApiEvent, tag="content_block_start", frozen=True):
    """A block begins."""

    content_block: WireBlock
    index: int = 0


class ContentBlockDelta(ApiEvent, tag="content_block_delta", frozen=True):
    """A block grows."""

    delta: WireDelta
    index: int = 0


class ContentBlockStop(ApiEvent, tag="content_block_stop", frozen=True):
    """A block is whole."""

    index: int = 0


class StopDelta(Record, kw_only=True, frozen=True):
    """How a message came to its end."""

    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Any = None
    container: Any = None


class MessageDelta(ApiEvent, tag="message_delta", frozen=True):
    """The message's end is known, and its true token counts."""

    delta: StopDelta = field(default_factory=StopDelta)
    usage: Usage | None = None
    context_management: Any = None


class MessageStop(ApiEvent, tag="message_stop", frozen=True):
    """The message is whole."""


class StreamError(ApiEvent, tag="error", frozen=True):
    """The API broke off."""

    error: JsonObject = field(default_factory=JsonObject)


class UnknownStreamEvent(ApiEvent, frozen=True):
    """An event of a type this version of Bridle does not know, kept as it was."""

    type: str
    raw: Any


if TYPE_CHECKING:
    WireDelta: TypeAlias = (
        TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta | CitationsDelta | UnknownDelta
    )
    """Every kind of delta. The decoder chooses between them by their `type`."""
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
    """Every kind of stream event. The decoder chooses between them by their `type`."""
else:
    WireDelta = TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta | CitationsDelta
    WireEvent = (
        MessageStart
        | ContentBlockStart
        | ContentBlockDelta
        | ContentBlockStop
        | MessageDelta
        | MessageStop
        | StreamError
    )
