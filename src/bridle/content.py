"""Content blocks: the parts of assistant messages, user messages and tool results.

There is one class per block type of the Messages API. The API always sends the fields that have no
default. The decoder selects the class by `type`, and decodes an unknown type as `UnknownBlock`. A
program can create blocks and send them in a prompt: `TextBlock("hi")`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Union, cast

from msgspec import Struct, field

from bridle._records.raw_line import (
    JsonObject,
    MisfitLine,
    Path,
    Place,
    Sourced,
    WholeLine,
    attach,
    mark_bound,
    place_at,
    tag_of,
    unbound_line,
)

__all__ = [
    "AdvisorToolResultBlock",
    "BashCodeExecutionToolResultBlock",
    "Block",
    "CodeExecutionToolResultBlock",
    "CompactionBlock",
    "ContainerUploadBlock",
    "Content",
    "ContentBlock",
    "DocumentBlock",
    "FallbackBlock",
    "ImageBlock",
    "McpToolListingBlock",
    "McpToolResultBlock",
    "McpToolUseBlock",
    "Prompt",
    "Prompts",
    "RedactedThinkingBlock",
    "SearchResultBlock",
    "ServerToolUseBlock",
    "TextBlock",
    "TextEditorCodeExecutionToolResultBlock",
    "ThinkingBlock",
    "ToolReferenceBlock",
    "ToolResultBlock",
    "ToolSearchToolResultBlock",
    "ToolUseBlock",
    "UnknownBlock",
    "WebFetchToolResultBlock",
    "WebSearchToolResultBlock",
    "WireBlock",
]


class Block(Sourced, Struct, frozen=True, gc=False, repr_omit_defaults=True):
    """Base class of content blocks. `.raw` is the JSON object of the block."""

    @property
    def type(self) -> str:
        """Return the `type` of the block on the wire."""
        return tag_of(self)


# ------------------------------------------------------------------------- from the model


class TextBlock(Block, tag="text", frozen=True):
    """Text."""

    text: str
    citations: list[JsonObject] | None = None
    cache_control: JsonObject | None = None


class ThinkingBlock(Block, tag="thinking", frozen=True):
    """Thinking of the model, and the signature with which the API verifies it."""

    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(Block, tag="redacted_thinking", frozen=True):
    """Thinking that the API has encrypted."""

    data: str


class ToolUseBlock(Block, tag="tool_use", frozen=True):
    """The model calls a tool."""

    id: str
    name: str
    input: JsonObject
    caller: JsonObject | None = None


class CompactionBlock(Block, tag="compaction", frozen=True):
    """A summary that replaces the conversation before it.

    `content` is None if the API could not make a summary. Send the block back unchanged.
    """

    content: str | None = None
    encrypted_content: str | None = None
    signature: str | None = None
    #: Tools that were added or removed in the conversation that the summary replaces.
    tool_changes: list[JsonObject] | None = None


class FallbackBlock(Block, tag="fallback", frozen=True):
    """Another model continues the answer. `from_` and `to` are objects with the key `model`."""

    from_: JsonObject = field(name="from", default_factory=JsonObject)
    to: JsonObject = field(default_factory=JsonObject)


# ------------------------------------------------------------------------- for the model


class ToolResultBlock(Block, tag="tool_result", frozen=True):
    """The result of a tool call."""

    tool_use_id: str
    content: str | list[WireBlock] | None = None
    is_error: bool = False
    cache_control: JsonObject | None = None

    @property
    def text(self) -> str:
        """Return the text of the result: its text blocks, joined. Other blocks are omitted."""
        return joined_text(self.content or "")


class ImageBlock(Block, tag="image", frozen=True):
    """An image.

    `source` has the `type` "base64" with `media_type` and `data`, or the `type` "url" with `url`.
    """

    source: JsonObject
    cache_control: JsonObject | None = None


class DocumentBlock(Block, tag="document", frozen=True):
    """A document. `source` contains a PDF, plain text, or a list of blocks."""

    source: JsonObject
    title: str | None = None
    context: str | None = None
    citations: JsonObject | None = None
    cache_control: JsonObject | None = None


class SearchResultBlock(Block, tag="search_result", frozen=True):
    """A search result that the model can cite."""

    source: str
    title: str
    content: list[WireBlock]
    citations: JsonObject | None = None
    cache_control: JsonObject | None = None


class ToolReferenceBlock(Block, tag="tool_reference", frozen=True):
    """The name of a tool that a tool search found."""

    tool_name: str


class ContainerUploadBlock(Block, tag="container_upload", frozen=True):
    """A file that was uploaded to the code execution container."""

    file_id: str


# ------------------------------------------------------------------------- tools run by the API
# The `content` of these results is a list or an object. Its form depends on the tool.


class ServerToolUseBlock(Block, tag="server_tool_use", frozen=True):
    """The model calls a tool that the API runs."""

    id: str
    name: str
    input: JsonObject
    caller: JsonObject | None = None


class WebSearchToolResultBlock(Block, tag="web_search_tool_result", frozen=True):
    """The results of a web search."""

    tool_use_id: str
    content: Any
    caller: JsonObject | None = None


class WebFetchToolResultBlock(Block, tag="web_fetch_tool_result", frozen=True):
    """A web page that the API fetched."""

    tool_use_id: str
    content: Any
    caller: JsonObject | None = None


class CodeExecutionToolResultBlock(Block, tag="code_execution_tool_result", frozen=True):
    """The output of code that the API ran."""

    tool_use_id: str
    content: Any


class BashCodeExecutionToolResultBlock(Block, tag="bash_code_execution_tool_result", frozen=True):
    """The output of a shell command that the API ran."""

    tool_use_id: str
    content: Any


class TextEditorCodeExecutionToolResultBlock(
    Block, tag="text_editor_code_execution_tool_result", frozen=True
):
    """The result of a file edit that the API made."""

    tool_use_id: str
    content: Any


class ToolSearchToolResultBlock(Block, tag="tool_search_tool_result", frozen=True):
    """The tools that a tool search found."""

    tool_use_id: str
    content: Any


class AdvisorToolResultBlock(Block, tag="advisor_tool_result", frozen=True):
    """The advice of another model that the API asked."""

    tool_use_id: str
    content: Any


class McpToolUseBlock(Block, tag="mcp_tool_use", frozen=True):
    """The model calls a tool of an MCP server that the API is connected to."""

    id: str
    name: str
    input: JsonObject
    server_name: str = ""


class McpToolResultBlock(Block, tag="mcp_tool_result", frozen=True):
    """The result of a call of such a tool."""

    tool_use_id: str
    content: str | list[WireBlock] | None = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """Return the text of the result: its text blocks, joined."""
        return joined_text(self.content or "")


class McpToolListingBlock(Block, tag="mcp_tool_listing", frozen=True):
    """The tools of an MCP server that the API is connected to."""

    mcp_server_name: str
    tools: list[JsonObject]


# ------------------------------------------------------------------------- unknown types


class UnknownBlock(Block, frozen=True):
    """A block of a type that this version of Bridle does not know. `raw` has its content."""

    type: str  # pyright: ignore[reportIncompatibleMethodOverride]  # read-only either way: frozen
    raw: Any


ContentBlock: TypeAlias = (
    TextBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolUseBlock
    | CompactionBlock
    | FallbackBlock
    | ToolResultBlock
    | ImageBlock
    | DocumentBlock
    | SearchResultBlock
    | ToolReferenceBlock
    | ContainerUploadBlock
    | ServerToolUseBlock
    | WebSearchToolResultBlock
    | WebFetchToolResultBlock
    | CodeExecutionToolResultBlock
    | BashCodeExecutionToolResultBlock
    | TextEditorCodeExecutionToolResultBlock
    | ToolSearchToolResultBlock
    | AdvisorToolResultBlock
    | McpToolUseBlock
    | McpToolResultBlock
    | McpToolListingBlock
    | UnknownBlock
)
"""Every kind of content block."""

if TYPE_CHECKING:
    WireBlock: TypeAlias = ContentBlock
    """A `ContentBlock`, in a field that the decoder sets."""
else:
    # The classes that the decoder selects by tag. `UnknownBlock` has no tag.
    WireBlock = Union[ContentBlock.__args__[:-1]]  # noqa: UP007  # made from ContentBlock


Content: TypeAlias = str | Sequence[Block | Mapping[str, object]]
"""The content of a prompt: text, or a list of blocks. A block can be a JSON object (a mapping)."""

Prompt: TypeAlias = Content | Mapping[str, object]
"""The content of a prompt, or a whole user message as a JSON object (a mapping)."""

Prompts: TypeAlias = Prompt | Iterable[Prompt] | AsyncIterable[Prompt]
"""One prompt, or an iterable of prompts."""

_Content: TypeAlias = str | list[ContentBlock] | None


def joined_text(content: str | Sequence[ContentBlock]) -> str:
    """Return the content if it is text, or its text blocks joined."""
    if isinstance(content, str):
        return content
    text = ""
    for block in content:
        if type(block) is TextBlock:
            text += block.text
    return text


_HOLDERS = frozenset({ToolResultBlock, McpToolResultBlock, SearchResultBlock})
"""The blocks that contain other blocks."""


def bind_blocks(whole: WholeLine, content: _Content, path: Path) -> None:
    """Bind the blocks of `content` to their places in the raw line of `whole`, once.

    Programs read the content of most messages, and most messages have one block. So this repeats
    the code of `bind_block` inline: the function calls would double the time.
    """
    try:
        line = whole._place  # pyright: ignore[reportPrivateUsage]
    except AttributeError:
        return
    if isinstance(line, bytes):
        place = None
        if isinstance(content, list):
            index = 0
            for block in content:
                place = Place(line, path, index)
                attach(block, "_place", place)
                if type(block) in _HOLDERS:
                    _bind_inner(block, line, (*path, index))
                index += 1  # noqa: SIM113  # enumerate() takes as long as two Place objects
        attach(
            whole, "_place", place or Place(line, (), "")
        )  # any place in the line marks it as bound
    elif not isinstance(line, Place):
        for index, block in enumerate(content if isinstance(content, list) else ()):
            _bind(block, line, path, index)
        mark_bound(whole, line)


def bind_block(whole: WholeLine, block: ContentBlock, parent: Path, step: str) -> None:
    """Bind the only block of `whole` to its place in the raw line, once."""
    line = unbound_line(whole)
    if line is not None:
        _bind(block, line, parent, step)
        mark_bound(whole, line)


def _bind(block: ContentBlock, line: bytes | MisfitLine, parent: Path, step: str | int) -> None:
    attach(block, "_place", place_at(line, parent, step))
    if type(block) in _HOLDERS:
        _bind_inner(block, line, (*parent, step))


def _bind_inner(block: ContentBlock, line: bytes | MisfitLine, path: Path) -> None:
    content = cast("ToolResultBlock", block).content
    for index, inner in enumerate(content if isinstance(content, list) else ()):
        _bind(inner, line, (*path, "content"), index)
