"""The timeline of a recording: what its frames are, and what spans of time they make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridle._engine.actions import TurnEnded
from bridle.cli._timeline.frame_summaries import Frame, frame_of
from bridle.cli._timeline.spans import Lane, State
from bridle.cli._timeline.timeline import Span, Timeline, timeline
from bridle.testing.recording import Entry, read_recording
from bridle.testing.replaying import replay

GOLDEN = Path(__file__).parent.parent / "wire" / "golden"
RECORDINGS = sorted(GOLDEN.rglob("*.ndjson"))

Json = dict[str, Any]


Row = tuple[float, str, Json | str]


def entries(*rows: Row) -> list[Entry]:
    """Entries of these times, directions and lines."""
    return [
        Entry(t, direction, line if isinstance(line, str) else json.dumps(line))  # type: ignore[arg-type]  # a table of plain strings
        for t, direction, line in rows
    ]


def frame(direction: str, line: Json | str, asked: dict[str, str] | None = None) -> Frame:
    (entry,) = entries((0.0, direction, line))
    return frame_of(entry, entry.members, asked or {})


def request(request_id: str, subtype: str, **fields: object) -> Json:
    return {
        "type": "control_request",
        "request_id": request_id,
        "request": {"subtype": subtype, **fields},
    }


def answer(request_id: str, payload: Json | None = None, error: str = "") -> Json:
    response: Json = {"subtype": "error" if error else "success", "request_id": request_id}
    response |= {"error": error} if error else {"response": payload or {}}
    return {"type": "control_response", "response": response}


def system(subtype: str, **fields: object) -> Json:
    return {"type": "system", "subtype": subtype, **fields}


def message(kind: str, *content: Json, **fields: object) -> Json:
    said = {"id": "m1", "model": "opus", "content": list(content)}
    return {"type": kind, "message": said, **fields}


def spans(lane: Lane, *rows: Row) -> list[Span]:
    return [span for span in timeline(entries(*rows)).spans if span.lane is lane]


def shape(span: Span) -> tuple[str, float, float, State, list[int]]:
    return span.title, span.start, span.end, span.state, span.frames


# ------------------------------------------------------------------------- frames


@pytest.mark.parametrize(
    ("direction", "line", "kind", "group", "summary"),
    [
        ("err", "oh\tno", "stderr", "stderr", "oh no"),
        ("meta", {"exit": 0}, "meta/exit", "process", "0"),
        ("meta", {"stdin": "EOF"}, "meta/stdin", "process", "EOF"),
        ("meta", "odd", "meta", "process", "odd"),
        ("out", "odd", "not a frame", "messages", "odd"),
        ("out", [1], "not a frame", "messages", "[1]"),
        ("out", {"a": 1}, "untyped", "messages", ""),
        ("out", {"type": "brand_new", "a": 1}, "brand_new", "messages", ""),
        ("in", {"type": "user", "message": {"content": "hello"}}, "user", "messages", "hello"),
        (
            "out",
            message(
                "assistant",
                {"type": "text", "text": "a"},
                {"type": "thinking", "thinking": "b"},
                {"type": "tool_use", "name": "Bash", "input": {"command": "ls", "x": 1}},
                {"type": "image"},
                5,  # type: ignore[arg-type]  # anything may come
            ),
            "assistant",
            "messages",
            "a · thinking: b · Bash(ls) · image",
        ),
        (
            "out",
            message(
                "user",
                {"type": "tool_result", "content": "x", "is_error": True},
                {"type": "tool_result", "content": [{"type": "text", "text": "y"}, {"type": "z"}]},
                {"type": "tool_result", "content": 5},
            ),
            "user",
            "messages",
            "error: x · result: y [z] · result:",
        ),
        (
            "out",
            {
                "type": "stream_event",
                "event": {"type": "content_block_delta", "delta": {"text": "t"}},
            },
            "stream_event/content_block_delta",
            "stream",
            "t",
        ),
        (
            "out",
            {
                "type": "stream_event",
                "event": {"type": "message_start", "message": {"id": "m"}},
            },
            "stream_event/message_start",
            "stream",
            "m",
        ),
        ("in", request("r", "interrupt"), "control_request/interrupt", "control", ""),
        ("in", request("r", "set_model", model="x"), "control_request/set_model", "control", "x"),
        (
            "out",
            request("r", "hook_callback", input={"hook_event_name": "Stop"}),
            "control_request/hook_callback",
            "control",
            "Stop",
        ),
        (
            "out",
            request("r", "can_use_tool", tool_name="Edit", input={"file_path": "/x", "y": 1}),
            "control_request/can_use_tool",
            "control",
            "Edit(/x)",
        ),
        (
            "out",
            request(
                "r",
                "mcp_message",
                server_name="s",
                message={"method": "tools/call", "params": {"name": "add"}},
            ),
            "control_request/mcp_message",
            "control",
            "s tools/call add",
        ),
        (
            "in",
            request("r", "mcp_message", server_name="s", message={"error": {}}),
            "control_request/mcp_message",
            "control",
            "s error",
        ),
        (
            "out",
            request("r", "elicitation", message="who?"),
            "control_request/elicitation",
            "control",
            "who?",
        ),
        ("out", answer("r", {"a": 1, "b": "c"}), "control_response/success", "control", "a=1, b=c"),
        ("out", answer("r", error="no"), "control_response/error", "control", "no"),
        (
            "out",
            {"type": "control_cancel_request", "request_id": "r"},
            "control_cancel_request",
            "control",
            "r",
        ),
        (
            "out",
            {"type": "result", "subtype": "success", "result": "done"},
            "result/success",
            "messages",
            "done",
        ),
        (
            "out",
            {"type": "result", "subtype": "x", "terminal_reason": "max_turns"},
            "result/x",
            "messages",
            "max_turns",
        ),
        ("out", system("init", model="opus", cwd="/w"), "system/init", "messages", "opus /w"),
        (
            "out",
            system("status", status="requesting", uuid="u"),
            "system/status",
            "messages",
            "requesting",
        ),
        (
            "out",
            {"type": "command_lifecycle", "command_uuid": "u", "state": "queued"},
            "command_lifecycle",
            "messages",
            "queued u",
        ),
    ],
)
def test_every_entry_is_named_and_summed_up(
    direction: str, line: Any, kind: str, group: str, summary: str
) -> None:
    text = json.dumps(line) if isinstance(line, list) else line
    found = frame(direction, text)
    assert (found.kind, found.group, found.summary) == (kind, group, summary)
    assert found.line == (text if isinstance(text, str) else json.dumps(text))


def test_an_answer_is_called_after_its_question() -> None:
    asked = {"r": "set_model"}
    assert frame("out", answer("r"), asked).kind == "control_response/set_model"
    assert frame("out", answer("r", error="no"), asked).kind == "control_response/error"


def test_a_summary_is_short() -> None:
    assert len(frame("err", "word " * 10_000).summary) == 160


def test_half_a_character_is_shown_as_something() -> None:
    line = '{"type":"system","subtype":"x","a":"\\ud83d","b":["\\ud83d"]}'
    assert "a=" in frame("out", line).summary


# ------------------------------------------------------------------------- turns

INIT = system("init", session_id="s", model="opus", cwd="/w", user_message_uuids=["u1"])
PROMPT = {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "do it"}}
RESULT = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "terminal_reason": "completed",
    "result": "done",
    "num_turns": 2,
    "total_cost_usd": 0.25,
    "user_message_uuids": ["u1"],
}
START = (
    (0.0, "in", request("r0", "initialize")),
    (0.5, "out", answer("r0", {"capabilities": ["x"], "claude_code_version": "2.1.325"})),
    (1.0, "in", PROMPT),
    (1.5, "out", INIT),
)


def test_a_turn_lasts_from_its_prompt_to_its_outcome() -> None:
    lifecycle = {"type": "command_lifecycle", "command_uuid": "u1", "state": "completed"}
    (turn,) = spans(Lane.TURNS, *START, (4.0, "out", RESULT), (4.5, "out", lifecycle))
    assert shape(turn) == ("do it", 1.0, 4.0, State.OK, [2, 3, 4, 5])
    assert turn.facts == {
        "prompt": "do it",
        "outcome": "completed",
        "answer": "done",
        "cost": "$0.2500",
        "model calls": "2",
    }


@pytest.mark.parametrize(
    ("members", "state"),
    [
        (
            {
                "subtype": "error_during_execution",
                "is_error": True,
                "terminal_reason": "aborted_streaming",
            },
            State.STOPPED,
        ),
        ({"is_error": True, "terminal_reason": "api_error"}, State.FAILED),
        ({"terminal_reason": "hook_stopped"}, State.DENIED),
    ],
    ids=["interrupted", "failed", "stopped"],
)
def test_a_turn_is_what_the_engine_says_of_it(members: Json, state: State) -> None:
    (turn,) = spans(Lane.TURNS, *START, (4.0, "out", RESULT | members))
    assert turn.state is state


def test_a_turn_without_an_end_is_open() -> None:
    rows = (*START, (2.0, "out", message("assistant", {"type": "text", "text": "we"})))
    (turn,) = spans(Lane.TURNS, *rows)
    assert shape(turn) == ("do it", 1.0, 2.0, State.OPEN, [2, 3, 4])


def test_a_turn_begins_with_its_prompt_even_if_that_had_to_wait() -> None:
    first, answered, *_ = START
    rows = (first, (0.2, "in", PROMPT), answered, (1.5, "out", INIT))
    (turn,) = spans(Lane.TURNS, *rows)
    assert shape(turn) == ("do it", 0.2, 1.5, State.OPEN, [1, 3])


def test_a_turn_of_the_clis_own_is_a_follow_up() -> None:
    init = {name: value for name, value in INIT.items() if name != "user_message_uuids"}
    result = RESULT | {"origin": {"kind": "task-notification"}, "user_message_uuids": []}
    said = message("assistant", {"type": "text", "text": "noticed"})
    rows = (*START, (2.0, "out", RESULT), (5.0, "out", init), (5.5, "out", said))
    _, follow_up = spans(Lane.TURNS, *rows, (6.0, "out", result))
    assert shape(follow_up) == ("follow-up", 5.0, 6.0, State.OK, [5, 6, 7])
    _, failed = spans(Lane.TURNS, *rows, (6.0, "out", result | {"is_error": True}))
    assert failed.state is State.FAILED


# ------------------------------------------------------------------------- the model


def test_an_answer_of_the_model_begins_when_it_was_asked_for() -> None:
    use = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "x"}
    first = message("assistant", {"type": "text", "text": "I look."})
    second = message("assistant", {"type": "text", "text": "Done."})
    second["message"]["id"] = "m2"
    echo = PROMPT | {"isReplay": True}
    rows = (
        *START,
        (1.6, "out", echo),
        (2.0, "out", first),
        (2.1, "out", message("assistant", use)),
        (3.0, "out", message("user", result)),
        (3.5, "out", second),
    )
    one, two = spans(Lane.MODEL, *rows)
    assert shape(one) == ("I look. · Bash", 1.5, 2.1, State.OK, [5, 6])
    assert shape(two) == ("Done.", 3.0, 3.5, State.OK, [8])
    assert one.facts == {"model": "opus", "message": "m1", "answer": "I look. · Bash"}


def test_what_streams_is_part_of_its_answer() -> None:
    start = {
        "type": "stream_event",
        "event": {"type": "message_start", "message": {"id": "m1", "model": "opus"}},
    }
    delta = {
        "type": "stream_event",
        "event": {"type": "content_block_delta", "delta": {"text": "x"}},
    }
    said = message("assistant", {"type": "text", "text": "x"})
    rows = (*START, (2.0, "out", start), (2.5, "out", delta), (2.6, "out", said))
    (one,) = spans(Lane.MODEL, *rows, (2.7, "out", delta))
    assert shape(one) == ("x", 1.5, 2.7, State.OK, [4, 5, 6, 7])


def test_what_the_cli_says_in_its_place_is_not_the_model() -> None:
    said = message("assistant", {"type": "text", "text": "Not logged in"})
    said["message"]["model"] = "<synthetic>"
    assert spans(Lane.MODEL, *START, (2.0, "out", said)) == []


@pytest.mark.parametrize(
    ("fields", "title", "end"),
    [
        ({"retry_delay_ms": 500, "error_status": 529}, "529 · 1 of 10", 2.5),
        ({"retry_delay_ms": None, "error_status": None}, "no answer · 1 of 10", 2.0),
    ],
)
def test_a_retry_lasts_as_long_as_it_waits(fields: Json, title: str, end: float) -> None:
    retry = system("api_retry", attempt=1, max_retries=10, error="overloaded", **fields)
    (one,) = spans(Lane.RETRIES, *START, (2.0, "out", retry))
    assert shape(one) == (title, 2.0, end, State.FAILED, [4])


# ------------------------------------------------------------------------- tools

USE = message(
    "assistant",
    {"type": "tool_use", "id": "t1", "name": "mcp__shop__price", "input": {"query": "a", "n": 1}},
)


def tool_result(**fields: object) -> Json:
    return message("user", {"type": "tool_result", "tool_use_id": "t1", "content": "49", **fields})


def test_a_tool_lasts_from_its_use_to_its_result() -> None:
    progress = {"type": "tool_progress", "tool_use_id": "t1"}
    rows = (*START, (2.0, "out", USE), (2.5, "out", progress), (3.0, "out", tool_result()))
    (tool,) = spans(Lane.TOOLS, *rows)
    assert shape(tool) == ("price a", 2.0, 3.0, State.OK, [4, 5, 6])
    assert tool.facts == {"tool": "mcp__shop__price", "input": "query=a, n=1", "result": "49"}
    assert tool.depth == 0


def test_a_tool_may_fail_or_be_denied() -> None:
    failed = tool_result(is_error=True)
    asked = request("q", "can_use_tool", tool_name="x", tool_use_id="t1", input={})
    no = answer("q", {"behavior": "deny", "message": "no"})
    (one,) = spans(Lane.TOOLS, *START, (2.0, "out", USE), (3.0, "out", failed))
    assert one.state is State.FAILED
    rows = ((2.0, "out", USE), (2.1, "out", asked), (2.2, "in", no), (3.0, "out", failed))
    (one,) = spans(Lane.TOOLS, *START, *rows)
    assert one.state is State.DENIED


def test_a_tool_ends_with_its_turn() -> None:
    (one,) = spans(Lane.TOOLS, *START, (2.0, "out", USE), (3.0, "out", RESULT))
    assert shape(one) == ("price a", 2.0, 3.0, State.STOPPED, [4, 5])


def test_a_tool_of_a_subagent_outlives_it() -> None:
    use = USE | {"parent_tool_use_id": "t0"}
    rows = (*START, (2.0, "out", use), (3.0, "out", RESULT))
    (one,) = spans(Lane.TOOLS, *rows)
    assert (one.state, one.depth) == (State.OPEN, 1)


def test_a_result_without_a_call_has_no_span() -> None:
    assert spans(Lane.TOOLS, *START, (3.0, "out", tool_result())) == []


def test_a_task_holds_all_that_a_subagent_does() -> None:
    started = system(
        "task_started",
        task_id="a",
        tool_use_id="t0",
        description="look",
        subagent_type="general",
        is_backgrounded=True,
    )
    progress = system("task_progress", task_id="a")
    use = USE | {"parent_tool_use_id": "t0"}
    done = system("task_notification", task_id="a", status="completed", summary="seen")
    rows = (
        *START,
        (2.0, "out", started),
        (2.1, "out", progress),
        (2.2, "out", use),
        (3.0, "out", done),
    )
    (task,) = spans(Lane.SUBAGENTS, *rows)
    assert shape(task) == ("look", 2.0, 3.0, State.OK, [4, 5, 6, 7])
    assert task.facts == {
        "agent": "general",
        "background": "yes",
        "status": "completed",
        "summary": "seen",
    }


def test_an_older_cli_only_updates_a_task() -> None:
    started = system("task_started", task_id="a", task_type="local_bash")
    done = system("task_updated", task_id="a", patch={"status": "killed"})
    (task,) = spans(Lane.SUBAGENTS, *START, (2.0, "out", started), (3.0, "out", done))
    assert shape(task) == ("local_bash", 2.0, 3.0, State.STOPPED, [4, 5])


# ------------------------------------------------------------------------- questions


@pytest.mark.parametrize(
    ("asked", "reply", "lane", "title", "state"),
    [
        (
            request("q", "hook_callback", input={"hook_event_name": "Stop"}),
            answer("q"),
            Lane.HOOKS,
            "Stop",
            State.OK,
        ),
        (
            request(
                "q",
                "hook_callback",
                input={"hook_event_name": "PreToolUse", "tool_name": "Bash"},
            ),
            answer("q", {"hookSpecificOutput": {"permissionDecision": "deny"}}),
            Lane.HOOKS,
            "PreToolUse Bash",
            State.DENIED,
        ),
        (
            request("q", "hook_callback"),
            answer("q", {"decision": "block"}),
            Lane.HOOKS,
            "hook_callback",
            State.DENIED,
        ),
        (
            request("q", "hook_callback"),
            answer("q", {"continue": False}),
            Lane.HOOKS,
            "hook_callback",
            State.DENIED,
        ),
        (
            request("q", "can_use_tool", tool_name="Bash"),
            answer("q", {"behavior": "allow"}),
            Lane.PERMISSIONS,
            "Bash",
            State.OK,
        ),
        (
            request("q", "can_use_tool", tool_name="Bash"),
            answer("q", error="it broke"),
            Lane.PERMISSIONS,
            "Bash",
            State.FAILED,
        ),
        (
            request("q", "elicitation", mcp_server_name="forms"),
            answer("q", {"action": "decline"}),
            Lane.PERMISSIONS,
            "forms asks",
            State.DENIED,
        ),
        (
            request("q", "mcp_message", server_name="shop", message={"method": "m", "params": 5}),
            answer("q", {"mcp_response": {"error": {}}}),
            Lane.SERVERS,
            "shop m",
            State.FAILED,
        ),
        (
            request("q", "mcp_message", server_name="shop", message={"params": {"name": "add"}}),
            answer("q", {"mcp_response": {"result": {"isError": True}}}),
            Lane.SERVERS,
            "shop add",
            State.FAILED,
        ),
        (request("q", "brand_new"), answer("q"), Lane.CONTROL, "brand_new", State.OK),
        (request("q", ""), answer("q"), Lane.CONTROL, "request", State.OK),
    ],
)
def test_a_question_lasts_until_it_is_answered(
    asked: Json, reply: Json, lane: Lane, title: str, state: State
) -> None:
    rows = ((2.0, "out", asked), (3.0, "in", reply), (3.1, "out", reply), (3.2, "out", reply))
    found = [span for span in spans(lane, *START, *rows) if span.start >= 2.0]
    assert [shape(span) for span in found] == [(title, 2.0, 3.0, state, [4, 5, 6])]


def test_operations_are_the_clients_own_questions() -> None:
    rows = (
        (2.0, "in", request("q", "set_model", model="opus")),
        (2.1, "out", request("q", "can_use_tool", tool_name="Bash")),
        (2.5, "out", answer("q")),
        (2.6, "in", request("p", "set_permission_mode", mode="plan")),
    )
    _, first, second = spans(Lane.CONTROL, *START, *rows)
    assert shape(first) == ("set_model opus", 2.0, 2.5, State.OK, [4, 6])
    assert shape(second) == ("set_permission_mode plan", 2.6, 2.6, State.OPEN, [7])
    (asked,) = spans(Lane.PERMISSIONS, *START, *rows)
    assert asked.state is State.OPEN


def test_a_question_may_be_withdrawn() -> None:
    withdrawn = {"type": "control_cancel_request", "request_id": "q"}
    rows = ((2.0, "out", request("q", "can_use_tool", tool_name="Bash")), (3.0, "out", withdrawn))
    (one,) = spans(Lane.PERMISSIONS, *START, *rows, (4.0, "out", withdrawn))
    assert shape(one) == ("Bash", 2.0, 3.0, State.STOPPED, [4, 5])


def test_hooks_of_the_settings_are_hooks() -> None:
    began = system("hook_started", hook_id="h", hook_name="SessionStart:startup")
    goes_on = system("hook_progress", hook_id="h")
    ended = system("hook_response", hook_id="h", outcome="error", output="oh")
    rows = ((2.0, "out", began), (2.1, "out", goes_on), (2.5, "out", ended), (2.6, "out", ended))
    (one,) = spans(Lane.HOOKS, *START, *rows)
    assert shape(one) == ("SessionStart:startup", 2.0, 2.5, State.FAILED, [4, 5, 6])
    (well,) = spans(Lane.HOOKS, *rows[:2], (2.5, "out", ended | {"outcome": "success"}))
    assert well.state is State.OK


def test_what_happens_to_the_process_are_moments() -> None:
    rows: list[Row] = [
        (1.0, "err", "a warning"),
        (2.0, "meta", {"stdin": "EOF"}),
        (3.0, "meta", {"signal": "SIGTERM"}),
        (3.5, "meta", {"input_failed": "broken pipe"}),
        (4.0, "meta", {"exit": 143}),
        (5.0, "meta", {"exit": 0}),
        (6.0, "meta", {"argv": []}),
    ]
    assert [(one.title, one.start, one.end, one.state) for one in spans(Lane.PROCESS, *rows)] == [
        ("a warning", 1.0, 1.0, State.FAILED),
        ("end of input", 2.0, 2.0, State.OK),
        ("SIGTERM", 3.0, 3.0, State.STOPPED),
        ("input failed: broken pipe", 3.5, 3.5, State.FAILED),
        ("exit 143", 4.0, 4.0, State.FAILED),
        ("exit 0", 5.0, 5.0, State.OK),
    ]


# ------------------------------------------------------------------------- the whole


def test_spans_that_overlap_are_in_rows_of_their_own() -> None:
    asked: list[Row] = [(float(at), "out", request(f"q{at}", "hook_callback")) for at in range(3)]
    rows: list[Row] = [(3.0, "in", answer("q0")), (4.0, "out", request("q3", "hook_callback"))]
    assert [(one.start, one.row) for one in spans(Lane.HOOKS, *asked, *rows)] == [
        *((0.0, 0), (1.0, 1), (2.0, 2)),
        (4.0, 0),
    ]


def test_what_is_known_of_the_session_is_reported() -> None:
    started = {"started": "2026-01-01T00:00:00Z", "argv": []}
    rows = ((0.0, "meta", started), *START, (3.0, "out", RESULT), (60.0, "meta", {"exit": 0}))
    model = timeline(entries(*rows), gap="the end")
    assert model.facts == {
        "started": "2026-01-01T00:00:00Z",
        "session": "s",
        "model": "opus",
        "directory": "/w",
        "cost": "$0.2500",
        "exit": "0",
    }
    assert (model.duration, model.quiet, model.gap) == (60.0, [(3.0, 60.0)], "the end")


def test_an_empty_recording_shows_nothing() -> None:
    assert timeline([]) == Timeline(0.0, [], [], {}, [], [])


# Recordings of sessions that send a uuid twice, which ours never do.
FOREIGN = {"duplicate_uuid", "duplicate_uuid_running"}
RESUMED = {"approval_allow", "approval_awaited", "approval_deny"}


@pytest.mark.parametrize(
    "path", RECORDINGS, ids=[f"{path.parent.name}-{path.stem}" for path in RECORDINGS]
)
def test_every_real_recording_becomes_a_timeline(path: Path) -> None:
    """Nothing is lost, nothing stays open, and turns are what the engine says they are."""
    recording = read_recording(path)
    model = timeline(recording, gap=recording.gap)
    assert [one.line for one in model.frames] == [one.line for one in recording]
    assert model.gap == ""
    for span in model.spans:
        assert span.frames == sorted(set(span.frames))
        assert 0 <= span.frames[0] <= span.frames[-1] < len(recording)
        assert 0.0 <= span.start <= span.end <= model.duration
        assert span.state is not State.OPEN
    for lane in Lane:
        ends: dict[int, float] = {}
        for span in (one for one in model.spans if one.lane is lane):
            assert span.start >= ends.get(span.row, 0.0)
            ends[span.row] = span.end
    if path.stem in FOREIGN:
        return
    turns = [one for one in model.spans if one.lane is Lane.TURNS]
    outcomes = sorted(str(one.reason) for one in replay(path).outcomes.values())
    prompted = [one for one in turns if one.title not in ("follow-up", "resumed turn")]
    assert sorted(one.facts["outcome"] for one in prompted) == outcomes
    results = [one.line for one in model.frames if one.kind.startswith("result/")]
    origins = sum('"origin":{"kind":"task-notification"' in line for line in results)
    assert sum(one.title == "follow-up" for one in turns) == origins
    resumed = sum(one.title == "resumed turn" for one in turns)
    assert resumed == (path.stem in RESUMED)


WORDS = st.sampled_from(
    [
        *("type", "subtype", "request", "response", "message", "content", "id", "request_id"),
        *("system", "assistant", "user", "control_request", "control_response", "tool_use"),
        *("tool_result", "tool_use_id", "init", "task_started", "api_retry", "stream_event"),
        *("event", "delta", "input", "exit", "stdin", "uuid", "result", "x"),
    ]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.longer
@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(st.sampled_from(["in", "out", "err", "meta"]), st.dictionaries(WORDS, ANYTHING)),
        max_size=6,
    )
)
def test_whatever_was_recorded_can_be_shown(rows: list[tuple[str, Json]]) -> None:
    model = timeline(entries(*((float(at), *row) for at, row in enumerate(rows))))
    assert len(model.frames) == len(rows)


# ------------------------------------------------------------------------- the conversation


def said(*rows: Row) -> list[tuple[str, str, str, str]]:
    items = timeline(entries(*rows)).conversation
    return [(item.who, item.title, item.text, item.state) for item in items]


def test_the_conversation_says_who_said_what() -> None:
    use = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "a.py", "is_error": True}
    open_use = {**use, "id": "t2"}
    delta = {"type": "stream_event", "event": {"type": "content_block_delta"}}
    synthetic = message("assistant", {"type": "text", "text": "API Error"})
    synthetic["message"]["model"] = "<synthetic>"
    told = said(
        (0.0, "in", message("user", {"type": "text", "text": "Look."})),
        (0.1, "out", message("user", {"type": "text", "text": "Look."}, isReplay=True)),
        (0.2, "out", delta),
        (0.3, "out", message("assistant", {"type": "thinking", "thinking": "Hm."})),
        (0.4, "out", message("assistant", {"type": "text", "text": "I look."}, use)),
        (0.5, "out", message("user", result)),
        (0.6, "out", synthetic),
        (0.7, "out", message("user", {"type": "text", "text": "[Request interrupted]"})),
        (0.8, "out", message("assistant", open_use, {"type": "new_kind"})),
        (0.9, "out", message("user", {**result, "tool_use_id": "unknown"})),
        (1.0, "err", "no frame"),
    )
    assert told == [
        ("user", "", "Look.", ""),
        ("model", "thinking", "Hm.", ""),
        ("model", "", "I look.", ""),
        ("tool", "Bash", "a.py", "failed"),
        ("cli", "", "API Error", ""),
        ("cli", "", "[Request interrupted]", ""),
        ("tool", "Bash", "", ""),
        ("model", "", "[new_kind]", ""),
    ]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_prompt_and_every_outcome_is_in_the_conversation(path: Path) -> None:
    recording = read_recording(path)
    items = timeline(recording).conversation
    prompts = [e for e in recording if e.direction == "in" and e.members.get("type") == "user"]
    assert sum(item.who == "user" for item in items) == len(prompts)
    ended = [step for _, step in replay(recording).steps if isinstance(step, TurnEnded)]
    assert sum(item.who == "outcome" for item in items) == len(ended)
    assert all(item.frames == sorted(item.frames) for item in items)
