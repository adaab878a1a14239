"""The events of a turn: the same from parts and from whole blocks, each agent by itself."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cli import echo, line, result, synthetic, system, user
from tests.support.turn_lines import (
    OUTCOME,
    abandoned,
    call,
    event,
    joined,
    parts,
    start,
    stop,
    task_ended,
    task_started,
    text,
    thinking,
    tool_result,
    translated,
    whole,
)

from bridle.content import TextBlock, ThinkingBlock, ToolUseBlock
from bridle.events import (
    BlockEnded,
    RetryScheduled,
    SubagentEnded,
    SubagentStarted,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolInput,
    ToolStarted,
    TurnEnded,
)
from bridle.messages import Subagent

HELLO = BlockEnded("text", TextBlock("Hello"))
VOID = BlockEnded("text", abandoned=True)


# ---------------------------------------------------------------- blocks


def test_a_whole_block_is_one_delta_and_its_end() -> None:
    assert translated(whole(text("Hello"))) == [TextDelta("Hello"), HELLO]


def test_parts_are_reported_at_once_and_the_whole_block_adds_its_end() -> None:
    streamed = start() + parts(text("Hello"), 2, closed=False)
    assert translated(streamed) == [TextDelta("He"), TextDelta("llo")]
    end = whole(text("Hello")) + event("content_block_stop", index=0) + stop()
    assert translated(streamed, end) == [TextDelta("He"), TextDelta("llo"), HELLO]


def test_thinking_has_its_own_deltas() -> None:
    block = thinking("Hm")
    ended = BlockEnded("thinking", ThinkingBlock("Hm", "s"))
    assert translated(start(), parts(block, 1, closed=False), whole(block)) == [
        ThinkingDelta("H"),
        ThinkingDelta("m"),
        ended,
    ]


def test_a_tool_call_starts_before_its_input_is_complete() -> None:
    block = call("t1", command="ls")
    begun = start() + parts(block, 3, closed=False)
    assert translated(begun) == [ToolStarted("t1", "Bash")]
    whole_call = [
        ToolStarted("t1", "Bash"),
        ToolInput("t1", "Bash", {"command": "ls"}),
        BlockEnded("tool_use", ToolUseBlock("t1", "Bash", {"command": "ls"})),
    ]
    assert translated(begun, whole(block)) == translated(whole(block)) == whole_call


def test_a_tool_ends_with_its_result() -> None:
    lines = (whole(call("t1")), tool_result("t1", [text("a"), text("b")], is_error=True))
    ended = translated(*lines)[-1]
    assert ended == ToolEnded("t1", "Bash", [TextBlock("a"), TextBlock("b")], is_error=True)
    assert isinstance(ended, ToolEnded)
    assert ended.text == "ab"


def test_the_result_of_an_unknown_call_has_no_name() -> None:
    assert translated(tool_result("t9")) == [ToolEnded("t9", "", "ok")]


@pytest.mark.parametrize(
    ("content", "is_error", "words"),
    [
        ([{"type": "web_search_result", "url": "x"}], False, ""),
        ({"type": "web_search_tool_result_error", "error_code": "x"}, True, ""),
    ],
)
def test_a_tool_that_the_api_runs_ends_in_the_same_answer(
    content: Any, is_error: bool, words: str
) -> None:
    asked = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": content}
    begun, given, _, ended = translated(whole(asked), whole(found))
    assert (begun, given) == (
        ToolStarted("s1", "web_search"),
        ToolInput("s1", "web_search", {"q": "x"}),
    )
    assert isinstance(ended, ToolEnded)
    assert (ended.id, ended.name, ended.is_error, ended.text) == (
        "s1",
        "web_search",
        is_error,
        words,
    )


def test_empty_blocks_redacted_thinking_and_echoes_add_nothing() -> None:
    hidden = {"type": "redacted_thinking", "data": "x"}
    begun = event("content_block_start", index=0, content_block=hidden)
    assert translated(start(), begun, whole(hidden), whole(text("")), echo("u1")) == []


def test_a_reader_that_begins_in_the_middle_of_a_block_gets_the_rest_once() -> None:
    rest = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "lo"})
    assert translated(rest, whole(text("Hello"))) == [TextDelta("lo"), HELLO]


def test_a_block_without_a_whole_message_ends_with_the_stream() -> None:
    assert translated(start(), parts(text("Hello")), stop())[-1] == HELLO
    both = start() + parts(text("Hello")) + parts(thinking("x"), index=1) + stop()
    assert translated(both) == [
        TextDelta("Hello"),
        HELLO,
        ThinkingDelta("x"),
        BlockEnded("thinking", ThinkingBlock("x")),
    ]


def test_partial_messages_of_the_program_are_ignored() -> None:
    assert translated(whole(text("so far"), is_partial=True)) == []


def test_an_error_report_is_not_text() -> None:
    assert translated(synthetic("API Error: 529", error="server_error")) == []
    assert translated(synthetic("Total cost: $0.01"))[0] == TextDelta("Total cost: $0.01")


# ---------------------------------------------------------------- broken streams

CUT = start() + parts(text("Hello"), closed=False)


@pytest.mark.parametrize("end", [b"", abandoned(), event("error", error={})])
def test_another_answer_in_place_of_one_that_broke_off_voids_it(end: bytes) -> None:
    assert translated(CUT, end, whole(text("Bye"), id="m2")) == [
        TextDelta("Hello"),
        VOID,
        TextDelta("Bye"),
        BlockEnded("text", TextBlock("Bye")),
    ]


@pytest.mark.parametrize(
    "again",
    [
        whole(text("Hello you"), id="m2"),
        start("m2") + parts(text("Hello you"), 2, 7) + stop(),
        start("m2") + parts(text("He"), closed=False) + whole(text("Hello you"), id="m3"),
        echo("u1") + whole(text("Hello you"), id="m2"),
    ],
    ids=["whole", "in deltas", "broken again", "after the echo of the prompt"],
)
def test_an_answer_that_begins_as_the_broken_one_continues_it(again: bytes) -> None:
    ended = BlockEnded("text", TextBlock("Hello you"))
    assert joined(translated(CUT, again)) == [TextDelta("Hello you"), ended]


def test_an_answer_that_differs_later_voids_the_broken_one() -> None:
    again = start("m2") + parts(text("Help me"), 3) + stop()
    events = translated(CUT, abandoned(), again)
    assert events[:2] == [TextDelta("Hello"), VOID]
    assert joined(events) == [TextDelta("Help me"), BlockEnded("text", TextBlock("Help me"))]


def test_an_answer_of_another_kind_voids_the_broken_one() -> None:
    events = translated(CUT, whole(thinking("Hm"), id="m2"), whole(text("Hello"), id="m2"))
    assert events[1] == VOID
    assert joined(events)[-2:] == [TextDelta("Hello"), HELLO]


def test_a_tool_call_that_broke_off_is_void() -> None:
    cut = start() + parts(call("t1", command="ls"), closed=False) + abandoned()
    void = BlockEnded("tool_use", abandoned=True)
    assert translated(cut, whole(call("t2"), id="m2"))[:3] == [
        ToolStarted("t1", "Bash"),
        void,
        ToolStarted("t2", "Bash"),
    ]


@pytest.mark.parametrize(
    "after",
    [user("[Request interrupted by user]"), result(), synthetic("API Error", error="x")],
    ids=["interrupt", "result", "error report"],
)
def test_a_block_that_never_became_whole_is_void(after: bytes) -> None:
    assert translated(CUT, after) == [TextDelta("Hello"), VOID]
    assert translated(CUT, after, whole(text("Hello again"), id="m2"))[2] == TextDelta(
        "Hello again"
    )


def test_a_tool_result_does_not_end_the_block_that_is_being_written() -> None:
    """CLIs run the first tools of an answer while the model still writes it."""
    lines = (whole(call("t1")), start(), parts(text("Hello"), 2, closed=False), tool_result("t1"))
    assert translated(*lines, whole(text("Hello")))[-2:] == [ToolEnded("t1", "Bash", "ok"), HELLO]


# ---------------------------------------------------------------- subagents

HELPER = (Subagent("a1", "helper"),)


def test_a_foreground_subagent_is_between_its_call_and_the_result() -> None:
    lines = (
        whole(call("a1", "Agent", subagent_type="helper")),
        task_started("a1"),
        whole(text("Found."), parent="a1"),
        task_ended("a1"),
        tool_result("a1"),
    )
    assert translated(*lines)[3:] == [
        SubagentStarted("look", "Look.", agent_path=HELPER),
        TextDelta("Found.", agent_path=HELPER),
        BlockEnded("text", TextBlock("Found."), agent_path=HELPER),
        SubagentEnded("completed", agent_path=HELPER),
        ToolEnded("a1", "Agent", "ok"),
    ]


def test_parallel_subagents_never_share_a_block() -> None:
    def delta(parent: str, words: str) -> bytes:
        piece = {"type": "text_delta", "text": words}
        return event("content_block_delta", parent, index=0, delta=piece)

    begun = {"index": 0, "content_block": text("")}
    lines = (
        whole(call("a1", "Agent"), call("a2", "Agent")),
        task_started("a1"),
        task_started("a2", "other"),
        event("content_block_start", "a1", **begun),
        event("content_block_start", "a2", **begun),
        delta("a1", "on"),
        delta("a2", "tw"),
        delta("a1", "e"),
        delta("a2", "o"),
        whole(text("one"), parent="a1"),
        whole(text("two"), parent="a2"),
    )
    events = translated(*lines)
    second = (Subagent("a2", "other"),)
    for path, words in ((HELPER, "one"), (second, "two")):
        mine = [one for one in events if one.agent_path == path]
        assert joined(mine)[1:] == [
            TextDelta(words, agent_path=path),
            BlockEnded("text", TextBlock(words), agent_path=path),
        ]


@pytest.mark.parametrize("announced_first", [False, True])
def test_the_path_of_a_nested_subagent_names_both(announced_first: bool) -> None:
    """CLI 2.1.197 announces a nested subagent before the call that starts it."""
    inner_call = whole(call("a2", "Task"), parent="a1")
    announced = task_started("a2", "inner")
    steps = (announced, inner_call) if announced_first else (inner_call, announced)
    events = translated(whole(call("a1", "Task")), task_started("a1"), *steps)
    assert [type(one) for one in events[4:]] == [
        ToolStarted,
        ToolInput,
        BlockEnded,
        SubagentStarted,
    ]
    assert [one.agent_path for one in events[6:]] == [HELPER, (*HELPER, Subagent("a2", "inner"))]


def test_a_subagent_without_an_announcement_starts_with_its_first_message() -> None:
    asked = call("a1", "Task", subagent_type="helper", description="look", prompt="Look.")
    lines = (whole(asked), user("Look.", parent_tool_use_id="a1"), tool_result("a1"))
    assert translated(*lines)[3:] == [
        SubagentStarted("look", "Look.", agent_path=HELPER),
        SubagentEnded("completed", agent_path=HELPER),
        ToolEnded("a1", "Task", "ok"),
    ]


def test_a_subagent_whose_call_was_not_seen_is_known_by_its_messages() -> None:
    lines = (whole(text("Hi"), parent="a1", subagent_type="helper"), task_ended("a1", "failed"))
    events = translated(*lines)
    assert (events[0], events[-1]) == (
        SubagentStarted(agent_path=HELPER),
        SubagentEnded("failed", agent_path=HELPER),
    )


def test_a_subagent_that_ends_before_its_call_is_seen_is_reported() -> None:
    kinds = [type(one) for one in translated(task_started("a1"), task_ended("a1"))]
    assert kinds == [SubagentStarted, SubagentEnded]


def test_a_stopped_subagent_ends_before_the_result_of_its_call() -> None:
    """CLIs report the end of a subagent that was interrupted after the result of the call."""
    begun = (whole(call("a1", "Task")), task_started("a1"))
    ended = (tool_result("a1", "rejected", is_error=True), task_ended("a1", "stopped"))
    assert translated(*begun, *ended)[4:] == [
        SubagentEnded("stopped", agent_path=HELPER),
        ToolEnded("a1", "Task", "rejected", is_error=True),
    ]


@pytest.mark.parametrize(
    ("asked", "told", "later"),
    [
        ({}, {"is_backgrounded": True}, b""),
        ({"run_in_background": True}, {}, b""),
        (
            {},
            {"is_backgrounded": False},
            system("background_tasks_changed", tasks=[{"task_id": "task_a1"}]),
        ),
    ],
    ids=["announced", "asked for", "moved later"],
)
def test_a_background_subagent_runs_on_after_the_result_of_its_call(
    asked: dict[str, object], told: dict[str, object], later: bytes
) -> None:
    begun = (whole(call("a1", "Agent", **asked)), task_started("a1", "helper", **told), later)
    events = translated(*begun, tool_result("a1", "launched"), task_ended("a1"))
    assert events[4:] == [
        ToolEnded("a1", "Agent", "launched"),
        SubagentEnded("completed", agent_path=HELPER),
    ]


def test_a_shell_command_in_the_background_is_not_a_subagent() -> None:
    begun = task_started("b1", None, task_type="local_bash")
    assert translated(whole(call("b1")), begun, task_ended("b1"))[3:] == []


def test_an_agent_without_a_tool_call_is_left_out() -> None:
    assert translated(system("task_started", task_type="local_agent", task_id="x")) == []


# ---------------------------------------------------------------- retries and the end


def test_a_retry_is_reported_in_seconds() -> None:
    told = {"attempt": 1, "max_retries": 10, "retry_delay_ms": 500, "error_status": 529}
    retry = system("api_retry", error="overloaded", **told)
    assert translated(retry) == [RetryScheduled(1, 10, 0.5, 529, "overloaded")]


def test_the_end_of_the_turn_is_the_last_event() -> None:
    assert translated(CUT, outcome=OUTCOME) == [TextDelta("Hello"), VOID, TurnEnded(OUTCOME)]
    assert translated(outcome=OUTCOME) == [TurnEnded(OUTCOME)]


def test_other_messages_add_nothing() -> None:
    lines = (system("init"), system("status"), line(type="tool_progress", tool_use_id="t1"))
    assert translated(*lines, result(result="4")) == []


def test_a_block_of_an_unknown_kind_is_an_event() -> None:
    block = {"type": "hologram", "data": "x"}
    message = {"id": "m1", "role": "assistant", "model": "opus", "content": [block]}
    [event] = translated(line(type="assistant", message=message))
    assert isinstance(event, BlockEnded)
    assert (event.kind, event.block and event.block.raw) == ("hologram", block)
