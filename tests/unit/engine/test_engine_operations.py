"""Control operations and prompts of a running session: asked, answered, refused, given up."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import cli
from tests.support.cli import delivered, feed, only, running, warned, written

from bridle._engine.actions import (
    Action,
    Publish,
    Reject,
    Resolve,
    SessionNamed,
    TurnEnded,
    TurnStarted,
    Warn,
    Write,
)
from bridle._engine.engine import Engine
from bridle._engine.state import Lifecycle
from bridle.content import TextBlock
from bridle.errors import (
    BridleError,
    CheckpointingNotEnabled,
    ControlRejected,
    ControlTimeout,
    OptionsError,
    SessionStopped,
    TooManyPendingRequests,
    TransportError,
)
from bridle.events import RateLimited, WarningKind


def error_of(actions: list[Action]) -> BridleError:
    (rejected,) = only(Reject, actions)
    return rejected.error


# ------------------------------------------------------------------------- operations


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        pytest.param("interrupt", {}, marks=pytest.mark.requirement("R186")),
        pytest.param(
            "set_permission_mode", {"mode": "acceptEdits"}, marks=pytest.mark.requirement("R187")
        ),
        pytest.param("set_model", {"model": "opus"}, marks=pytest.mark.requirement("R188")),
        pytest.param("set_model", {"model": None}, marks=pytest.mark.requirement("C37")),
        pytest.param(
            "rewind_files", {"user_message_id": "u1"}, marks=pytest.mark.requirement("R189")
        ),
        ("mcp_status", {}),
    ],
)
@pytest.mark.requirement("S083")
def test_an_operation_is_one_well_formed_request(operation: str, fields: dict[str, Any]) -> None:
    """R179, R352."""
    engine = running(checkpointing=True)
    assert written(engine.submit("k", operation, fields, 1.0)) == [
        {
            "type": "control_request",
            "request_id": "req_1",
            "request": {"subtype": operation, **fields},
        }
    ]


@pytest.mark.parametrize(
    "payload", [None, {}, {"still_queued": []}, {"anything": [1, {"x": None}]}]
)
def test_success_needs_only_the_id_and_hands_over_the_payload(payload: cli.Json | None) -> None:
    """R180, R223, R341, R349."""
    engine = running()
    engine.submit("k", "interrupt", {}, 1.0)
    assert feed(engine, 2.0, cli.success("req_1", payload)) == [Resolve("k", payload)]
    assert engine.next_deadline is None


def test_an_error_answer_is_a_rejection_with_the_clis_words() -> None:
    """R347, R401."""
    engine = running(checkpointing=True)
    engine.submit("k", "rewind_files", {"user_message_id": "unknown"}, 1.0)
    error = error_of(feed(engine, 2.0, cli.failure("req_1", "no such", error_code="not_found")))
    assert isinstance(error, ControlRejected)
    assert (error.operation, error.request_id) == ("rewind_files", "req_1")
    assert (error.message, error.error_code) == ("no such", "not_found")


@pytest.mark.parametrize("code", [None, "unsupported_request"])
def test_an_operation_that_the_cli_does_not_have_is_a_rejection_with_its_version(
    code: str | None,
) -> None:
    engine = running()
    engine.submit("k", "list_models", {}, 1.0)
    text = "Unsupported control request subtype: list_models"
    error = error_of(feed(engine, 2.0, cli.failure("req_1", text, error_code=code)))
    assert isinstance(error, ControlRejected)
    assert error.is_unsupported
    assert error.cli_version == "2.1.325"
    assert "2.1.325" in str(error)
    assert "claude update" in error.fix


def test_an_answer_that_is_neither_success_nor_error_is_a_rejection() -> None:
    engine = running()
    engine.submit("k", "interrupt", {}, 1.0)
    response = {"subtype": "maybe", "request_id": "req_1"}
    actions = feed(engine, 2.0, cli.line(type="control_response", response=response))
    assert isinstance(error_of(actions), ControlRejected)


@pytest.mark.parametrize(
    ("timeout", "due"), [(None, 31.0), (5.0, 6.0)], ids=["of the session", "of its own"]
)
def test_silence_is_a_timeout_and_a_later_answer_is_dropped(
    timeout: float | None, due: float
) -> None:
    """R226, R342, C03."""
    engine = running(control_timeout=30.0)
    engine.submit("k", "interrupt", {}, 1.0, timeout)
    assert engine.next_deadline == due
    assert engine.advance(due - 0.1) == []
    error = error_of(engine.advance(due))
    assert isinstance(error, ControlTimeout)
    assert (error.operation, error.request_id, error.timeout) == ("interrupt", "req_1", due - 1.0)
    assert feed(engine, due + 1, cli.success("req_1")) == [
        Warn(WarningKind.LATE_RESPONSE, "request id 'req_1'")
    ]
    assert engine.lifecycle is Lifecycle.RUNNING


def test_rewinding_files_has_the_longest_default_timeout() -> None:
    """R014: four times that of other operations, unless the caller gives one."""
    engine = running(control_timeout=30.0, checkpointing=True)
    engine.submit("k", "rewind_files", {"user_message_id": "u"}, 0.0)
    assert engine.next_deadline == 120.0
    engine.submit("l", "rewind_files", {"user_message_id": "u"}, 0.0, 7.0)
    assert engine.next_deadline == 7.0


def test_an_answer_before_the_deadline_leaves_nothing_to_expire() -> None:
    """R303, R341, R353."""
    engine = running()
    engine.submit("k", "interrupt", {}, 1.0, 5.0)
    feed(engine, 6.0, cli.success("req_1"))
    assert engine.advance(1000.0) == []


def test_the_answer_to_an_abandoned_request_is_dropped() -> None:
    """R019, R344."""
    engine = running()
    engine.submit("k", "interrupt", {}, 1.0)
    assert engine.cancel("k") == []
    assert engine.next_deadline is None
    assert warned(feed(engine, 2.0, cli.success("req_1"))) == [WarningKind.LATE_RESPONSE]


@pytest.mark.parametrize(
    "line",
    [
        cli.success("req_99"),
        cli.failure("zzz", "no"),
        cli.line(type="control_response", response={}),
    ],
    ids=["success", "failure", "no id"],
)
def test_an_answer_to_no_question_is_reported_and_harmless(line: bytes) -> None:
    """R225, R454."""
    engine = running()
    assert warned(feed(engine, 1.0, line)) == [WarningKind.ORPHAN_RESPONSE]
    assert engine.lifecycle is Lifecycle.RUNNING


def test_responses_of_ours_that_the_cli_repeats_are_ignored() -> None:
    engine = running(incoming=cli.asking())
    actions = feed(engine, 1.0, cli.can_use_tool("cli-1"))
    (answer,) = only(Write, actions)
    assert feed(engine, 2.0, answer.data) == []
    assert warned(feed(engine, 2.0, cli.success("cli-2"))) == [WarningKind.ORPHAN_RESPONSE]


def test_the_same_operation_twice_is_two_requests() -> None:
    """R348, R428."""
    engine = running()
    lines = written(
        engine.submit("a", "interrupt", {}, 1.0) + engine.submit("b", "interrupt", {}, 1.0)
    )
    assert [line["request_id"] for line in lines] == ["req_1", "req_2"]
    assert feed(engine, 2.0, cli.success("req_2"), cli.success("req_1")) == [
        Resolve("b", None),
        Resolve("a", None),
    ]


def test_sixty_four_operations_may_be_pending_and_no_more() -> None:
    """R256, R258."""
    engine = running()
    for number in range(64):
        assert len(written(engine.submit(number, "mcp_status", {}, 1.0))) == 1
    actions = engine.submit("too many", "mcp_status", {}, 1.0)
    assert isinstance(error_of(actions), TooManyPendingRequests)
    assert warned(actions) == [WarningKind.LIMIT_REACHED]
    assert written(actions) == []
    feed(engine, 2.0, cli.success("req_1"))
    assert len(written(engine.submit("again", "mcp_status", {}, 2.0))) == 1


@pytest.mark.parametrize(
    ("operation", "fields", "named"),
    [
        ("set_model", {"model": 5}, "set_model.model"),
        ("mcp_set_servers", {}, "mcp_set_servers.servers"),
        ("apply_flag_settings", {}, "apply_flag_settings.settings"),
        ("initialize", {"hooks": {"PreToolUse": 1}}, "subtype"),
        ("custom", {"x": object()}, "custom"),
    ],
)
def test_what_would_hang_an_older_cli_is_never_written(
    operation: str, fields: dict[str, Any], named: str
) -> None:
    """R352."""
    engine = running()
    actions = engine.submit("k", operation, fields, 1.0)
    error = error_of(actions)
    assert isinstance(error, OptionsError)
    assert (error.field, len(actions), engine.next_deadline) == (named, 1, None)


def test_files_are_not_rewound_without_checkpoints() -> None:
    """R393, R400: nothing is sent."""
    actions = running().submit("k", "rewind_files", {"user_message_id": "u1"}, 1.0)
    assert isinstance(error_of(actions), CheckpointingNotEnabled)
    assert len(actions) == 1


def test_an_answer_too_long_to_keep_is_an_error_for_its_caller() -> None:
    engine = running(max_line=200)
    engine.submit("k", "mcp_status", {}, 1.0)
    actions = feed(engine, 2.0, cli.success("req_1", {"x": "y" * 500}))
    error = error_of(actions)
    assert isinstance(error, TransportError)
    assert (error.operation, error.request_id) == ("mcp_status", "req_1")
    assert WarningKind.OVERSIZED_LINE in warned(actions)


@pytest.mark.parametrize(
    "line",
    [
        cli.success("nobody", {"x": "y" * 500}),
        cli.line(type="control_response", response={"subtype": "success", "response": "y" * 500}),
        cli.request(None, "can_use_tool", input="y" * 500),
        cli.assistant("y" * 500),
        b"z" * 500 + b"\n",
    ],
    ids=["a stranger's answer", "no id", "request without id", "message", "junk"],
)
def test_a_long_line_that_answers_no_request_is_only_reported(line: bytes) -> None:
    """R175, R454."""
    actions = feed(running(max_line=200), 1.0, line)
    assert [warning for warning in warned(actions) if warning != WarningKind.LONG_LINE] == [
        WarningKind.OVERSIZED_LINE
    ]
    assert (only(Reject, actions), written(actions)) == ([], [])


def test_a_request_too_long_to_keep_is_answered() -> None:
    engine = running(max_line=300)
    actions = feed(engine, 1.0, cli.can_use_tool("r", input={"x": "y" * 500}))
    assert list(cli.errors(actions)) == ["r"]
    assert "can_use_tool" in cli.errors(actions)["r"]
    assert warned(actions) == [WarningKind.OVERSIZED_LINE, WarningKind.INVALID_REQUEST]


def test_a_request_too_long_to_keep_is_not_answered_twice() -> None:
    engine = running(max_line=300, incoming=cli.asking(can_use_tool="permission"))
    feed(engine, 1.0, cli.can_use_tool("r"))
    actions = feed(engine, 1.0, cli.can_use_tool("r", input={"x": "y" * 500}))
    assert (warned(actions), written(actions)) == ([WarningKind.OVERSIZED_LINE], [])


def garbled(line: bytes) -> bytes:
    """The line with something in it that no JSON has."""
    return line.rstrip(b"}\n") + b", oops}}\n"


def test_the_request_in_a_garbled_line_is_answered() -> None:
    """R178: the CLI's question is answered, our own is settled, the turn ends."""
    engine = running()
    engine.send("a", "a", "prompt", 0.0)
    engine.submit("k", "mcp_status", {}, 0.0)
    asked = feed(engine, 1.0, garbled(cli.can_use_tool("r")))
    assert list(cli.errors(asked)) == ["r"]
    answered = feed(engine, 1.0, garbled(cli.success("req_1")))
    assert isinstance(error_of(answered), TransportError)
    ended = only(TurnEnded, feed(engine, 1.0, garbled(cli.result("a"))))
    assert [(one.uuid, str(one.outcome.reason)) for one in ended] == [("a", "message_lost")]


