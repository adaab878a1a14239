"""Messages as far as they are written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bridle import PartialMessages
from bridle._engine.wire.codec import decode_line
from bridle.content import (
    CompactionBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    UnknownBlock,
)
from bridle.messages import AssistantMessage, Message, Usage

Json = dict[str, Any]


def event(type_: str, *, of: str | None = None, **members: object) -> Message:
    """A stream event as the CLI sends it."""
    line = {
        "type": "stream_event",
        "event": {"type": type_, **members},
        "session_id": "s",
        "parent_tool_use_id": of,
    }
    message = decode_line(msgspec.json.encode(line))
    assert isinstance(message, Message)
    return message


def begin(id: str = "m", of: str | None = None) -> Message:
    return event("message_start", message={"id": id, "model": "opus", "content": []}, of=of)


def block(block: Json, index: int = 0, of: str | None = None) -> Message:
    return event("content_block_start", content_block=block, index=index, of=of)


def delta(type_: str, index: int = 0, of: str | None = None, **members: object) -> Message:
    return event("content_block_delta", delta={"type": type_, **members}, index=index, of=of)


def fed(*messages: Message) -> list[AssistantMessage | None]:
    growing = PartialMessages()
    return [growing.feed(message) for message in messages]


def test_a_message_grows_and_says_that_it_is_partial() -> None:
    """R379, R381, R382, C38: from nothing, in the order of the stream."""
    seen = fed(
        begin(),
        block({"type": "text", "text": ""}),
        delta("text_delta", text="Hel"),
        delta("text_delta", text="lo"),
        event("content_block_stop", index=0),
        event("message_stop"),
    )
    partial = [message for message in seen if message is not None]
    assert [message.text for message in partial] == ["", "", "Hel", "Hello"]
    assert seen[4:] == [None, None]
    assert all(message.is_partial for message in partial)
    assert (partial[0].content, partial[-1].content) == ([], [TextBlock("Hello")])
    assert (partial[-1].message_id, partial[-1].model) == ("m", "opus")
    assert partial[-1].session_id == "s"
    assert partial[-1].content[0].raw == {"type": "text", "text": "Hello"}


def test_every_kind_of_block_grows_in_its_own_way() -> None:
    seen = fed(
        begin(),
        block({"type": "thinking", "thinking": "", "signature": ""}),
        delta("thinking_delta", thinking="hm"),
        delta("signature_delta", signature="sig"),
        block({"type": "tool_use", "id": "t", "name": "Bash", "input": {}}, 1),
        delta("input_json_delta", 1, partial_json='{"command": '),
        delta("input_json_delta", 1, partial_json='"ls"}'),
        event("content_block_stop", index=1),
        block({"type": "text", "text": "a"}, 2),
        delta("citations_delta", 2, citation={"type": "char_location"}),
        event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 7}),
    )
    assert [message is None for message in seen] == [False] * 5 + [True] * 2 + [False] * 4
    last = seen[-1]
    assert last is not None
    assert last.content == [
        ThinkingBlock("hm", "sig"),
        ToolUseBlock("t", "Bash", {"command": "ls"}),
        TextBlock("a", [{"type": "char_location"}]),
    ]
    assert (last.stop_reason, last.usage) == ("tool_use", Usage(output_tokens=7))


def test_a_compaction_block_grows() -> None:
    last = fed(
        begin(),
        block({"type": "compaction", "content": None, "encrypted_content": None}),
        delta("compaction_delta", content="The user ", encrypted_content=None),
        delta("compaction_delta", content="asked.", encrypted_content="e"),
    )[-1]
    assert last is not None
    assert last.content == [CompactionBlock("The user asked.", "e")]


def test_a_failed_compaction_has_no_content() -> None:
    last = fed(
        begin(),
        block({"type": "compaction", "content": None, "encrypted_content": None}),
        delta("compaction_delta", content=None, encrypted_content=None),
    )[-1]
    assert last is not None
    assert last.content == [CompactionBlock()]


def test_what_was_handed_out_does_not_grow_any_more() -> None:
    first, second, third = fed(
        begin(), block({"type": "text", "text": "a"}), delta("text_delta", text="b")
    )
    assert first is not None
    assert second is not None
    assert third is not None
    assert (first.text, second.text, third.text) == ("", "a", "ab")


def test_subagents_write_beside_one_another() -> None:
    growing = PartialMessages()
    for whose in (None, "toolu_1"):
        growing.feed(begin(of=whose))
        growing.feed(block({"type": "text", "text": ""}, of=whose))
    main = growing.feed(delta("text_delta", text="main"))
    sub = growing.feed(delta("text_delta", text="sub", of="toolu_1"))
    assert main is not None
    assert sub is not None
    assert (main.text, main.parent_tool_use_id) == ("main", None)
    assert (sub.text, sub.parent_tool_use_id) == ("sub", "toolu_1")


def test_interleaved_deltas_of_siblings_never_mix() -> None:
    """The main agent, two subagents and a nested one write at the same time."""
    writers = (None, "toolu_1", "toolu_2", "toolu_nested")
    names = {writer: writer or "main" for writer in writers}
    partial = PartialMessages()
    for writer in writers:
        partial.feed(begin(id=f"m-{names[writer]}", of=writer))
        partial.feed(block({"type": "thinking", "thinking": ""}, of=writer))
        partial.feed(block({"type": "text", "text": ""}, index=1, of=writer))
    last: dict[str | None, AssistantMessage | None] = {}
    for number in range(3):
        for writer in reversed(writers):
            thought = f"t{number} of {names[writer]} "
            partial.feed(delta("thinking_delta", thinking=thought, of=writer))
            text = f"{number} of {names[writer]} "
            last[writer] = partial.feed(delta("text_delta", index=1, text=text, of=writer))
    for writer, message in last.items():
        assert message is not None
        assert message.message_id == f"m-{names[writer]}"
        assert message.text == "".join(f"{number} of {names[writer]} " for number in range(3))
        assert message.content[0] == ThinkingBlock(
            "".join(f"t{number} of {names[writer]} " for number in range(3))
        )
    # The end of one message leaves the others alone.
    partial.feed(event("message_stop", of="toolu_1"))
    grown = partial.feed(delta("text_delta", index=1, text="!", of="toolu_2"))
    assert grown is not None
    assert grown.text.endswith("2 of toolu_2 !")


def test_a_message_that_begins_anew_forgets_the_one_before() -> None:
    """An answer that broke off is written again by the API."""
    *_, last = fed(begin(), block({"type": "text", "text": "half"}), begin("n"))
    assert last is not None
    assert (last.message_id, last.content) == ("n", [])


TEXT = {"type": "text", "text": "a"}
TOOL = {"type": "tool_use", "id": "t", "name": "n", "input": {}}


@pytest.mark.parametrize(
    "messages",
    [
        [delta("text_delta", text="b")],
        [begin(), event("error", error={"type": "overloaded"}), delta("text_delta", text="b")],
        [begin(), delta("text_delta", 3, text="b")],
        [begin(), block(TEXT), delta("thinking_delta", thinking="b")],
        [begin(), block(TEXT), delta("of_tomorrow", x=1)],
        [begin(), block(TEXT), event("ping")],
        [begin(), block(TEXT), event("message_delta", delta={})],
        [begin(), block(TOOL), delta("input_json_delta", partial_json='{"a'), event(
            "content_block_stop", index=0)],
        [begin(), block(TEXT), delta("input_json_delta", partial_json="{}"), event(
            "content_block_stop", index=0)],
        [begin(), block(TOOL), event("content_block_stop", index=0)],
        [begin(), AssistantMessage()],
    ],
    ids=[
        "before the start",
        "after an error",
        "a block that never began",
        "a delta of another block",
        "an unknown delta",
        "an unknown event",
        "an end that says nothing",
        "an input that broke off",
        "an input of a text",
        "no input",
        "the whole message",
    ],
)  # fmt: skip
def test_what_adds_nothing_makes_nothing(messages: list[Message]) -> None:
    assert fed(*messages)[-1] is None


def test_a_block_of_tomorrow_is_kept() -> None:
    _, message = fed(begin(), block({"type": "hologram", "beams": 1}))
    assert message is not None
    assert message.content == [UnknownBlock("hologram", {"type": "hologram", "beams": 1})]
