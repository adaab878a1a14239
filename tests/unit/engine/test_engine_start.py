"""From the process to a running session, or to one error that says why not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support import cli
from tests.support.cli import START, feed, only, started, warned, written

from bridle._engine.actions import (
    Action,
    Call,
    Finished,
    Publish,
    Reject,
    Resolve,
    Terminate,
    Write,
)
from bridle._engine.config import EngineConfig
from bridle._engine.engine import Engine
from bridle._engine.incoming.hook_plan import HookPlan
from bridle._engine.state import Lifecycle
from bridle.errors import (
    BridleError,
    CliExitedDuringInit,
    InitializationError,
    InitializationTimeout,
    InitQueueOverflow,
    OptionsError,
    ProcessInfo,
    SessionNotInitialized,
    SessionStopped,
    SpawnError,
    TransportError,
    UnsupportedCliVersionError,
)
from bridle.events import SessionFailed, SessionReady, WarningKind
from bridle.hooks import Hook

ASKING = cli.asking(
    hooks=HookPlan.from_options({"PreToolUse": [Hook(cli.idle)]}, 60.0),
    can_use_tool="permission",
    mcp_servers={"tools": "server"},
)


def rejection(actions: list[Action], key: str) -> BridleError:
    (error,) = [one.error for one in only(Reject, actions) if one.key == key]
    return error


# ------------------------------------------------------------------------- the handshake


def test_initialize_is_the_first_and_only_line_until_the_session_is_confirmed() -> None:
    """R179, R185, R230, C04."""
    engine = Engine(EngineConfig(initialize={"hooks": {}, "agents": {"a": {}}}))
    assert engine.lifecycle is Lifecycle.STARTING
    actions = engine.start(START, 5.0)
    assert written(actions) == [
        {
            "type": "control_request",
            "request_id": "req_0",
            "request": {"subtype": "initialize", "hooks": {}, "agents": {"a": {}}},
        }
    ]
    assert (len(actions), engine.lifecycle) == (1, Lifecycle.INIT_SENT)
    assert engine.next_deadline == 65.0


def test_the_clis_success_makes_the_session_run() -> None:
    """R180, R224, R231, R250."""
    engine = started(session_id="s0", process=ProcessInfo(cli_version="2.1.325"))
    actions = feed(engine, 1.0, cli.success("req_0", cli.NEWER))
    assert actions == [
        Resolve(START, None),
        Publish(SessionReady("s0", ("x",), "2.1.325")),
    ]
    assert (engine.lifecycle, engine.next_deadline) == (Lifecycle.RUNNING, None)
    assert engine.handshake.server_info == cli.NEWER


@pytest.mark.parametrize(
    "line", [cli.success("req_0", cli.NEWER), cli.hook_callback("r")], ids=["answer", "hook"]
)
def test_a_session_does_not_run_before_the_version_is_accepted(line: bytes) -> None:
    engine = started(incoming=ASKING)
    engine.handshake.awaits_version = True
    engine.send("prompt", "u1", "go", 0.0)
    assert only(Write, feed(engine, 1.0, line)) == []
    assert engine.lifecycle == "init_sent"
    actions = engine.version_accepted(2.0)
    assert engine.lifecycle == "running"
    assert [type(action) for action in actions][:2] == [Resolve, Publish]
    assert [sent["uuid"] for sent in written(actions)] == ["u1"]


def test_a_version_that_is_accepted_first_does_not_make_the_session_run() -> None:
    engine = started()
    engine.handshake.awaits_version = True
    assert engine.version_accepted(1.0) == []
    assert engine.lifecycle == "init_sent"
    feed(engine, 2.0, cli.success("req_0", cli.NEWER))
    assert engine.lifecycle == "running"


def test_a_version_that_is_refused_fails_the_start_before_any_prompt() -> None:
    engine = started()
    engine.handshake.awaits_version = True
    engine.send("prompt", "u1", "go", 0.0)
    feed(engine, 1.0, cli.success("req_0", cli.NEWER))
    actions = engine.break_off(UnsupportedCliVersionError("1.0.33", "2.0.0"), 2.0)
    rejected = {action.key: type(action.error) for action in only(Reject, actions)}
    assert rejected == {START: UnsupportedCliVersionError, "prompt": SessionNotInitialized}
    assert written(actions) == []
    assert engine.version_accepted(3.0) == []
    assert engine.lifecycle is Lifecycle.FAILED


@pytest.mark.parametrize("payload", [None, {}, {"commands": []}, {"capabilities": 5}])
def test_a_thin_answer_still_confirms_but_is_noticed(payload: cli.Json | None) -> None:
    """R224, R228, R454, C23."""
    engine = started()
    actions = feed(engine, 1.0, cli.success("req_0", payload))
    assert warned(actions) == [WarningKind.MISSING_CAPABILITIES]
    assert (engine.lifecycle, engine.handshake.server_info) == (Lifecycle.RUNNING, payload)


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_a_cli_that_did_not_register_a_gate_fails_the_start(is_confirmed: bool) -> None:
    engine = started(initialize={"hooks": {"Stop": [], "PreToolUse": []}})
    if is_confirmed:
        feed(engine, 0.5, cli.can_use_tool("r"))
        assert engine.lifecycle is Lifecycle.RUNNING
    actions = feed(engine, 1.0, cli.success("req_0", {**cli.NEWER, "hooks_applied": False}))
    assert engine.lifecycle is Lifecycle.FAILED
    assert isinstance(engine.error, InitializationError)
    assert "Stop, PreToolUse" in engine.error.message
    if not is_confirmed:
        assert isinstance(rejection(actions, START), InitializationError)


def test_a_cli_that_did_not_register_a_required_hook_fails_the_start() -> None:
    matchers = [{"matcher": None}, {"matcher": None, "onFailure": "block"}]
    engine = started(initialize={"hooks": {"Stop": [], "PreCompact": matchers}})
    feed(engine, 1.0, cli.success("req_0", {**cli.NEWER, "hooks_applied": False}))
    assert isinstance(engine.error, InitializationError)


@pytest.mark.parametrize(
    ("hooks", "applied", "warnings"),
    [
        ({"Stop": []}, False, [WarningKind.HOOK_FAILED]),
        ({"PreCompact": [{"matcher": None}]}, False, [WarningKind.HOOK_FAILED]),
        ({"PreToolUse": []}, True, []),
        ({"PreToolUse": []}, None, []),
        (None, False, []),
    ],
)
def test_other_answers_about_hooks_do_not_fail_the_start(
    hooks: object, applied: bool | None, warnings: list[WarningKind]
) -> None:
    engine = started(initialize={"hooks": hooks})
    told = {**cli.NEWER, **({} if applied is None else {"hooks_applied": applied})}
    assert warned(feed(engine, 1.0, cli.success("req_0", told))) == warnings
    assert engine.lifecycle is Lifecycle.RUNNING


@pytest.mark.parametrize("told", [{}, {"mcp_servers_applied": False}])
def test_a_cli_that_did_not_take_the_mcp_servers_fails_the_start(told: cli.Json) -> None:
    """A CLI before 2.1.326 ignores the field and does not mention it in its response."""
    engine = started(initialize={"mcpServers": {"db": {"command": "db"}}})
    actions = feed(engine, 1.0, cli.success("req_0", {**cli.NEWER, **told}))
    assert engine.lifecycle is Lifecycle.FAILED
    error = rejection(actions, START)
    assert isinstance(error, InitializationError)
    assert "mcp_config_delivery" in error.message


def test_a_cli_that_took_the_mcp_servers_runs() -> None:
    engine = started(initialize={"mcpServers": {"db": {"command": "db"}}})
    feed(engine, 1.0, cli.success("req_0", {**cli.NEWER, "mcp_servers_applied": True}))
    assert engine.lifecycle is Lifecycle.RUNNING


@pytest.mark.parametrize("supported", [True, False, None])
def test_a_required_hook_is_judged_by_the_cli_only_if_it_can_block(supported: bool | None) -> None:
    hook = Hook(cli.idle, on_invalid="send", on_error="block")
    hooks = HookPlan.from_options({"PreToolUse": [hook]}, 60.0)
    told = {} if supported is None else {"hook_on_failure_supported": supported}
    engine = cli.running({**cli.NEWER, **told}, incoming=cli.asking(hooks=hooks))
    feed(engine, 1.0, cli.hook_callback("r"))
    [(_, payload)] = cli.payloads(cli.finish(engine, 1, {"decision": None}, 2.0)).items()
    if supported:
        assert payload == {"decision": None}
    else:
        assert payload["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_an_answer_with_its_id_outside_the_response_confirms_too() -> None:
    """R216."""
    engine = started()
    feed(
        engine,
        1.0,
        cli.line(type="control_response", request_id="req_0", response={"subtype": "success"}),
    )
    assert engine.lifecycle is Lifecycle.RUNNING


@pytest.mark.parametrize(
    "line", [cli.hook_callback("r"), cli.can_use_tool("r")], ids=["hook", "permission"]
)
def test_a_question_confirms_the_session_and_is_then_put(line: bytes) -> None:
    """R232, R235, R311: classified first, then the session moves, then it acts."""
    engine = started(incoming=ASKING)
    engine.submit("op", "interrupt", {}, 0.0)
    actions = feed(engine, 1.0, line)
    assert [type(action) for action in actions] == [Resolve, Publish, Write, Call]
    assert engine.lifecycle is Lifecycle.RUNNING
    assert feed(engine, 2.0, cli.success("req_0", cli.NEWER)) == []
    assert engine.handshake.capabilities == ("x",)


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (
            cli.hook_callback("r", "hook_9", input={"hook_event_name": "Stop"}),
            {"continue": True},
        ),
        (cli.hook_callback("r", "hook_9"), {"permissionDecision": "deny"}),
        (cli.can_use_tool("r"), {"behavior": "deny"}),
    ],
    ids=["hook", "gate", "permission"],
)
def test_a_request_for_a_callback_that_does_not_exist_confirms_the_start(
    line: bytes, answer: cli.Json
) -> None:
    """R236: a gate blocks, a permission is denied, after another hook the CLI continues."""
    engine = started()
    actions = feed(engine, 1.0, line)
    assert engine.lifecycle is Lifecycle.RUNNING
    payload = cli.payloads(actions)["r"]
    assert {**payload, **payload.get("hookSpecificOutput", {})}.items() >= answer.items()
    assert len(warned(actions)) == 1


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(cli.mcp_message("r", {"id": 1}), id="mcp"),
        pytest.param(cli.elicitation("r"), id="elicitation"),
        pytest.param(cli.request("r", "unheard_of"), id="unknown"),
        pytest.param(cli.init(), id="init"),
        pytest.param(cli.assistant(), id="assistant"),
        pytest.param(cli.user("hi"), id="user"),
        pytest.param(cli.result(), id="result"),
        pytest.param(cli.withdrawal("r"), id="withdrawal"),
        pytest.param(cli.success("req_5"), id="stranger"),
        pytest.param(b"nonsense\n", id="junk"),
    ],
)
def test_nothing_else_confirms(line: bytes) -> None:
    """R234, C05: an MCP server is opened before the session is accepted."""
    engine = started(incoming=ASKING)
    feed(engine, 1.0, line)
    assert engine.lifecycle is Lifecycle.INIT_SENT


@pytest.mark.parametrize(
    "line", [cli.failure("req_0", "late no"), None], ids=["refusal", "silence"]
)
def test_a_session_that_runs_already_survives_a_failed_handshake(line: bytes | None) -> None:
    """R250: it is only told."""
    engine = started()
    feed(engine, 1.0, cli.can_use_tool("r"))
    actions = feed(engine, 2.0, line) if line else engine.advance(60.0)
    assert warned(actions) == [WarningKind.INIT_FAILED_LATE]
    assert (engine.lifecycle, engine.next_deadline) == (Lifecycle.RUNNING, None)


# ------------------------------------------------------------------------- the queue


def test_what_was_asked_before_goes_out_in_order_with_ids_of_its_own() -> None:
    """R231, R247, R253, R262."""
    engine = started(control_timeout=30.0)
    assert engine.submit("a", "set_model", {"model": "opus"}, 0.0) == []
    assert engine.send("b", "u1", "hello", 0.0) == []
    assert engine.submit("c", "interrupt", {}, 0.0, timeout=5.0) == []
    actions = feed(engine, 10.0, cli.success("req_0", cli.NEWER))
    lines = written(actions)
    assert [(line["type"], line.get("request_id")) for line in lines] == [
        ("control_request", "req_1"),
        ("user", None),
        ("control_request", "req_2"),
    ]
    assert [type(action) for action in actions[:2]] == [Resolve, Publish]
    assert engine.next_deadline == 15.0


def test_answers_to_flushed_operations_may_come_in_any_order() -> None:
    """R254."""
    engine = started(incoming=ASKING)
    engine.submit("a", "set_model", {"model": "opus"}, 0.0)
    engine.submit("b", "interrupt", {}, 0.0)
    feed(engine, 1.0, cli.success("req_0", cli.NEWER))
    assert only(Call, feed(engine, 2.0, cli.can_use_tool("r"))) != []
    answered = feed(engine, 2.0, cli.success("req_2"), cli.success("req_1", {"m": 1}))
    assert answered == [Resolve("b", None), Resolve("a", {"m": 1})]


def test_the_seventeenth_operation_overflows_the_queue() -> None:
    """R252, R429, C27."""
    engine = started()
    for number in range(15):
        engine.submit(f"k{number}", "interrupt", {}, 0.0)
    assert engine.send("prompt", "u1", "hello", 0.0) == []
    actions = engine.send("too many", "u2", "hello", 0.0)
    assert isinstance(rejection(actions, "too many"), InitQueueOverflow)
    assert warned(actions) == [WarningKind.LIMIT_REACHED]


def test_operations_may_wait_before_there_is_a_process() -> None:
    engine = Engine(EngineConfig())
    assert engine.submit("a", "interrupt", {}, 0.0) == []
    engine.start(START, 1.0)
    assert len(written(feed(engine, 2.0, cli.success("req_0", cli.NEWER)))) == 1


def test_a_queued_operation_can_be_cancelled() -> None:
    """R019."""
    engine = started()
    engine.submit("a", "interrupt", {}, 0.0)
    assert engine.cancel("a") == []
    assert written(feed(engine, 1.0, cli.success("req_0", cli.NEWER))) == []


def test_a_caller_can_stop_waiting_for_the_start() -> None:
    engine = started()
    engine.cancel(START)
    assert only(Resolve, feed(engine, 1.0, cli.success("req_0", cli.NEWER))) == []


# ------------------------------------------------------------------------- failures


def refuse(engine: Engine) -> list[Action]:
    return feed(engine, 1.0, cli.failure("req_0", "bad hooks"))


def time_out(engine: Engine) -> list[Action]:
    return engine.advance(7.0)


def leave(engine: Engine) -> list[Action]:
    return engine.output_ended(1.0) + engine.exited(3, "some words", 1.0)


def leave_for_an_option(engine: Engine) -> list[Action]:
    return engine.output_ended(1.0) + engine.exited(1, "error: unknown option '--x'", 1.0)


def fall_silent(engine: Engine) -> list[Action]:
    return engine.output_ended(1.0) + engine.advance(2.0)


@pytest.mark.parametrize(
    ("fail", "kind", "words", "gone"),
    [
        pytest.param(
            refuse, InitializationError, "bad hooks", False, marks=pytest.mark.requirement("R237")
        ),
        pytest.param(
            time_out, InitializationTimeout, "7 s", False, marks=pytest.mark.requirement("R238")
        ),
        pytest.param(
            leave, CliExitedDuringInit, "some words", True, marks=pytest.mark.requirement("R239")
        ),
        pytest.param(
            leave_for_an_option,
            UnsupportedCliVersionError,
            "unknown option",
            True,
            marks=pytest.mark.requirement("R248"),
        ),
        (fall_silent, CliExitedDuringInit, "closed its output", False),
    ],
)
def test_a_session_that_does_not_get_going_fails_with_one_error(
    fail: Callable[[Engine], list[Action]], kind: type[BridleError], words: str, gone: bool
) -> None:
    """R242, R255, C49."""
    engine = started(init_timeout=7.0)
    engine.submit("op", "interrupt", {}, 0.0)
    engine.send("prompt", "u1", "hello", 0.0)
    actions = fail(engine)
    error = rejection(actions, START)
    assert isinstance(error, kind)
    assert words in str(error)
    for key in ("op", "prompt"):
        assert isinstance(rejection(actions, key), SessionNotInitialized)
    (event,) = [one.event for one in only(Publish, actions)]
    assert isinstance(event, SessionFailed)
    assert (event.error, engine.lifecycle) == (error, Lifecycle.FAILED)
    assert (actions[-1] == Finished()) is gone
    assert (Terminate() in actions) is not gone


def test_the_process_behind_an_early_exit_is_in_the_error() -> None:
    """R239, R249."""
    engine = started(process=ProcessInfo(cli_version="2.1.325", argv=("claude",)))
    error = rejection(leave(engine), START)
    assert (error.exit_code, error.stderr_tail) == (3, "some words")
    assert (error.cli_version, error.argv) == ("2.1.325", ("claude",))


def test_an_error_result_before_the_handshake_explains_the_exit() -> None:
    engine = started()
    feed(
        engine,
        0.5,
        cli.result(
            subtype="error_during_execution", is_error=True, errors=["No conversation found"]
        ),
    )
    error = rejection(leave(engine), START)
    assert isinstance(error, CliExitedDuringInit)
    assert error.message == "No conversation found"


def test_a_broken_input_before_the_handshake_ends_the_start() -> None:
    """R346."""
    engine = started()
    engine.submit("op", "interrupt", {}, 0.0)
    actions = engine.write_failed("EPIPE", 1.0)
    error = rejection(actions, "op")
    assert isinstance(error, TransportError)
    assert (error.reason, engine.lifecycle) == ("EPIPE", Lifecycle.INIT_SENT)
    assert isinstance(rejection(engine.advance(2.0), START), CliExitedDuringInit)
    assert engine.lifecycle is Lifecycle.FAILED


def test_a_start_without_a_process_fails_the_session() -> None:
    """R240, R242, R388."""
    engine = Engine(EngineConfig())
    engine.submit("op", "interrupt", {}, 0.0)
    error = SpawnError("No such file", 2)
    actions = engine.spawn_failed(START, error, 1.0)
    assert rejection(actions, START) is error
    assert isinstance(rejection(actions, "op"), SessionNotInitialized)
    assert only(Publish, actions)[0].event == SessionFailed(str(error.args[0]), None, error)
    assert (actions[-1], Terminate() in actions) == (Finished(), False)
    assert engine.lifecycle is Lifecycle.FAILED


def test_a_process_that_ends_before_it_is_reported_to_run_fails_the_start() -> None:
    engine = Engine(EngineConfig())
    engine.output_ended(0.0)
    assert engine.exited(1, "", 0.0)[-1] == Finished()
    assert engine.lifecycle is Lifecycle.FAILED
    assert isinstance(rejection(engine.start(START, 1.0), START), SessionStopped)


def test_operations_after_a_failed_start_say_that_it_never_ran() -> None:
    """R255, C49."""
    engine = started()
    refuse(engine)
    error = rejection(engine.submit("late", "interrupt", {}, 2.0), "late")
    assert isinstance(error, SessionNotInitialized)


@pytest.mark.parametrize("spawned", [True, False])
def test_starting_a_stopped_session_raises(spawned: bool) -> None:
    """R358, R366, C30, C49."""
    engine = Engine(EngineConfig())
    engine.submit("op", "interrupt", {}, 0.0)
    assert isinstance(rejection(engine.stop(0.0), "op"), SessionStopped)
    if spawned:
        actions = engine.start(START, 1.0)
        assert actions[-1] == Terminate()
        assert written(actions) == []
        engine.output_ended(2.0)
        assert engine.exited(-15, "", 2.0) == [Finished()]
    else:
        actions = engine.spawn_failed(START, SpawnError("gone"), 1.0)
        assert actions[-1] == Finished()
    assert isinstance(rejection(actions, START), SessionStopped)
    assert engine.lifecycle is Lifecycle.STOPPED


def test_a_stop_during_the_handshake_makes_the_start_raise() -> None:
    """R345, R366, C30."""
    engine = started()
    actions = engine.stop(1.0)
    assert isinstance(rejection(actions, START), SessionStopped)
    assert actions[-1] == Terminate()
    assert (engine.lifecycle, engine.next_deadline) == (Lifecycle.STOPPED, 6.0)


def test_options_json_cannot_carry_are_refused_before_anything_is_started() -> None:
    with pytest.raises(OptionsError):
        Engine(EngineConfig(initialize={"x": object()}))


# ------------------------------------------------------------------------- lines too long to keep


@pytest.mark.parametrize("subtype", ["success", "error"])
def test_an_answer_to_initialize_that_is_too_long_still_counts(subtype: str) -> None:
    engine = started(max_line=200)
    content = {"response" if subtype == "success" else "error": "x" * 500}
    line = cli.line(
        type="control_response", response={"subtype": subtype, "request_id": "req_0", **content}
    )
    actions = feed(engine, 1.0, line)
    assert WarningKind.OVERSIZED_LINE in warned(actions)
    if subtype == "success":
        assert (engine.lifecycle, engine.handshake.server_info) == (Lifecycle.RUNNING, None)
    else:
        assert isinstance(rejection(actions, START), InitializationError)


@pytest.mark.parametrize("part", ["output", "input"])
def test_a_process_that_loses_a_pipe_before_the_start_fails_the_session(part: str) -> None:
    engine = Engine(EngineConfig())
    if part == "output":
        engine.output_ended(0.0)
    else:
        engine.write_failed("EPIPE", 0.0)
    engine.advance(60.0)
    assert engine.lifecycle is Lifecycle.FAILED
    [rejected] = cli.only(Reject, engine.start("key", 61.0))
    assert rejected.key == "key"


def test_output_that_ends_after_a_stop_without_a_process_does_nothing() -> None:
    engine = Engine(EngineConfig())
    engine.stop(0.0)
    engine.output_ended(0.0)
    assert engine.advance(60.0) == []
    assert engine.lifecycle is Lifecycle.STOPPED