# ------------------------------------------------------------------------- prompts


def test_a_prompt_is_written_as_a_user_line_and_begins_a_turn() -> None:
    """R190."""
    engine = running()
    actions = engine.send("k", "u1", "hello", 1.0)
    assert [type(action) for action in actions] == [Write, TurnStarted, Resolve]
    assert actions[1:] == [TurnStarted("u1"), Resolve("k", "u1")]
    (line,) = written(actions)
    assert (line["type"], line["uuid"]) == ("user", "u1")
    assert line["message"] == {"role": "user", "content": "hello"}


def test_a_prompt_may_be_blocks() -> None:
    actions = running().send("k", "u1", [TextBlock(text="hi"), {"type": "new", "x": 1}], 1.0)
    assert written(actions)[0]["message"]["content"] == [
        {"type": "text", "text": "hi"},
        {"type": "new", "x": 1},
    ]


def test_a_prompt_json_cannot_carry_begins_no_turn() -> None:
    actions = running().send("k", "u1", [{"type": "text", "text": object()}], 1.0)
    error = error_of(actions)
    assert isinstance(error, OptionsError)
    assert (error.field, len(actions)) == ("content", 1)


def test_a_uuid_in_use_is_not_sent_again() -> None:
    """Every prompt has one outcome: two prompts under one uuid could not."""
    engine = running()
    engine.send("a", "u1", "hello", 1.0)
    actions = engine.send("b", "u1", "hello again", 2.0)
    assert isinstance(error_of(actions), OptionsError)
    assert len(actions) == 1


