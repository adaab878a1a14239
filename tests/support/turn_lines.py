"""Lines of a turn as the CLI writes them, with and without partial messages."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby, pairwise
from typing import Any

from tests.support.cli import decoded, line, system

from bridle._engine.delivery.turn_events import TurnTranslator
from bridle.events import BlockEnded, TextDelta, ThinkingDelta, ToolStarted, TurnEvent
from bridle.messages import AgentPath
from bridle.outcomes import Outcome, OutcomeReason

Json = dict[str, Any]

OUTCOME: Outcome[Any] = Outcome(reason=OutcomeReason.COMPLETED)


def event(type_: str, parent: str | None = None, **members: object) -> bytes:
    """A stream event."""
    return line(type="stream_event", event={"type": type_, **members}, parent_tool_use_id=parent)


def start(id: str = "m1") -> bytes:
    return event("message_start", message={"id": id, "model": "opus", "content": []})


def stop() -> bytes:
    return event("message_stop")


def abandoned() -> bytes:
    """CLI 2.1.325 ends a stream that broke off in this way."""
    return line(
        type="stream_event",
        event={"type": "message_stop"},
        abandoned_blocks={"api_message_id": "m1", "from_block_index": 0},
    )


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def thinking(words: str) -> Json:
    return {"type": "thinking", "thinking": words, "signature": "s"}


def call(id: str, name: str = "Bash", **input: object) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def whole(*blocks: Json, id: str = "m1", parent: str | None = None, **members: object) -> bytes:
    """A complete assistant line."""
    message = {"id": id, "role": "assistant", "model": "opus", "content": list(blocks)}
    return line(type="assistant", message=message, parent_tool_use_id=parent, **members)


def parts(
    block: Json, *cuts: int, index: int = 0, parent: str | None = None, closed: bool = True
) -> bytes:
    """The stream events of a block, its content cut at these places."""
    kind = block["type"]
    field, delta = {
        "text": ("text", "text_delta"),
        "thinking": ("thinking", "thinking_delta"),
        "tool_use": ("input", "input_json_delta"),
    }[kind]
    content = block[field] if kind != "tool_use" else json.dumps(block[field])
    empty = {**block, field: {} if kind == "tool_use" else ""}
    lines = [event("content_block_start", parent, index=index, content_block=empty)]
    name = "partial_json" if kind == "tool_use" else field
    places = [0, *sorted(cuts), len(content)]
    for begin, end in pairwise(places):
        piece = {"type": delta, name: content[begin:end]}
        lines.append(event("content_block_delta", parent, index=index, delta=piece))
    if closed:
        lines.append(event("content_block_stop", parent, index=index))
    return b"".join(lines)


def tool_result(
    id: str, content: object = "ok", *, parent: str | None = None, is_error: bool = False
) -> bytes:
    block = {"type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error}
    message = {"role": "user", "content": [block]}
    return line(type="user", message=message, parent_tool_use_id=parent)


def task_started(id: str, kind: str | None = "helper", **members: object) -> bytes:
    about = {"description": "look", "prompt": "Look.", "task_type": "local_agent", **members}
    return system("task_started", task_id=f"task_{id}", tool_use_id=id, subagent_type=kind, **about)


def task_ended(id: str, status: str = "completed") -> bytes:
    return system("task_notification", task_id=f"task_{id}", tool_use_id=id, status=status)


def translated(*lines: bytes, outcome: Outcome[Any] | None = None) -> list[TurnEvent]:
    """The events of these lines, and of the end of the turn if there is an outcome."""
    translator = TurnTranslator()
    for message in decoded(b"".join(lines)):
        translator.feed(message)
    if outcome is not None:
        translator.end(outcome)
    return list(translator.ready)


def joined(events: Iterable[TurnEvent]) -> list[TurnEvent]:
    """The events without abandoned blocks, adjacent deltas of one block joined."""
    kept: list[TurnEvent] = []
    for one in events:
        if isinstance(one, BlockEnded) and one.abandoned:
            _drop_open_block(kept, one.agent_path)
        else:
            kept.append(one)
    result: list[TurnEvent] = []
    for (kind, path), group in groupby(kept, lambda one: (type(one), one.agent_path)):
        if kind is TextDelta or kind is ThinkingDelta:
            words = "".join(one.text for one in group if isinstance(one, TextDelta | ThinkingDelta))
            make = TextDelta if kind is TextDelta else ThinkingDelta
            result.append(make(words, agent_path=path))
        else:
            result += group
    return result


def _drop_open_block(events: list[TurnEvent], path: AgentPath) -> None:
    """Remove what was reported of the open block of an agent."""
    for place in reversed(range(len(events))):
        one = events[place]
        if one.agent_path != path:
            continue
        if not isinstance(one, TextDelta | ThinkingDelta | ToolStarted):
            return
        del events[place]
