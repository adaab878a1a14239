"""Content blocks: what assistant and user messages, and tool results, are made of.

The rule of this file: one class per block type of the Messages API, named after it; a field
without a default is one the API always sends. The decoder chooses the class by `type`; a type
that is not here arrives as `UnknownBlock`, never as an error. Blocks may be built by hand, to be
sent in a prompt: `TextBlock("hi")`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Union, cast

from msgspec import Struct

from bridle._source import (
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
    "BashCodeExecutionToolResultBlock",
    "Block",
    "CodeExecutionToolResultBlock",
    "CompactionBlock",
    "ContainerUploadBlock",
    "Content",
    "ContentBlock",
    "DocumentBlock",
    "ImageBlock",
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
    """A piece of content. `.raw` is the block as it stood on the wire."""

    @property
    def type(self) -> str:
        """The wire's name of this kind of block."""
        return tag_of(self)


# ------------------------------------------------------------------------- said by the model


class TextBlock(Block, tag="text", frozen=True):
    """Text."""

    text: str
    citations: list[JsonObject] | None = None
    cache_control: JsonObject | None = None


class ThinkingBlock(Block, tag="thinking", frozen=True):
    """What the model thought, and the signature that lets the API take it back."""

    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(Block, tag="redacted_thinking", frozen=True):
    """Thinking the API keeps to itself, encrypted."""

    data: str


class ToolUseBlock(Block, tag="tool_use", frozen=True):
    """The model calls a tool."""

    id: str
    name: str
    input: JsonObject
    caller: JsonObject | None = None


class CompactionBlock(Block, tag="compaction", frozen=True):
    """A summary standing for the conversation before it."""

    content: str | None = None


# ------------------------------------------------------------------------- given to the model


class ToolResultBlock(Block, tag="tool_result", frozen=True):
    """What a tool answered."""

    tool_use_id: str
    content: str | list[WireBlock] | None = None
    is_error: bool = False
    cache_control: JsonObject | None = None

    @property
    def text(self) -> str:
        """The text of the answer, its text blocks joined; images and the like left out."""
        return joined_text(self.content or "")


class ImageBlock(Block, tag="image", frozen=True):
    """An image; its `source` has `type` base64 (with `media_type`, `data`) or url (with `url`)."""

    source: JsonObject
    cache_control: JsonObject | None = None


class DocumentBlock(Block, tag="document", frozen=True):
    """A document: PDF, plain text or a list of blocks, by its `source`."""

    source: JsonObject
    title: str | None = None
    context: str | None = None
    citations: JsonObject | None = None
    cache_control: JsonObject | None = None


class SearchResultBlock(Block, tag="search_result", frozen=True):
    """A search result given to the model, to be cited."""

    source: str
    title: str
    content: list[WireBlock]
    citations: JsonObject | None = None
    cache_control: JsonObject | None = None


class ToolReferenceBlock(Block, tag="tool_reference", frozen=True):
    """A tool found by search, by name."""

    tool_name: str


class ContainerUploadBlock(Block, tag="container_upload", frozen=True):
    """A file put into the code execution container."""

    file_id: str


# ------------------------------------------------------------------------- tools run by the API
# The `content` of these results is a list or an object (an error is one) of the tool's own shape.


class ServerToolUseBlock(Block, tag="server_tool_use", frozen=True):
    """The model calls a tool that the API runs itself."""

    id: str
    name: str
    input: JsonObject
    caller: JsonObject | None = None


class WebSearchToolResultBlock(Block, tag="web_search_tool_result", frozen=True):
    """Hits of a web search."""

    tool_use_id: str
    content: Any
    caller: JsonObject | None = None


class WebFetchToolResultBlock(Block, tag="web_fetch_tool_result", frozen=True):
    """A page fetched."""

    tool_use_id: str
    content: Any
    caller: JsonObject | None = None


class CodeExecutionToolResultBlock(Block, tag="code_execution_tool_result", frozen=True):
    """Output of code run by the API."""

    tool_use_id: str
    content: Any


class BashCodeExecutionToolResultBlock(Block, tag="bash_code_execution_tool_result", frozen=True):
    """Output of a shell command run by the API."""

    tool_use_id: str
    content: Any


class TextEditorCodeExecutionToolResultBlock(
    Block, tag="text_editor_code_execution_tool_result", frozen=True
):
    """Outcome of a file edit made by the API."""

    tool_use_id: str
    content: Any


class ToolSearchToolResultBlock(Block, tag="tool_search_tool_result", frozen=True):
    """Tools found by search."""

    tool_use_id: str
    content: Any


class McpToolUseBlock(Block, tag="mcp_tool_use", frozen=True):
    """The model calls a tool of an MCP server that the API is connected to."""

    id: str
    name: str
    input: JsonObject
    server_name: str = ""


class McpToolResultBlock(Block, tag="mcp_tool_result", frozen=True):
    """What that tool answered."""

    tool_use_id: str
    content: str | list[WireBlock] | None = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """The text of the answer, its text blocks joined."""
        return joined_text(self.content or "")


# ------------------------------------------------------------------------- anything else


class UnknownBlock(Block, frozen=True):
    """A block of a type this version of Bridle does not know, kept as it was."""

    type: str  # pyright: ignore[reportIncompatibleMethodOverride]  # read-only either way: frozen
    raw: Any


ContentBlock: TypeAlias = (
    TextBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolUseBlock
    | CompactionBlock
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
    | McpToolUseBlock
    | McpToolResultBlock
    | UnknownBlock
)
"""Any block a message may hold."""

if TYPE_CHECKING:
    WireBlock: TypeAlias = ContentBlock
    """A `ContentBlock`, in a field that the decoder fills."""
else:
    # What the decoder may choose from by tag. `UnknownBlock` has none: it is what remains.
    WireBlock = Union[ContentBlock.__args__[:-1]]  # noqa: UP007  # made from the other


Content: TypeAlias = str | Sequence[Block | Mapping[str, object]]
"""The content of a prompt: text, or a list of blocks. A block may be a mapping in wire form."""

Prompt: TypeAlias = Content | Mapping[str, object]
"""The content of a prompt, or a whole user message in wire form."""

Prompts: TypeAlias = Prompt | Iterable[Prompt] | AsyncIterable[Prompt]
"""One prompt, or an iterable of prompts."""

_Content: TypeAlias = str | list[ContentBlock] | None


def joined_text(content: str | Sequence[ContentBlock]) -> str:
    """Return the text of some content: itself, or its text blocks joined."""
    if isinstance(content, str):
        return content
    text = ""
    for block in content:
        if type(block) is TextBlock:
            text += block.text
    return text


_HOLDERS = frozenset({ToolResultBlock, McpToolResultBlock, SearchResultBlock})
"""The blocks whose content is made of blocks."""


def bind_blocks(whole: WholeLine, content: _Content, path: Path) -> None:
    """Give the blocks of some content their places on the line of `whole`, unless they have them.

    The content of nearly every message is read, and in nearly every message it is one block. So
    this does what `bind_block` does without its calls, which cost as much again.
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
                index += 1  # noqa: SIM113  # enumerate() alone costs as much as two places
        attach(whole, "_place", place or Place(line, (), ""))  # any place on the line will do
    elif not isinstance(line, Place):
        for index, block in enumerate(content if isinstance(content, list) else ()):
            _bind(block, line, path, index)
        mark_bound(whole, line)


def bind_block(whole: WholeLine, block: ContentBlock, parent: Path, step: str) -> None:
    """Give the only block of `whole` its place on the line, unless it has it."""
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
