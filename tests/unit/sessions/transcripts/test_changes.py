from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from tests.support.stored import ONE, TWO, assistant, call, entry, lines, result, user

from bridle.errors import OptionsError
from bridle.sessions._transcripts.changes import Fork, fork_of, tag_entry, title_entry
from bridle.sessions._transcripts.transcript import (
    Transcript,
    conversation,
    entries_of_bytes,
    entries_of_objects,
    subagent_transcript,
)

NOW = "2026-11-16T10:00:00.000Z"


def uuids() -> Iterator[str]:
    return (f"new-{number}" for number in count())


def fork(data: bytes, up_to: str | None = None, subagents: Any = ()) -> Fork:
    source = Transcript(
        session_id=ONE, project="-p", entries=entries_of_bytes(data), subagents=tuple(subagents)
    )
    return fork_of(source, TWO, up_to=up_to, title="copy", now=NOW, uuids=uuids())


def originals(made: Fork) -> list[str]:
    """The uuids that the conversation of the copy was copied from."""
    found = conversation(entries_of_objects(made.entries), compacted=True)
    return [one.raw["forkedFrom"]["messageUuid"] for one in found]


def test_a_title_is_an_entry_without_spaces_around_it() -> None:
    told = {"type": "custom-title", "customTitle": "A b", "sessionId": ONE}
    assert title_entry(ONE, "  A b\n") == told


@pytest.mark.parametrize("title", ["", "  \n", None, 7])
def test_a_blank_title_is_an_error(title: Any) -> None:
    with pytest.raises(OptionsError, match="title"):
        title_entry(ONE, title)


def test_a_tag_has_no_invisible_characters() -> None:
    assert tag_entry(ONE, " re\u200bview\ufeff ")["tag"] == "review"
    assert tag_entry(ONE, "\uff21\uff22")["tag"] == "AB"
    assert tag_entry(ONE, None) == {"type": "tag", "tag": "", "sessionId": ONE}


@pytest.mark.parametrize("tag", ["", " ", "\u200b", 7])
def test_a_blank_tag_is_an_error(tag: Any) -> None:
    with pytest.raises(OptionsError, match="tag"):
        tag_entry(ONE, tag)


def test_a_fork_has_new_ids_and_the_same_conversation() -> None:
    made = fork(
        lines(
            {"type": "queue-operation"},
            user("a", None, turnAttributionKey="a", slug="s", teamNam="x"),
            entry("progress", "p", "a"),
            assistant("b", "p", call("1"), id="m"),
            assistant("c", "b", call("2"), id="m"),
            user("d", "c", result("2"), sourceToolAssistantUUID="c"),
            user("e", "b", result("1")),
            assistant("f", "e"),
            user("s", "f", isSidechain=True),
        )
    )
    assert originals(made) == ["a", "b", "c", "d", "e", "f"]
    first, *_, last, leaf, title = made.entries
    assert (first["uuid"], first["sessionId"], first["parentUuid"]) == ("new-0", TWO, None)
    assert first["turnAttributionKey"] == "new-0"
    assert first["forkedFrom"] == {"sessionId": ONE, "messageUuid": "a"}
    assert not {"slug", "sourceToolAssistantUUID"} & {key for one in made.entries for key in one}
    assert (last["timestamp"], first["timestamp"] == NOW) == (NOW, False)
    assert leaf == {"type": "last-prompt", "leafUuid": last["uuid"], "sessionId": TWO}
    assert title == {"type": "custom-title", "customTitle": "copy", "sessionId": TWO}


def test_the_content_of_messages_is_not_changed() -> None:
    made = fork(lines(user("a", None, "a"), user("b", "a", "a", toolUseResult=["a"])))
    assert [one["message"]["content"] for one in made.entries[:2]] == ["a", "a"]
    assert made.entries[1]["toolUseResult"] == ["a"]


