"""The entries of a journal, outcomes as JSON, and the idempotency keys of tool calls."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bridle._core.journal import (
    CallKeys,
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
    hash_of_call,
    last_directory,
    restore_outcome,
    results_in,
    store_outcome,
)
from bridle._core.wire import Unencodable, decode_line, encode_user_message
from bridle.approvals import PendingApproval
from bridle.content import TextBlock
from bridle.errors import ProcessInfo
from bridle.events import ApiRetry
from bridle.messages import Message, ResultMessage, Usage
from bridle.outcomes import Outcome, OutcomeReason
from bridle.tools import key_of_call

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
    assert [(one.tool_use_id, one.text, one.is_error) for one in found] == [
        ("a", "one", False),
        ("b", "two", True),
    ]


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
    return restore_outcome(decoded.outcome)


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


# ---------------------------------------------------------------- idempotency keys


def call(key: str, tool_use_id: str, prompt: str | None = "p", **tool_input: object) -> Any:
    return ToolCallEntry(
        uuid=tool_use_id,
        at=0.0,
        tool_use_id=tool_use_id,
        tool_name="pay",
        tool_input=tool_input,
        prompt_uuid=prompt,
        idempotency_key=key,
    )


def prompt(uuid: str, continues: str | None = None, *named: str) -> PromptEntry:
    return PromptEntry(
        uuid=uuid,
        at=0.0,
        prompt_uuid=uuid,
        content="-",
        cwd="/",
        continues=continues,
        named=named,
    )


def result(tool_use_id: str) -> ToolResultEntry:
    return ToolResultEntry(uuid=f"r{tool_use_id}", at=0.0, tool_use_id=tool_use_id)


def key(keys: CallKeys, prompt: str | None = "p", id: str = "t", **tool_input: object) -> str:
    return keys.next(SESSION, prompt, hash_of_call("pay", tool_input), id)


def opened(*prompts: str) -> CallKeys:
    keys = CallKeys()
    for one in prompts:
        keys.open(one)
    return keys


def test_calls_that_differ_in_anything_have_different_keys() -> None:
    keys = opened("p", "q")
    found = [
        key(keys, a=1),
        key(keys, a=1),
        key(keys, a=2),
        key(keys, "q", a=1),
        keys.next(SESSION, "p", hash_of_call("refund", {"a": 1}), "t"),
        keys.next("another session", "p", hash_of_call("pay", {"a": 1}), "t"),
        key(keys, None, a=1),
        key(keys, None, "u", a=1),
    ]
    assert len(set(found)) == len(found)


def test_the_order_of_the_members_of_an_input_does_not_matter() -> None:
    one = key(opened("p"), id="t", a={"x": 1, "y": 2}, b=3)
    other = key(opened("p"), id="u", b=3, a={"y": 2, "x": 1})
    assert one == other


def test_a_repeated_call_gets_the_key_of_the_call_that_was_cut_off() -> None:
    keys = opened("p")
    first, second, third = (key(keys, a=1) for _ in range(3))
    journal = [
        prompt("p"),
        call(first, "t1", a=1),
        call(second, "t2", a=1),
        call(third, "t3", a=1),
        result("t1"),
        result("t3"),
    ]
    again = CallKeys(journal)
    again.open("continues", "p")
    assert key(again, "continues", a=1) == second
    assert key(again, "continues", a=1) not in {first, second, third}


def test_a_call_that_was_repeated_after_two_crashes_has_one_key() -> None:
    first = key(opened("p"), a=1)
    journal = [prompt("p"), call(first, "t1", a=1), prompt("c", "p"), call(first, "t2", "c", a=1)]
    assert key(CallKeys(journal), "c", a=1) == first
    done = CallKeys([*journal, result("t2")])
    assert key(done, "c", a=1) == key_number(1)
    # A result of the first attempt counts as well.
    assert key(CallKeys([*journal, result("t1")]), "c", a=1) == key_number(1)


def key_number(ordinal: int) -> str:
    keys = opened("p")
    return [key(keys, a=1) for _ in range(ordinal + 1)][ordinal]


def test_a_result_that_only_the_transcript_has_ends_the_use_of_a_key() -> None:
    first = key(opened("p"), a=1)
    journal = [prompt("p"), call(first, "t1", a=1)]
    assert key(CallKeys(journal, {"t1"}), a=1) == key_number(1)


def test_a_call_of_another_prompt_is_repeated_with_its_key_only_if_it_was_named() -> None:
    received = ReceivedEntry(uuid="x", at=0.0, prompt_uuid="p")
    journal = [prompt("p"), received, prompt("q"), call("k", "t1", a=1)]
    keys = CallKeys(journal)
    assert key(keys, "q", a=1) == key(opened("q"), "q", a=1)
    keys.open("c", "q", ["t1"])
    assert [key(keys, "c", a=1), key(keys, "c", a=1) == "k"] == ["k", False]
    # After another crash, before the repeated call had a result.
    journal += [prompt("c", "q", "t1"), call("k", "t2", "c", a=1)]
    assert key(CallKeys(journal), "c", a=1) == "k"
    assert key(CallKeys([*journal, result("t2")]), "c", a=1) != "k"


def test_a_call_of_the_same_prompt_is_repeated_before_one_that_was_named() -> None:
    keys = CallKeys([prompt("p"), call("k1", "t1", a=1), prompt("q"), call("k2", "t2", "q", a=1)])
    keys.open("c", "q", ["t1", "t2"])
    assert [key(keys, "c", a=1) for _ in range(2)] == ["k2", "k1"]


def test_the_order_of_the_entries_does_not_matter() -> None:
    """A spool file may reach the store late."""
    first = key(opened("p"), a=1)
    received = ReceivedEntry(uuid="x", at=0.0, prompt_uuid="o")
    journal = [prompt("o"), prompt("p"), call(first, "t1", a=1), prompt("c", "p"), received]
    journal += [prompt("d", "c"), call("k", "t2", "d", b=2), call("l", "t3", "o", a=1)]
    for entries in (journal, journal[::-1]):
        keys = CallKeys(entries)
        assert key(keys, "d", a=1) == first
        assert key(keys, "d", b=2) == "k"
        assert keys.prompt_of_program("d") == "p"
        assert key(keys, "o", "t4", a=1) == key_of_call(SESSION, "t4")


def test_a_store_that_redacts_the_input_does_not_change_the_keys() -> None:
    keys = opened("p")
    first, second = key(keys, card="1234"), key(keys, card="1234")
    hidden = [
        msgspec.structs.replace(
            call(one, id, card="***"), call_hash=hash_of_call("pay", {"card": "1234"})
        )
        for one, id in ((first, "t1"), (second, "t2"))
    ]
    again = CallKeys([prompt("p"), *hidden, result("t1")])
    assert key(again, card="1234") == second


def test_the_keys_of_an_approved_call_are_kept_too() -> None:
    lone = key_of_call(SESSION, "toolu_1")
    journal = [prompt("p"), call(lone, "toolu_1", a=1)]
    assert key(CallKeys(journal), "p", "toolu_2", a=1) == lone


def test_a_call_of_a_prompt_that_needs_no_recovery_depends_on_its_id() -> None:
    keys = opened("p")
    keys.open("c", "p")
    keys.close("p")
    assert key(keys, "p", "t1", a=1) == key_of_call(SESSION, "t1")
    assert key(keys, "c", "t2", a=1) == key_of_call(SESSION, "t2")
    received = ReceivedEntry(uuid="x", at=0.0, prompt_uuid="p")
    old = CallKeys([prompt("p"), call("k", "t1", a=1), received, UnknownEntry({})])
    assert key(old, "p", "t3", a=1) == key_of_call(SESSION, "t3")
