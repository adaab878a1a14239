"""Subagents, tasks, usage and broken streams, in recordings of both CLIs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridle._engine.delivery.text_stream import TextStream
from bridle._engine.turns.subagents import AgentBook
from bridle._engine.turns.task_records import Tasks
from bridle._engine.turns.usage import UsageBook
from bridle.messages import Message, MessageStop, ResultMessage, StreamEvent, TaskStartedMessage

GOLDEN = Path(__file__).parent / "golden"
NEWER, OLDER = "2.1.325", "2.1.197"
BOTH = pytest.mark.parametrize("version", [NEWER, OLDER])


def messages_of(version: str, name: str, book: AgentBook | None = None) -> list[Message]:
    book = book or AgentBook()
    entries = map(json.loads, (GOLDEN / version / f"{name}.ndjson").read_text("utf-8").splitlines())
    frames = [book.decode(entry["line"].encode()) for entry in entries if entry["dir"] == "out"]
    return [frame for frame in frames if isinstance(frame, Message)]


@BOTH
def test_a_nested_subagent_has_its_path_on_the_wire(version: str) -> None:
    messages = messages_of(version, "agents_nested")
    started = [message for message in messages if isinstance(message, TaskStartedMessage)]
    assert {
        message.tool_use_id: [step.id for step in message.agent_path] for message in started
    } == {
        "toolu_one": ["toolu_one"],
        "toolu_two": ["toolu_two"],
        "toolu_nested": ["toolu_one", "toolu_nested"],
    }
    assert {step.type for message in started for step in message.agent_path} == {"general-purpose"}


@BOTH
@pytest.mark.parametrize(
    "name", ["agents_nested", "agent_background", "agent_default", "background_shell"]
)
def test_tasks_are_listed_until_they_end(version: str, name: str) -> None:
    book = AgentBook()
    tasks = Tasks(book)
    most = 0
    for message in messages_of(version, name, book):
        if type(message) in Tasks.KINDS:
            tasks.observe(message)
            most = max(most, len(tasks.list()))
    assert (most, tasks.list()) == (3 if name == "agents_nested" else 1, [])


@BOTH
@pytest.mark.parametrize("name", ["two_turns", "agents_nested", "agent_default"])
def test_the_usage_of_a_session_is_the_total_of_its_last_result(version: str, name: str) -> None:
    """`usage` of a result leaves out subagents, and its totals count from the start."""
    book = UsageBook()
    messages = messages_of(version, name)
    book.note(messages)
    results = [message for message in messages if isinstance(message, ResultMessage)]
    for result in results:
        book.charge(result, None, ())
    total = results[-1].model_usage["claude-sonnet-4-5"]
    used = book.read()
    assert (used.input_tokens, used.output_tokens) == (total.input_tokens, total.output_tokens)
    assert len(used.turns) == len(results)
    assert sum(turn.input_tokens for turn in used.turns) == used.input_tokens


@BOTH
def test_a_broken_stream_is_marked_by_the_newer_cli(version: str) -> None:
    """2.1.325 ends it with `message_stop` and `abandoned_blocks`, 2.1.197 only starts again."""
    messages = messages_of(version, "disconnect_partial")
    stops = [
        message.abandoned_blocks
        for message in messages
        if isinstance(message, StreamEvent) and isinstance(message.event, MessageStop)
    ]
    abandoned = [stop for stop in stops if stop is not None]
    assert [each["from_block_index"] for each in abandoned] == ([0] if version == NEWER else [])
    stream = TextStream()
    text = "".join(stream.feed(message) for message in messages) + stream.end()
    assert text.endswith("whole at last")
