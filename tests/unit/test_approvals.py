"""The record of a tool call that waits for approval, and its stored form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridle import OptionsError, PendingApproval
from bridle.approvals import check_pending

WHOLE = PendingApproval(
    session_id="s1",
    tool_name="Bash",
    tool_input={"command": "ls", "nested": {"a": [1, None, "é"]}},
    tool_use_id="toolu_1",
    cwd="/work",
    transcript_path="/home/me/s1.jsonl",
    permission_mode="default",
    cli_version="2.1.325",
    deferred_at=1794817566.25,
)


@pytest.mark.parametrize(
    "pending",
    [WHOLE, PendingApproval(session_id="s", tool_name="t", tool_input={}, tool_use_id="u")],
)
def test_a_record_is_read_back_as_it_was_stored(pending: PendingApproval) -> None:
    text = pending.to_json()
    assert PendingApproval.from_json(text) == pending
    assert PendingApproval.from_json(text.encode()) == pending


def test_the_stored_form_has_a_version_and_keeps_to_it() -> None:
    stored = json.loads(WHOLE.to_json())
    assert stored["pending_approval"] == 1
    assert stored["call"]["tool_input"] == WHOLE.tool_input
    stored["call"]["added_later"] = 1
    assert PendingApproval.from_json(json.dumps(stored)) == WHOLE
    stored["pending_approval"] = 2
    with pytest.raises(OptionsError, match="format 2"):
        PendingApproval.from_json(json.dumps(stored))


def changed(**members: object) -> str:
    """Return the stored form with changed members of the call."""
    stored = json.loads(WHOLE.to_json())
    return json.dumps({**stored, "call": {**stored["call"], **members}})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "{}",
        '{"pending_approval":"1"}',
        '{"pending_approval":1}',
        '{"pending_approval":1,"call":{}}',
        b"\xff",
        "[" * 100_000,
        changed(tool_input=[]),
        changed(session_id=None),
        changed(session_id=""),
        changed(tool_use_id=""),
        changed(tool_name=""),
        changed(cwd="relative"),
        changed(cwd="/nul\0"),
        changed(transcript_path="s1.jsonl"),
        changed(deferred_at="yesterday"),
    ],
)
def test_a_damaged_record_is_refused_with_a_typed_error(text: str | bytes) -> None:
    with pytest.raises(OptionsError) as refused:
        PendingApproval.from_json(text)
    assert refused.value.field == "pending"


@pytest.mark.parametrize("other", [None, "text", {"session_id": "s1"}])
def test_something_else_in_place_of_a_record_is_refused(other: Any) -> None:
    with pytest.raises(OptionsError, match="from_json"):
        check_pending(other)