# ------------------------------------------------------------------------- no longer possible


def stopped(engine: Engine) -> None:
    engine.stop(1.0)


def closing(engine: Engine) -> None:
    engine.close(1.0)


def input_ended(engine: Engine) -> None:
    engine.end_input(1.0)


def broken(engine: Engine) -> None:
    engine.write_failed("EPIPE", 1.0)


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (stopped, SessionStopped),
        (closing, SessionStopped),
        (input_ended, TransportError),
        (broken, TransportError),
    ],
)
def test_nothing_is_written_to_a_session_that_cannot_read(
    end: Any, kind: type[BridleError]
) -> None:
    """R343, R346, R429, C27."""
    engine = running()
    end(engine)
    for actions in (engine.submit("k", "interrupt", {}, 2.0), engine.send("k", "u1", "hi", 2.0)):
        assert isinstance(error_of(actions), kind)
        assert written(actions) == []
    bad = engine.send("k", "u2", [{"x": object()}], 2.0)
    assert isinstance(error_of(bad), kind)


def test_a_broken_pipe_fails_every_operation_in_flight() -> None:
    """R346, R391."""
    engine = running()
    engine.submit("a", "interrupt", {}, 1.0)
    engine.submit("b", "set_model", {"model": "opus"}, 1.0)
    rejections = only(Reject, engine.write_failed("EPIPE", 2.0))
    assert [(one.key, repr(one.error)) for one in rejections] == [
        ("a", "TransportError(operation='interrupt', request_id='req_1', reason='EPIPE')"),
        ("b", "TransportError(operation='set_model', request_id='req_2', reason='EPIPE')"),
    ]
    assert engine.write_failed("again", 3.0) == []


