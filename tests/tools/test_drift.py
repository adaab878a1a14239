"""What `make drift` compares: frames, fields, texts, flags and variables of two CLIs."""

from __future__ import annotations

import json
from typing import Any

from bridle.testing.recording import Entry, Recording
from drift import Shape, changes, compare, flags_of, rewordings, shape_of, variables_of


def recording(*lines: tuple[str, dict[str, Any]]) -> Recording:
    return Recording(
        Entry(t=0.0, direction=direction, line=json.dumps(frame))  # type: ignore[arg-type]
        for direction, frame in lines
    )


def reply(number: str, **response: object) -> dict[str, Any]:
    inner = {"subtype": "success", "request_id": number, "response": response}
    return {"type": "control_response", "response": inner}


def ask(number: str, subtype: str) -> dict[str, Any]:
    return {"type": "control_request", "request_id": number, "request": {"subtype": subtype}}


def shape(*lines: tuple[str, dict[str, Any]]) -> Shape:
    return shape_of([recording(*lines)])


def test_frames_are_told_apart_by_type_subtype_and_the_request_that_they_answer() -> None:
    hook = ask("2", "hook_callback")
    hook["request"]["input"] = {"hook_event_name": "Stop"}
    found = shape(
        ("out", {"type": "system", "subtype": "init"}),
        ("out", {"type": "assistant"}),
        ("in", ask("1", "get_usage")),
        ("out", reply("1", cost=1)),
        ("out", hook),
        ("err", {"a": "word"}),
    )
    assert set(found.fields) == {
        "system/init",
        "assistant",
        "reply to get_usage",
        "request hook_callback Stop",
        "stderr",
    }
    assert "response.response.cost" in found.fields["reply to get_usage"]


def test_new_and_gone_frames_and_fields_are_named() -> None:
    old = shape(("out", {"type": "a", "x": 1, "list": [{"y": 1}]}), ("out", {"type": "gone"}))
    new = shape(("out", {"type": "a", "z": 1, "list": [{"y": 1}]}), ("out", {"type": "born"}))
    lines = compare(old, new)
    assert "- new: `born`" in lines
    assert "- gone: `gone`" in lines
    assert "- new: `a: z`" in lines
    assert "- gone: `a: x`" in lines
    assert not any("list" in line for line in lines)


def test_texts_are_compared_without_what_differs_between_runs() -> None:
    def cost(words: str) -> Shape:
        return shape(("in", ask("1", "cost")), ("out", reply("1", text=words)))

    same = compare(cost("Total cost: $0.01 in /tmp/a"), cost("Total cost: $7.50 in /tmp/b"))
    assert same == []
    changed = compare(cost("Total cost: $0.01"), cost("Estimated cost: $0.01"))
    assert changed[-2] == (
        '- `reply to cost response.response.text`: "Total cost: $#" → "Estimated cost: $#"'
    )


def test_the_same_is_not_reported() -> None:
    assert changes("Flags", ["--a"], ["--a"]) == []
    assert rewordings("Texts", {"a": ["x", "y"]}, {"a": ["y", "z"]}) == []


def test_a_long_list_is_cut() -> None:
    lines = changes("Flags", [], [f"--{number}" for number in range(100)])
    assert lines[-2] == "- and 20 more"


HELP = """
Options:
  -c, --continue                        Continue the conversation
  --add-dir <directories...>            Additional directories
                                        to allow
  --effort <level>                      Effort (low,
Commands:
  mcp                                   Configure
"""


def test_flags_have_their_descriptions() -> None:
    assert flags_of(HELP) == {
        "--continue": "Continue the conversation",
        "--add-dir": "Additional directories to allow",
        "--effort": "Effort (low,",
    }


def test_variables_are_found_in_a_program() -> None:
    code = b'x=process.env.CLAUDE_CODE_SIMPLE;"ANTHROPIC_BASE_URL"\x00NOT_CLAUDE'
    assert variables_of(code) == {"CLAUDE_CODE_SIMPLE", "ANTHROPIC_BASE_URL"}