def test_an_entry_that_is_nested_deeply_is_copied() -> None:
    depth = sys.getrecursionlimit() * 3 // 4
    nested = b"[" * depth + b'"old"' + b"]" * depth
    line = b'{"type":"attachment","uuid":"2","parentUuid":"old","attachment":%s}' % nested
    made: list[Fork] = []
    data = lines(user("old", None)) + line
    thread = threading.Thread(target=lambda: made.append(fork(data)))  # with an empty stack
    thread.start()
    thread.join()
    value: Any = made[0].entries[1]["attachment"]
    while isinstance(value, list):
        [value] = value
    assert value == made[0].entries[0]["uuid"]


def test_a_compaction_refers_to_the_copies() -> None:
    metadata = {"preservedMessages": {"uuids": ["b"], "anchorUuid": "c"}, "trigger": "manual"}
    boundary = entry(
        "system",
        "s",
        None,
        subtype="compact_boundary",
        logicalParentUuid="b",
        compactMetadata=metadata,
    )
    made = fork(lines(user("a", None), assistant("b", "a"), boundary, user("c", "s")))
    assert originals(made) == ["a", "b", "s", "c"]
    copy = made.entries[2]
    assert (copy["parentUuid"], copy["logicalParentUuid"]) == (None, "new-1")
    assert copy["compactMetadata"] == {
        "preservedMessages": {"uuids": ["new-1"], "anchorUuid": "new-3"},
        "trigger": "manual",
    }


def test_a_fork_can_end_at_any_message() -> None:
    data = lines(user("a", None), assistant("b", "a"), user("c", "b"), assistant("d", "c"))
    assert originals(fork(data, "b")) == ["a", "b"]
    with pytest.raises(OptionsError) as caught:
        fork(data, "z")
    assert caught.value.field == "up_to"


def test_a_fork_crosses_damaged_lines_and_cycles() -> None:
    damaged = lines(user("a", None), b"{", assistant("c", "lost"), user("d", "c"))
    assert originals(fork(damaged)) == ["a", "c", "d"]
    assert originals(fork(lines(user("a", "b"), assistant("b", "a")))) == ["a", "b"]
    assert [one["type"] for one in fork(b"").entries] == ["custom-title"]


def test_entries_about_the_session_are_joined() -> None:
    told: list[dict[str, Any]] = [
        {"type": "content-replacement", "sessionId": ONE, "replacements": [1]},
        {"type": "content-replacement", "sessionId": ONE, "replacements": [2]},
        {"type": "content-replacement", "sessionId": ONE, "replacements": "bad"},
        {"type": "relocated", "sessionId": ONE, "relocatedCwd": "/new"},
    ]
    made = fork(lines(user("a", None), *told))
    assert made.entries[1:3] == [
        {"type": "content-replacement", "sessionId": TWO, "replacements": [1, 2]},
        {"type": "relocated", "sessionId": TWO, "relocatedCwd": "/new"},
    ]


def test_subagents_of_copied_calls_are_copied_with_their_own() -> None:
    def agent(name: str, tool_use: str, *content: Any) -> Any:
        data = lines(user("x", None, isSidechain=True), assistant("y", "x", *content), b"{")
        return subagent_transcript(name, entries_of_bytes(data), {"toolUseId": tool_use})

    agents = [agent("agent-3", "3"), agent("agent-2", "2"), agent("agent-1", "1", call("2"))]
    made = fork(lines(user("a", None), assistant("b", "a", call("1"))), subagents=agents)
    assert [found.name for found, _ in made.subagents] == ["agent-1", "agent-2"]
    assert [one["sessionId"] for _, entries in made.subagents for one in entries] == [TWO] * 4


def test_a_call_that_waits_for_approval_does_not_wait_in_the_copy() -> None:
    marker = {"type": "hook_deferred_tool", "toolUseID": "t1", "toolName": "Bash"}
    made = fork(
        lines(
            user("p1", None, "do it"),
            assistant("a1", "p1", call("t1")),
            entry("attachment", "d1", "a1", attachment=marker),
            entry("attachment", "x1", "d1", attachment={"type": "date"}),
        )
    )
    assert originals(made) == ["p1", "a1", "x1"]
