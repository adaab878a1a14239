"""The idempotency keys of tool calls, and which calls are done."""

from __future__ import annotations

from typing import Any

import msgspec

from bridle.sessions._call_keys import CallKeys, hash_of_call, keys_of
from bridle.sessions._journal import (
    PromptEntry,
    ReceivedEntry,
    ToolCallEntry,
    ToolResultEntry,
    UnknownEntry,
)
from bridle.tools import key_of_call

SESSION = "00000000-0000-4000-8000-000000000001"


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


def test_a_call_is_done_if_one_of_its_attempts_has_a_result() -> None:
    attempts = [call("k", "t1"), call("k", "t2"), call("l", "t3")]
    assert keys_of(attempts, {"t2"}) == {"k"}
    assert keys_of(attempts, ()) == set()


def test_the_result_of_an_attempt_that_was_stopped_does_not_end_the_use_of_its_key() -> None:
    first = key(opened("p"), a=1)
    stopped = msgspec.structs.replace(result("t1"), is_interrupted=True)
    journal = [prompt("p"), call(first, "t1", a=1), stopped]
    assert key(CallKeys(journal), a=1) == first
    assert key(CallKeys([*journal, result("t1")]), a=1) == key_number(1)


def test_a_key_that_the_journal_has_is_not_made_for_a_new_call() -> None:
    """The journal lost the first of two equal calls."""
    journal = [prompt("p"), call(key_number(1), "t2", a=1), result("t2")]
    keys = CallKeys(journal)
    assert [key(keys, a=1), key(keys, a=1)] == [key_number(2), key_number(3)]


def test_a_call_without_a_known_prompt_repeats_a_call_that_was_named_or_has_none_either() -> None:
    journal = [prompt("p"), call("k", "t1", a=1), call("l", "t2", None, b=2)]
    keys = CallKeys(journal)
    assert key(keys, None, "t8", a=1) == key_of_call(SESSION, "t8")
    keys.open("c", "p", ["t1"])
    assert key(keys, None, "t9", a=1) == "k"
    assert key(keys, None, "t9", b=2) == "l"
    assert key(keys, None, "t9", b=2) == key_of_call(SESSION, "t9")