# ------------------------------------------------------------------------- odd lines


@pytest.mark.parametrize("line", [b"nonsense\n", b"[1]\n", b"\xff\xfe\n", b"{\n"], ids=repr)
def test_a_malformed_line_is_reported_and_skipped(line: bytes) -> None:
    """R177, R178, R454."""
    engine = running()
    actions = feed(engine, 1.0, line, cli.assistant())
    assert warned(actions) == [WarningKind.MALFORMED_LINE]
    assert delivered(actions) == [("assistant", ())]


def test_an_empty_line_is_ignored() -> None:
    """S010: alone in a read, among others, or with a carriage return."""
    engine = running()
    assert [feed(engine, 1.0, line) for line in (b"\n", b"\r\n", b"\n\n")] == [[], [], []]
    actions = feed(engine, 1.0, b"\n" + cli.assistant() + b"\r\n\n" + cli.assistant())
    assert (delivered(actions), warned(actions)) == ([("assistant", ()), ("assistant", ())], [])


def test_the_warning_about_a_malformed_line_is_short() -> None:
    """R177."""
    (warning,) = only(Warn, feed(running(), 1.0, b"x" * 5000 + b"\n"))
    assert len(warning.detail) < 400


@pytest.mark.parametrize(
    ("line", "looks"),
    [
        (b"my words", "8 bytes that look like plain text"),
        (
            b'{"type":"assistant","text":"my words',
            "36 bytes that look like a JSON object that is cut",
        ),
        (b'{"type":"user" "my words"}', "26 bytes that look like a JSON object"),
        (b'["my words"]', "12 bytes that look like other JSON"),
        (b"my words \x00", "10 bytes that look like binary data"),
    ],
)
def test_a_malformed_line_is_described_and_not_quoted(line: bytes, looks: str) -> None:
    (warning,) = only(Warn, feed(running(), 1.0, line + b"\r\n"))
    assert looks in warning.detail
    assert "words" not in warning.detail


