"""Comparison of a live client's lines with those of a recorded one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridle.testing.comparing import (
    Comparison,
    Names,
    compare_arguments,
    first_difference,
    kind_of,
)
from bridle.testing.recording import Direction, Entry

Json = dict[str, Any]


def entry(direction: Direction, frame: Json) -> Entry:
    return Entry(t=0.0, direction=direction, line=json.dumps(frame))


def prompt(text: str, uuid: str = "u1", **members: object) -> Json:
    return {"type": "user", "uuid": uuid, "message": {"role": "user", "content": text}, **members}


def request(subtype: str, request_id: str = "r1", **fields: object) -> Json:
    inner = {"subtype": subtype, **fields}
    return {"type": "control_request", "request_id": request_id, "request": inner}


def answer(request_id: str, payload: Json) -> Json:
    response = {"subtype": "success", "request_id": request_id, "response": payload}
    return {"type": "control_response", "response": response}


def compared(recorded: list[Json], written: list[Json], **options: Any) -> list[str]:
    """What a client that writes this differs in, by a recording of both directions."""
    entries = [
        entry("out" if frame.get("from_cli") else "in", frame.get("from_cli", frame))
        for frame in recorded
    ]
    comparison = Comparison(entries, Names(), **options)
    found = [difference for one in written if (difference := comparison.take(one)[0]) is not None]
    missing = comparison.missing()
    return [str(one) for one in [*found, *([missing] if missing else [])]]


def asks(request_id: str, subtype: str, **fields: object) -> Json:
    return {"from_cli": request(subtype, request_id, **fields)}


ALLOW: Json = {"behavior": "allow", "updatedInput": {}}
DENY: Json = {"behavior": "deny", "message": "no"}


# ------------------------------------------------------------------------- lines


def test_ids_of_a_run_are_ignored() -> None:
    hooks = {"Stop": [{"matcher": "x", "hookCallbackIds": ["a"], "timeout": 9}]}
    ours = {"Stop": [{"matcher": "x", "hookCallbackIds": ["hook_0"], "timeout": 60}]}
    recorded = [
        request("initialize", hooks=hooks, agents=None),
        prompt("hi", "u1", session_id="s1", parent_tool_use_id=None),
        request("cancel_async_message", "r2", message_uuid="u1"),
    ]
    written = [
        request("initialize", "q1", hooks=ours),
        prompt("hi", "mine", session_id="s2"),
        request("cancel_async_message", "q2", message_uuid="mine"),
    ]
    assert compared(recorded, written) == []


@pytest.mark.parametrize(
    ("recorded", "written", "said"),
    [
        (prompt("a"), prompt("b"), 'prompt 1, message.content: recorded: "a", now: "b"'),
        (
            prompt("a"),
            prompt("a", priority="now"),
            'prompt 1, priority: recorded: nothing, now: "now"',
        ),
        (
            request("set_model", model="opus"),
            request("set_model", model="haiku"),
            'control request set_model, model: recorded: "opus", now: "haiku"',
        ),
        (
            request("initialize", hooks={"Stop": [{"hookCallbackIds": ["a", "b"]}]}),
            request("initialize", hooks={"Stop": [{"hookCallbackIds": ["a"]}]}),
            "control request initialize, hooks.Stop[0].callbacks: recorded: 2, now: 1",
        ),
        (
            {"type": "odd", "a": 1},
            {"type": "odd"},
            "line of type odd, a: recorded: 1, now: nothing",
        ),
    ],
)
def test_what_a_line_says_is_compared(recorded: Json, written: Json, said: str) -> None:
    assert compared([recorded], [written]) == [said]


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        (
            {"subtype": "can_use_tool", "tool_name": "Bash"},
            "the permission request for Bash: recorded: allow, now: deny",
        ),
        (
            {
                "subtype": "hook_callback",
                "input": {"hook_event_name": "PreToolUse", "tool_name": "Bash"},
            },
            "the PreToolUse hook for Bash: recorded: allow, now: deny",
        ),
        (
            {"subtype": "hook_callback", "input": {"hook_event_name": "Stop"}},
            "the Stop hook: recorded: allow, now: deny",
        ),
        (
            {
                "subtype": "mcp_message",
                "server_name": "calc",
                "message": {"method": "tools/call", "params": {"name": "add"}},
            },
            "tools/call add for the server calc: recorded: allow, now: deny",
        ),
        (
            {"subtype": "mcp_message", "server_name": "calc", "message": {"method": "ping"}},
            "ping for the server calc: recorded: allow, now: deny",
        ),
        ({"subtype": "elicitation"}, "the request elicitation: recorded: allow, now: deny"),
    ],
)
def test_an_answer_is_named_after_its_request(asked: Json, name: str) -> None:
    recorded = [asks("c1", **asked), answer("c1", ALLOW)]
    assert compared(recorded, [answer("c1", DENY)]) == [f"answer to {name}"]


def test_a_hook_that_goes_on_may_say_so_or_not() -> None:
    recorded = [asks("c1", "hook_callback"), answer("c1", {})]
    assert compared(recorded, [answer("c1", {"continue": True})]) == []
    assert compared(recorded, [answer("c1", {"continue": False})]) == [
        "answer to the None hook, response.continue: recorded: nothing, now: false"
    ]


# ------------------------------------------------------------------------- order and number


def test_parallel_answers_may_come_in_any_order() -> None:
    recorded = [
        *(asks(name, "can_use_tool", tool_name="Read") for name in "abc"),
        *(answer(name, {**ALLOW, "updatedInput": {"file": name}}) for name in "abc"),
    ]
    written = [answer(name, {**ALLOW, "updatedInput": {"file": name}}) for name in "cab"]
    assert compared(recorded, written) == []


def test_prompts_and_requests_that_change_something_keep_their_order() -> None:
    recorded = [request("set_model", model="opus"), prompt("a"), prompt("b")]
    assert compared(recorded, [recorded[1], recorded[0], recorded[2]]) == [
        "prompt 1: recorded: after the control request set_model, now: before it"
    ]
    assert compared(recorded, [recorded[0], recorded[2], recorded[1]]) == [
        'prompt 1, message.content: recorded: "a", now: "b"',
        'prompt 2, message.content: recorded: "b", now: "a"',
    ]


@pytest.mark.parametrize("subtype", ["get_usage", "mcp_status", "mcp_message"])
def test_requests_that_change_nothing_may_come_at_any_time(subtype: str) -> None:
    recorded = [prompt("a"), request(subtype), prompt("b")]
    assert compared(recorded, [recorded[1], recorded[0], recorded[2]]) == []
    assert compared(recorded, [recorded[0], recorded[2], recorded[1]]) == []


COST = "get_usage"


def cost(comparison: Comparison, request_id: str, played: int = 0) -> object:
    """Return what a request for the cost is answered."""
    difference, line = comparison.answer(request(COST, request_id), played)
    assert difference is None
    response = json.loads(line)["response"]
    assert response["request_id"] == request_id
    return response.get("response", response.get("error"))


def costs(*, with_messages: bool) -> list[Entry]:
    """Return a recording with three requests for the cost."""
    entries: list[Entry] = []
    for number in range(3):
        entries.append(entry("in", request(COST, f"r{number}")))
        entries.append(entry("out", answer(f"r{number}", {"usd": number})))
        if with_messages:
            entries.append(entry("out", {"type": "assistant"}))
    return entries


def test_read_only_requests_are_answered_in_their_order_and_then_with_the_last() -> None:
    comparison = Comparison(costs(with_messages=False), Names())
    assert comparison.missing() is None
    assert [comparison.is_written(index) for index in (0, 2, 4)] == [True] * 3
    assert comparison.answers_query(costs(with_messages=False)[1])
    got = [cost(comparison, f"x{number}", played=6) for number in range(5)]
    assert got == [{"usd": number} for number in (0, 1, 2, 2, 2)]


def test_requests_that_were_left_out_this_time_do_not_answer_later_ones() -> None:
    comparison = Comparison(costs(with_messages=True), Names())
    assert [cost(comparison, "x", played) for played in (0, 8, 9)] == [
        {"usd": 0},
        {"usd": 2},
        {"usd": 2},
    ]
    assert comparison.missing() is None


def test_a_request_that_only_asks_and_has_no_recorded_answer_gets_an_error() -> None:
    comparison = Comparison([entry("in", request(COST, "r1"))], Names())
    expected = f"The recording has no answer to {COST}."
    assert [cost(comparison, name) for name in "ab"] == [expected] * 2


def test_what_is_not_recorded_is_a_difference() -> None:
    comparison = Comparison([entry("in", prompt("a"))], Names())
    assert comparison.take(prompt("a")) == (None, True)
    difference, goes_on = comparison.take(prompt("b"))
    assert (str(difference), goes_on) == ('prompt 2: recorded: nothing, now: "b"', False)
    difference, goes_on = comparison.take(request("interrupt"))
    assert str(difference) == (
        'control request interrupt: recorded: nothing, now: {"subtype": "interrupt"}'
    )
    assert not goes_on


def test_what_was_not_written_is_missing() -> None:
    recorded = [prompt("a"), prompt("b"), asks("c1", "can_use_tool"), answer("c1", ALLOW)]
    assert compared(recorded, []) == ['prompt 1: recorded: "a", now: nothing']
    assert compared(recorded, recorded[:1]) == ['prompt 2: recorded: "b", now: nothing']
    [said] = compared(recorded, recorded[:2])
    assert said.startswith("answer to the permission request for None: recorded: {")


def test_a_request_that_was_never_answered_may_be_answered_now() -> None:
    """The CLI withdrew it, or ended; whether the answer came in time was chance."""
    assert compared([asks("c1", "can_use_tool")], [answer("c1", ALLOW)]) == []


def test_a_second_answer_is_a_difference() -> None:
    recorded = [asks("c1", "can_use_tool", tool_name="Bash"), answer("c1", ALLOW)]
    comparison = Comparison([entry("in", answer("c1", ALLOW))], Names())
    comparison.take(answer("c1", ALLOW))
    difference, goes_on = comparison.take(answer("c1", ALLOW))
    assert (difference is not None, goes_on) == (True, True)
    assert len(compared(recorded, [answer("c1", ALLOW), answer("c1", ALLOW)])) == 1


# ------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("recorded", "now", "found"),
    [
        (1, 1, None),
        (1, True, ("", "1", "true")),
        ([1, 2], [1, 3], ("[1]", "2", "3")),
        ([1], [1, 2], ("", "[1]", "[1, 2]")),
        ({"a": {"b": None}}, {"a": {}}, ("a.b", "null", "nothing")),
        ("***", {"any": "thing"}, None),
        ("key ***, user ***", "key k1\nk2, user x", None),
        ("key ***", "token x", ("", '"key ***"', '"token x"')),
    ],
)
def test_the_first_difference_is_found(recorded: Any, now: Any, found: object) -> None:
    assert first_difference(recorded, now) == found


def test_a_long_text_is_shown_where_it_differs() -> None:
    same = "x" * 1000
    found = first_difference(f"{same} old {same}", f"{same} new {same}")
    assert found is not None
    _, recorded, now = found
    assert " old " in recorded
    assert " new " in now
    assert len(recorded) < 200


def test_a_word_that_has_become_a_secret_is_ignored() -> None:
    same = prompt("say hush-hush-hush")
    assert compared([same], [same], secrets=["hush-hush-hush"]) == []


def test_secrets_are_masked_in_differences() -> None:
    recorded = [prompt("key ***")]
    assert compared(recorded, [prompt("key hush-hush-hush")], secrets=["hush-hush-hush"]) == []
    [said] = compared([prompt("a")], [prompt("b hush-hush-hush")], secrets=["hush-hush-hush"])
    assert "hush" not in said
    [said] = compared([], [prompt("c hush-hush-hush")], secrets=["hush-hush-hush"])
    assert "hush" not in said


def test_both_lines_can_be_normalized() -> None:
    def normalize(line: Json) -> Json:
        text = str(line["message"]["content"])
        return {**line, "message": {"content": text.partition(" at ")[0]}}

    recorded, written = [prompt("now at 1:00")], [prompt("now at 2:00")]
    assert len(compared(recorded, written)) == 1
    assert compared(recorded, written, normalize=normalize) == []


# ------------------------------------------------------------------------- names


def test_directories_are_translated_both_ways() -> None:
    names = Names()
    names.learn_directory("/then/a", "/now/b")
    names.learn_directory("/then/a/deep", "/now/other")
    names.learn_directory("/", "/never")
    names.learn_word("s1", "s2")
    line = {"cwd": "/then/a", "in": "see /then/a/deep/x. /then/ab", "end": "/then/a.", "id": "s1"}
    ours: Json = {"cwd": "/now/b", "in": "see /now/other/x. /then/ab", "end": "/now/b.", "id": "s2"}
    assert json.loads(names.translate(entry("out", line))) == ours
    assert names.translate_back(ours) == line


def test_arguments_are_compared_without_the_session_id() -> None:
    same = ["--model=a", "--session-id=1"], ["--session-id=2", "--model=a"]
    assert compare_arguments(*same) is None
    difference = compare_arguments(["--model=a", "--verbose"], ["--model=b"])
    said = "arguments of the CLI: recorded: --model=a --verbose, now: --model=b"
    assert str(difference) == said


def test_the_kind_of_a_line_leaves_names_of_the_client_out() -> None:
    assert kind_of(prompt("a")) == ("user",)
    assert kind_of(request("interrupt")) == ("control_request", "interrupt")
    assert kind_of(answer("c1", {})) == ("control_response", "c1")
