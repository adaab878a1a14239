"""A conversation that grows: each message is returned once, in the order of the conversation."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.steps import ReplaceSteps
from tests.support.stored import assistant, call, result, user

from bridle._records.session_store import Entry
from bridle.sessions._transcripts.new_messages import NewMessages
from bridle.sessions._transcripts.transcript import conversation, entries_of_objects


def uuids(new: NewMessages) -> list[Any]:
    return [message.raw["uuid"] for message in new.take()]


def added(*parts: Sequence[Entry]) -> list[list[Any]]:
    """Add parts of a transcript. Return the uuids of the messages that each of them brought."""
    new = NewMessages()
    found: list[list[Any]] = []
    for part in parts:
        new.add(part)
        found.append(uuids(new))
    return found


def test_each_message_is_returned_once() -> None:
    parts = [user("a", None), assistant("b", "a")], [user("c", "b"), assistant("d", "c")]
    assert added(parts[0], [], parts[1]) == [["a", "b"], [], ["c", "d"]]


def test_entries_without_a_message_are_left_out() -> None:
    parts = (
        [user("a", None), {"type": "attachment", "uuid": "x", "parentUuid": "a"}],
        [user("m", "x", isMeta=True), {"type": "custom-title", "customTitle": "t"}],
        [user("s", None, isSidechain=True), assistant("b", "m")],
        [{"type": "last-prompt", "leafUuid": "b"}, user("c", "b")],
    )
    assert added(*parts) == [["a"], [], ["b"], ["c"]]


def test_parallel_calls_and_their_results_are_all_returned() -> None:
    one, two = (assistant(uuid, "a", call(uuid), id="m") for uuid in ("b", "c"))
    two["parentUuid"] = "b"
    parts = (
        [user("a", None), one, two],
        [user("rb", "b", result("b"))],
        [user("rc", "c", result("c")), assistant("d", "rc")],
    )
    assert added(*parts) == [["a", "b", "c"], ["rb"], ["rc", "d"]]


def test_a_branch_that_the_cli_leaves_brings_nothing_more() -> None:
    """A last-prompt entry names the branch that the CLI resumes."""
    parts = (
        [user("a", None), assistant("b", "a"), user("c", "b")],
        [user("other", "b"), {"type": "last-prompt", "leafUuid": "c"}],
        [assistant("d", "c")],
        [user("hidden", "other")],
        [{"type": "last-prompt", "leafUuid": "hidden"}],
    )
    assert added(*parts) == [["a", "b", "c"], [], ["d"], [], ["other", "hidden"]]


def test_messages_after_a_compaction_are_returned() -> None:
    boundary = {"type": "system", "uuid": "c", "parentUuid": None, "logicalParentUuid": "b"}
    parts = [user("a", None), assistant("b", "a")], [boundary, user("d", "c")]
    assert added(*parts) == [["a", "b"], ["d"]]


def test_lines_that_could_not_be_read_are_counted() -> None:
    new = NewMessages()
    new.add([user("a", None), {"type": "bridle_damaged_line", "line": "{"}])
    assert uuids(new) == ["a"]
    assert new.damaged == 1


def test_a_long_conversation_is_not_looked_through_for_each_message(
    replace_steps: ReplaceSteps,
) -> None:
    looks: list[int] = []

    def counted(entries: Any, **options: Any) -> Any:
        looks.append(len(entries))
        return conversation(entries, **options)

    replace_steps(find_conversation=counted)
    new = NewMessages()
    for number in range(50):
        new.add([user(f"{number}", f"{number - 1}" if number else None)])
        assert uuids(new) == [f"{number}"]
    assert looks == [1]


def test_the_content_of_returned_messages_is_not_kept() -> None:
    new = NewMessages()
    new.add([user("a", None, "x" * 1000), user("side", None, "x" * 1000, isSidechain=True)])
    new.add([{"type": "system", "uuid": "b", "parentUuid": "a", "content": "x" * 1000}])
    new.add([assistant("c", "b")])
    assert uuids(new) == ["a", "c"]
    assert [entry.raw_line for entry in new._entries] == [b""] * 4


@pytest.mark.parametrize("seed", range(50))
def test_in_the_end_all_messages_of_the_conversation_were_returned(seed: int) -> None:
    """Whatever the tree looks like, and in whatever parts it is read."""
    chance = random.Random(seed)
    entries: list[Any] = []
    for number in range(chance.randint(1, 25)):
        parents = [one["uuid"] for one in entries if "uuid" in one]
        near = parents[-min(len(parents), chance.choice((1, 1, 1, 1, 2, 4)))] if parents else None
        made = [
            user(f"{number}", near, isMeta=chance.random() < 0.1),
            assistant(f"{number}", near, call(f"{number}"), id=f"m{number // 3}"),
            user(f"{number}", near, result(f"{max(0, number - chance.randint(1, 3))}")),
            {"type": "attachment", "uuid": f"{number}", "parentUuid": near},
            {"type": "last-prompt", "leafUuid": chance.choice([*parents, "gone"])},
            user(f"{number}", None, isSidechain=True),
        ]
        entries.append(chance.choices(made, (6, 6, 3, 1, 1, 1))[0])
    new = NewMessages()
    returned: list[Any] = []
    start = 0
    while start < len(entries):
        end = start + chance.randint(1, 5)
        new.add(entries[start:end])
        if chance.random() < 0.7 or end >= len(entries):
            returned += uuids(new)
        start = end
    assert len(returned) == len(set(returned))
    shown = [
        one.uuid
        for one in conversation(entries_of_objects(entries))
        if one.type in ("user", "assistant") and not one.is_meta
    ]
    assert set(shown) <= set(returned)
