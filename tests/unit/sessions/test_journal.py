"""The entries of a journal, and outcomes as JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bridle._engine.wire.codec import Unencodable, decode_line, encode_user_message
from bridle.approvals import PendingApproval
from bridle.content import TextBlock
from bridle.errors import ProcessInfo
from bridle.events import ApiRetry
from bridle.messages import Message, ResultMessage, Usage
from bridle.outcomes import Outcome, OutcomeReason
from bridle.sessions._journal import (
    JournalEntry,
    OutcomeEntry,
    PromptEntry,
    ReceivedEntry,
    StoredOutcome,
    ToolCallEntry,
    ToolResultEntry,
    UnknownEntry,
    content_of,
    decode_entries,
    encode_entry,
    last_directory,
    results_in,
    store_outcome,
)

SESSION = "00000000-0000-4000-8000-000000000001"

ENTRIES: list[JournalEntry] = [
    PromptEntry(uuid="1", at=1.5, prompt_uuid="p", content="hello", cwd="/work"),
    PromptEntry(
        uuid="2", at=2.0, prompt_uuid="q", content=[{"type": "text"}], cwd="/", continues="p"
    ),
    PromptEntry(uuid="3", at=2.0, prompt_uuid="r", content=None, cwd="/", resumes="toolu_1"),
    ToolCallEntry(
        uuid="4",
        at=3.0,
        tool_use_id="toolu_1",
        tool_name="Bash",
        tool_input={"command": "ls"},
        agent_id="a1",
        prompt_uuid="p",
        idempotency_key="k",
    ),
    ToolResultEntry(uuid="5", at=4.0, tool_use_id="toolu_1", is_error=True, text="no"),
    OutcomeEntry(
        uuid="6",
        at=5.0,
        prompt_uuid="p",
        outcome=StoredOutcome(reason=OutcomeReason.COMPLETED, text="done"),
    ),
    ReceivedEntry(uuid="7", at=6.0, prompt_uuid="p"),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda one: type(one).__name__ + one.uuid)
def test_an_entry_survives_a_store(entry: JournalEntry) -> None:
    stored = msgspec.json.decode(msgspec.json.encode(encode_entry(entry)))
    assert stored["uuid"] == entry.uuid
    assert decode_entries([stored]) == [entry]


def test_an_entry_names_its_type_and_omits_empty_fields() -> None:
    assert encode_entry(ENTRIES[0]) == {
        "type": "prompt",
        "uuid": "1",
        "at": 1.5,
        "prompt_uuid": "p",
        "content": "hello",
        "cwd": "/work",
    }


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "of the future", "uuid": "1", "at": 1.0},
        {"type": "received", "uuid": "1", "at": 1.0},
        {"type": "outcome", "uuid": "1", "at": 1.0, "prompt_uuid": "p", "outcome": {"reason": "?"}},
        {"uuid": "1"},
        {},
    ],
    ids=["unknown type", "missing field", "unknown reason", "no type", "empty"],
)
def test_an_unknown_entry_is_kept(entry: dict[str, object]) -> None:
    assert decode_entries([entry, encode_entry(ENTRIES[-1])]) == [UnknownEntry(entry), ENTRIES[-1]]


def test_unknown_fields_of_a_newer_version_are_ignored() -> None:
    assert decode_entries([{**encode_entry(ENTRIES[-1]), "more": 1}]) == [ENTRIES[-1]]


# ---------------------------------------------------------------- prompts and results


def test_the_working_directory_of_the_last_prompt_is_found() -> None:
    assert last_directory(ENTRIES[:1]) == "/work"
    assert last_directory(ENTRIES) == "/"
    assert last_directory([UnknownEntry({})]) is None


def test_the_content_of_a_prompt_is_json() -> None:
    assert content_of("hello") == "hello"
    assert content_of([TextBlock("a"), {"type": "text", "text": "b"}]) == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]
    assert content_of(encode_user_message("from a line", "u")) == "from a line"
    with pytest.raises(Unencodable):
        content_of([])


def user_line(content: object, **more: object) -> Message:
    line = {"type": "user", "message": {"role": "user", "content": content}, **more}
    message = decode_line(msgspec.json.encode(line))
    assert isinstance(message, Message)
    return message


def test_tool_results_are_found_in_messages_of_all_agents() -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": "one"}
    blocks = {
        "type": "tool_result",
        "tool_use_id": "b",
        "content": [{"type": "text", "text": "two"}],
        "is_error": True,
    }
    found = results_in(
        [
            user_line("a prompt"),
            user_line([result]),
            user_line([{"type": "text", "text": "-"}, blocks], parent_tool_use_id="toolu_9"),
        ]
    )
    assert [(one.tool_use_id, one.text, one.is_error) for one, _ in found] == [
        ("a", "one", False),
        ("b", "two", True),
    ]
    assert [was_interrupted for _, was_interrupted in found] == [False, False]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("user-rejected", True),
        ("interrupted", True),
        ("cancelled", True),
        ("permission-rule", False),
        ("automode-blocked", False),
        (None, False),
        ("of a newer CLI", True),
        (["user-rejected"], True),
    ],
)
def test_the_result_of_a_call_that_was_stopped_is_distinguished_from_that_of_the_tool(
    kind: object, expected: bool
) -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": "one"}
    other = {"id": "b", "non_execution_kind": "user-rejected"}
    meta = [{"id": "a", "non_execution_kind": kind}, other]
    ((_, was_interrupted),) = results_in([user_line([result], tool_result_meta=meta)])
    assert was_interrupted is expected


# ---------------------------------------------------------------- outcomes

RESULT = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "result": "done",
    "uuid": "u",
    "session_id": SESSION,
    "total_cost_usd": 0.5,
    "a new field": [1],
    "deferred_tool_use": {"id": "toolu_1", "name": "Bash", "input": {}},
}


def result_message() -> ResultMessage:
    message = decode_line(msgspec.json.encode(RESULT))
    assert isinstance(message, ResultMessage)
    return message


def through_json(outcome: Outcome[Any]) -> Outcome[Any]:
    entry = OutcomeEntry(uuid="1", at=0.0, prompt_uuid="p", outcome=store_outcome(outcome))
    (decoded,) = decode_entries([msgspec.json.decode(msgspec.json.encode(encode_entry(entry)))])
    assert isinstance(decoded, OutcomeEntry)
    return decoded.outcome.restored()


def test_an_outcome_is_restored_with_everything_but_output_and_messages() -> None:
    result = result_message()
    outcome: Outcome[Any] = Outcome(
        reason=OutcomeReason.TOOL_DEFERRED,
        detail="waits",
        text="a",
        output=object(),
        structured_output={"n": [1, None]},
        errors=("e",),
        uuid="p",
        merged_with=("q",),
        session_id=SESSION,
        cost_usd=0.25,
        usage=Usage(input_tokens=3, output_tokens=4),
        num_turns=1,
        model_calls=2,
        tool_calls=3,
        main_model_calls=1,
        duration=1.5,
        result=result,
        messages=(result,),
        pending=PendingApproval(
            session_id=SESSION, tool_name="Bash", tool_input={"a": 1}, tool_use_id="toolu_1"
        ),
        deferred_tool_use=result.deferred_tool_use,
        api_error="overloaded",
        resets_at=9.0,
        api_retries=1,
        last_retry=ApiRetry(attempt=1, max_retries=2, delay=0.5),
        process=ProcessInfo(exit_code=-9, argv=("claude",)),
    )
    again = through_json(outcome)
    assert again == msgspec.structs.replace(outcome, output=None, messages=None)
    assert again.result is not None
    assert again.result.raw == RESULT


def test_an_outcome_without_a_result_is_restored() -> None:
    outcome: Outcome[Any] = Outcome(reason=OutcomeReason.CLI_EXITED, detail="gone")
    assert through_json(outcome) == outcome


def test_half_of_a_surrogate_pair_in_an_error_does_not_hinder_the_journal() -> None:
    outcome: Outcome[Any] = Outcome(
        reason=OutcomeReason.OUTPUT_INVALID, detail="bad \ud83d", errors=("\ude00",)
    )
    again = through_json(outcome)
    assert (again.detail, again.errors) == ("bad ?", ("?",))


def test_every_field_of_an_outcome_is_stored_or_made_again() -> None:
    made_again = {"output", "messages", "deferred_tool_use"}
    assert set(Outcome.__struct_fields__) - made_again == set(StoredOutcome.__struct_fields__)
