"""Content blocks: construction, the wire's names, text, places."""

from __future__ import annotations

import typing

import msgspec
import pytest

from bridle import content
from bridle._engine.wire.codec import decode_line
from bridle.content import (
    Block,
    ContentBlock,
    McpToolResultBlock,
    RedactedThinkingBlock,
    SearchResultBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UnknownBlock,
    joined_text,
)
from bridle.messages import UserMessage

WIRE: list[dict[str, object]] = [
    {"type": "text", "text": "a", "citations": [{"type": "char_location"}]},
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "redacted_thinking", "data": "d"},
    {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}},
    {"type": "compaction", "content": "before", "encrypted_content": "e", "signature": "s"},
    {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}},
    {"type": "tool_result", "tool_use_id": "t", "content": "ok", "is_error": True},
    {"type": "image", "source": {"type": "url", "url": "u"}},
    {"type": "document", "source": {"type": "text", "data": "d"}, "title": "t"},
    {"type": "search_result", "source": "s", "title": "t", "content": []},
    {"type": "tool_reference", "tool_name": "Bash"},
    {"type": "container_upload", "file_id": "f"},
    {"type": "server_tool_use", "id": "t", "name": "web_search", "input": {"query": "q"}},
    {"type": "web_search_tool_result", "tool_use_id": "t", "content": [{"title": "x"}]},
    {"type": "web_fetch_tool_result", "tool_use_id": "t", "content": {"url": "u"}},
    {"type": "code_execution_tool_result", "tool_use_id": "t", "content": {"stdout": ""}},
    {"type": "bash_code_execution_tool_result", "tool_use_id": "t", "content": {}},
    {"type": "text_editor_code_execution_tool_result", "tool_use_id": "t", "content": {}},
    {"type": "tool_search_tool_result", "tool_use_id": "t", "content": {}},
    {"type": "advisor_tool_result", "tool_use_id": "t", "content": {"text": "x"}},
    {"type": "mcp_tool_use", "id": "t", "name": "n", "input": {}, "server_name": "s"},
    {"type": "mcp_tool_result", "tool_use_id": "t", "content": "ok", "is_error": True},
    {"type": "mcp_tool_listing", "mcp_server_name": "s", "tools": [{"name": "n"}]},
]


def blocks_of(*wire: object) -> list[ContentBlock]:
    message = decode_line(msgspec.json.encode({"type": "user", "message": {"content": wire}}))
    assert isinstance(message, UserMessage)
    assert isinstance(message.content, list)
    return message.content


@pytest.mark.parametrize("wire", WIRE, ids=lambda wire: wire["type"])
@pytest.mark.requirement("S039")
def test_every_block_type_has_its_class_and_comes_back_whole(wire: dict[str, object]) -> None:
    """R376, R377, R429."""
    (block,) = blocks_of(wire)
    assert not isinstance(block, UnknownBlock)
    assert (block.type, block.raw, block.misfits) == (wire["type"], wire, ())
    by_hand = msgspec.structs.replace(block)
    assert {**by_hand.raw, **wire} == by_hand.raw


def test_the_table_above_names_every_class() -> None:
    known = {kind.__struct_config__.tag for kind in typing.get_args(ContentBlock)} - {None}
    assert {wire["type"] for wire in WIRE} == known


def test_the_union_names_every_block() -> None:
    assert set(typing.get_args(ContentBlock)) == set(Block.__subclasses__())


def test_every_name_of_the_module_is_listed() -> None:
    classes = {n for n, v in vars(content).items() if isinstance(v, type) and issubclass(v, Block)}
    assert classes <= set(content.__all__)


@pytest.mark.requirement("S046")
def test_blocks_are_built_by_position() -> None:
    """R376."""
    assert TextBlock("hi").text == "hi"
    assert ThinkingBlock("hm").signature is None
    assert RedactedThinkingBlock("x").data == "x"
    assert ToolUseBlock("t", "Bash", {"command": "ls"}).input == {"command": "ls"}
    assert ToolResultBlock("t", "ok").is_error is False
    assert UnknownBlock("new", {"type": "new"}).raw == {"type": "new"}


def test_a_block_says_itself_briefly() -> None:
    assert repr(TextBlock("hi")) == "TextBlock(text='hi')"


@pytest.mark.parametrize(
    ("held", "text"),
    [
        (None, ""),
        ("plain", "plain"),
        ([TextBlock("a"), UnknownBlock("x", {}), TextBlock("b")], "ab"),
        ([], ""),
    ],
)
def test_the_text_of_a_tool_result_is_its_text_blocks_joined(
    held: str | list[ContentBlock] | None, text: str
) -> None:
    assert ToolResultBlock("t", held).text == text
    assert McpToolResultBlock("t", held).text == text


def test_joined_text_leaves_thinking_out() -> None:
    assert joined_text([ThinkingBlock("hm"), TextBlock("a")]) == "a"


def test_an_unknown_block_is_kept_whole_among_known_ones() -> None:
    """R377."""
    new = {"type": "hologram", "beams": [1, {"a": None}]}
    blocks = blocks_of({"type": "text", "text": "a"}, new)
    assert blocks == [TextBlock("a"), UnknownBlock("hologram", new)]
    assert [block.type for block in blocks] == ["text", "hologram"]


@pytest.mark.parametrize("odd", [{"no": "type"}, {"type": 5}, {"type": None}])
def test_an_object_without_a_usable_type_is_an_unknown_block(odd: dict[str, object]) -> None:
    assert blocks_of(odd) == [UnknownBlock("", odd)]


def test_a_value_that_is_not_an_object_keeps_its_place_in_the_list() -> None:
    text = {"type": "text", "text": "a", "new": 1}
    blocks = blocks_of("loose", text)
    assert blocks == [UnknownBlock("", "loose"), TextBlock("a")]
    assert blocks[1].raw == text


def test_blocks_inside_blocks_know_their_place() -> None:
    inner = {"type": "text", "text": "a", "new": 1}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [inner, {"type": "new"}]}
    search = {"type": "search_result", "source": "s", "title": "t", "content": [inner]}
    outer, found = blocks_of(result, search)
    assert isinstance(outer, ToolResultBlock)
    assert isinstance(found, SearchResultBlock)
    assert isinstance(outer.content, list)
    assert [block.raw for block in outer.content] == [inner, {"type": "new"}]
    assert found.content[0].raw == inner
    assert outer.raw == result


@pytest.mark.parametrize(
    ("wire", "block", "misfits"),
    [
        ({"type": "text"}, TextBlock(""), ("text",)),
        ({"type": "thinking", "thinking": 5}, ThinkingBlock(""), ("thinking",)),
        (
            {"type": "thinking", "thinking": "hm", "signature": 5},
            ThinkingBlock("hm"),
            ("signature",),
        ),
        (
            {"type": "tool_use", "input": "no"},
            ToolUseBlock("", "", {}),
            ("id", "name", "input"),
        ),
        (
            {"type": "tool_result", "tool_use_id": "t", "content": 5, "is_error": "yes"},
            ToolResultBlock("t"),
            ("content", "is_error"),
        ),
        ({"type": "search_result"}, SearchResultBlock("", "", []), ("source", "title", "content")),
    ],
)
def test_a_block_that_does_not_fit_keeps_its_class(
    wire: dict[str, object], block: Block, misfits: tuple[str, ...]
) -> None:
    """R378, R429."""
    (found,) = blocks_of(wire)
    assert (found, found.misfits, found.raw) == (block, misfits, wire)
