"""What a store lacks of a conversation: entries of a file, the beginning, or turns."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.stored import assistant, user

from bridle._records.session_store import Entry
from bridle.outcomes import OutcomeReason
from bridle.sessions._journal import (
    JournalEntry,
    OutcomeEntry,
    PromptEntry,
    ReceivedEntry,
    StoredOutcome,
    UnknownEntry,
)
from bridle.sessions._transcripts.completion import lacks_beginning, lost_answers, missing_entries
from bridle.sessions._transcripts.transcript import conversation, entries_of_objects

TURN: list[Entry] = [user("u1", None), assistant("a1", "u1")]
NEXT: list[Entry] = [user("u2", "a1"), assistant("a2", "u2")]


def named(leaf: str) -> Entry:
    return {"type": "last-prompt", "leafUuid": leaf, "sessionId": "s"}


def branch(entries: list[Entry]) -> list[str | None]:
    return [entry.uuid for entry in conversation(entries_of_objects(entries))]


@pytest.mark.parametrize(
    ("stored", "found", "missing"),
    [
        ([], TURN, TURN),
        (TURN, TURN, []),
        (TURN, [*TURN, *NEXT], NEXT),
        (TURN[:1], [*TURN, *NEXT], [*TURN[1:], *NEXT]),
        # The conversation has gone on elsewhere: the file is an old branch.
        ([*TURN, *NEXT], TURN, []),
        ([*TURN, user("elsewhere", "a1")], [*TURN, *NEXT], []),
        ([*TURN, {"type": "custom-title", "uuid": "t"}], [*TURN, *NEXT], NEXT),
        # A store cannot tell whether it has these.
        (TURN, [*TURN, named("a1"), {"type": "mode"}], []),
    ],
)
def test_the_store_lacks_what_only_the_file_has(
    stored: list[Entry], found: list[Entry], missing: list[Entry]
) -> None:
    assert missing_entries({"": stored}, {"": found}).get("", []) == missing


def test_subagents_are_completed_too() -> None:
    ours = {"": TURN, "subagents/agent-1": NEXT, "tool-results/x": NEXT}
    stored = {"": TURN, "subagents/agent-1": NEXT[:1]}
    assert missing_entries(stored, ours) == {"subagents/agent-1": NEXT[1:]}


@pytest.mark.parametrize(
    "found",
    [
        # The beginning has another branch, which would be the last one in the store.
        [TURN[0], assistant("other", "u1"), *TURN[1:], *NEXT],
        # The conversation was rewound after the CLI had named its branch.
        [*TURN, *NEXT, named("a2"), user("u3", "a1"), assistant("a3", "u3"), named("a3")],
    ],
)
@pytest.mark.parametrize("start", [2, 3, 5])
def test_the_branch_of_the_file_stays_the_one_that_is_resumed(
    found: list[Entry], start: int
) -> None:
    for stored in (found[start:], found[: len(found) - start]):
        missing = missing_entries({"": stored}, {"": found}).get("", [])
        assert branch([*stored, *missing]) == branch(found)


def test_a_branch_that_no_entry_names_is_named() -> None:
    found: list[Entry] = [TURN[0], assistant("other", "u1"), TURN[1]]
    missing = missing_entries({"": [TURN[0], TURN[1]]}, {"": found})[""]
    assert missing == [found[1], {"type": "last-prompt", "leafUuid": "a1"}]


@pytest.mark.parametrize(
    ("stored", "lacks"),
    [
        ([], False),
        (TURN, False),
        (TURN[1:], True),
        (NEXT, True),
        ([*NEXT, *TURN], False),
        ([{"type": "mode"}, *TURN], False),
        ([user("u9", None, logicalParentUuid="gone")], False),
    ],
)
def test_a_first_message_without_its_parent_shows_a_loss(
    stored: list[Entry], *, lacks: bool
) -> None:
    assert lacks_beginning(stored) is lacks


def prompt(uuid: str, content: Any = "hi", **more: Any) -> PromptEntry:
    return PromptEntry(uuid=f"p-{uuid}", at=0.0, prompt_uuid=uuid, content=content, cwd="/", **more)


def answer(uuid: str, reason: OutcomeReason = OutcomeReason.COMPLETED, **more: Any) -> OutcomeEntry:
    given: dict[str, Any] = {"num_turns": 1} | more
    outcome = StoredOutcome(reason=reason, **given)
    return OutcomeEntry(uuid=f"o-{uuid}", at=0.0, prompt_uuid=uuid, outcome=outcome)


@pytest.mark.parametrize(
    ("journal", "lost"),
    [
        ([], []),
        ([prompt("u1"), answer("u1")], []),
        ([prompt("u1"), answer("u1"), prompt("u2"), answer("u2")], ["u2"]),
        ([prompt("u2"), answer("u2"), prompt("u3"), answer("u3")], ["u2", "u3"]),
        # It was reported when the conversation was resumed the last time.
        ([prompt("u2"), answer("u2"), prompt("u1"), answer("u1")], []),
        # No answer that a transcript must have.
        ([prompt("u2"), answer("u2", OutcomeReason.PROMPT_BLOCKED)], []),
        ([prompt("u2"), ReceivedEntry(uuid="r", at=0.0, prompt_uuid="u2")], []),
        ([prompt("u2", "/review"), answer("u2")], []),
        # The CLI has answered a command or a blank prompt itself.
        ([prompt("u2", [{"type": "text", "text": "/cost"}]), answer("u2", num_turns=0)], []),
        ([prompt("u2", None, resumes="toolu_1"), answer("u2")], []),
        ([answer("u2"), UnknownEntry({"type": "probe"})], []),
        # The CLI has joined it with another prompt.
        ([prompt("u2"), answer("u2", merged_with=("u1",))], []),
    ],
)
def test_answers_whose_prompts_the_transcript_lacks_are_lost(
    journal: list[JournalEntry | UnknownEntry], lost: list[str]
) -> None:
    assert lost_answers(journal, entries_of_objects(TURN)) == lost