def test_the_last_line_is_described_and_not_quoted_if_it_is_cut_off() -> None:
    engine = running()
    feed(engine, 1.0, b'{"type":"assistant","text":"my words')
    (warning,) = only(Warn, engine.output_ended(2.0))
    assert "36 bytes" in warning.detail
    assert "words" not in warning.detail


def test_a_message_of_an_unknown_kind_is_named_and_not_quoted() -> None:
    unknown = (cli.line(type="new", text="my words"), cli.system("newer", text="my words"))
    first, second = only(Warn, feed(running(), 1.0, *unknown))
    assert "type 'new', 36 bytes" in first.detail
    assert "type 'system', subtype 'newer', " in second.detail
    assert "words" not in first.detail + second.detail


def test_a_line_of_unusual_length_is_mentioned_while_it_grows() -> None:
    """R174, C25."""
    actions = running().receive(b"x" * (1024 * 1024 + 1), 1.0)
    assert warned(actions) == [WarningKind.LONG_LINE]


@pytest.mark.parametrize("line", [cli.line(type="new"), cli.system("new")], ids=["type", "subtype"])
def test_a_message_of_an_unknown_kind_is_delivered_and_noted(line: bytes) -> None:
    actions = feed(running(), 1.0, line)
    assert [kind for kind, _ in delivered(actions)] != []
    assert warned(actions) == [WarningKind.UNKNOWN_MESSAGE]


def test_control_traffic_is_not_delivered_and_messages_are_in_order() -> None:
    """R291, R369, R374."""
    engine = running()
    actions = feed(
        engine,
        1.0,
        cli.init(),
        cli.can_use_tool("r"),
        cli.assistant(),
        cli.success("req_9"),
        cli.withdrawal("r"),
        cli.result(),
    )
    assert [kind for kind, _ in delivered(actions)] == ["system", "assistant", "result"]


def test_lines_may_come_in_any_parts() -> None:
    """R211."""
    engine = running()
    data = cli.init() + cli.assistant("ü") + cli.can_use_tool("r")
    actions = [action for byte in data for action in engine.receive(bytes([byte]), 1.0)]
    assert [kind for kind, _ in delivered(actions)] == ["system", "assistant"]
    assert list(cli.payloads(actions)) == ["r"]


def test_the_session_id_is_the_clis_and_changes_with_the_conversation() -> None:
    engine = running(session_id="mine")
    assert engine.session_id == "mine"
    actions = feed(engine, 1.0, cli.init(session_id="mine"), cli.init(session_id="s1"))
    assert engine.session_id == "s1"
    assert only(SessionNamed, actions) == [SessionNamed("s1")]
    actions = feed(engine, 1.0, cli.init(session_id="s2"), cli.system("init"))
    assert engine.session_id == "s2"
    assert only(SessionNamed, actions) == [SessionNamed("s2")]


def test_an_event_is_published_beside_the_message() -> None:
    line = cli.line(type="rate_limit_event", rate_limit_info={"status": "allowed"})
    actions = feed(running(), 1.0, line)
    assert delivered(actions) == [("rate_limit_event", ())]
    assert only(Publish, actions) == [Publish(RateLimited(status="allowed"))]


def test_an_unknown_permission_mode_is_sent_with_a_warning() -> None:
    """C36."""
    engine = running()
    actions = engine.submit("k", "set_permission_mode", {"mode": "brandNew"}, 1.0)
    [request] = written(actions)
    assert request["request"] == {"subtype": "set_permission_mode", "mode": "brandNew"}
    assert warned(actions) == [WarningKind.UNKNOWN_VALUE]


def test_every_prompt_of_a_verbatim_session_says_so() -> None:
    actions = running(verbatim_prompts=True).send("k", "u", "/clear", 1.0)
    assert written(actions)[0]["client_composed"] is True
    assert "client_composed" not in written(running().send("k", "u", "/clear", 1.0))[0]
