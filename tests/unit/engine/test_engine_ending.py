"""The way out: closing gently, stopping, dying; and nothing after the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support import cli
from tests.support.cli import (
    START,
    aborted,
    delivered,
    echo,
    feed,
    idle,
    init,
    only,
    payloads,
    result,
    running,
    started,
    warned,
    written,
)

from bridle._engine.actions import (
    Action,
    Call,
    CancelCall,
    EndInput,
    Finished,
    Kill,
    Publish,
    Reject,
    Terminate,
    TurnEnded,
)
from bridle._engine.config import EngineConfig
from bridle._engine.engine import Engine
from bridle._engine.incoming.hook_plan import HookPlan
from bridle._engine.state import Lifecycle
from bridle.errors import (
    ConsumerTooSlow,
    ControlTimeout,
    ProcessInfo,
    SessionStopped,
    TransportError,
)
from bridle.events import SessionCompleted, SessionEnded, SessionEvent, SessionFailed, WarningKind
from bridle.hooks import Hook

ASKING = cli.asking(
    hooks=HookPlan.from_options({"PreToolUse": [Hook(idle)]}, 60.0), can_use_tool="permission"
)
INTERRUPT = {"subtype": "interrupt", "cancel_queued": True}


def requests(actions: list[Action]) -> list[cli.Json]:
    return [line["request"] for line in written(actions) if line["type"] == "control_request"]


def reasons(actions: list[Action]) -> dict[str, str]:
    return {one.uuid: str(one.outcome.reason) for one in only(TurnEnded, actions)}


def events(actions: list[Action]) -> list[SessionEvent]:
    return [one.event for one in only(Publish, actions)]


def rejected(actions: list[Action]) -> dict[object, type]:
    return {one.key: type(one.error) for one in only(Reject, actions)}


def busy(info: cli.Json = cli.NEWER, *, waiting: bool = False, **config: object) -> Engine:
    """A session in the middle of the turn of prompt a; b may wait."""
    engine = running(info, **config)
    for uuid in ("a", "b") if waiting else ("a",):
        engine.send(uuid, uuid, "prompt", 0.0)
    feed(engine, 0.0, init("a") if info is cli.NEWER else init(), echo("a"))
    return engine


# ------------------------------------------------------------------------- closing gently


def test_closing_an_idle_session_ends_its_input_and_lets_it_leave() -> None:
    """R356, R362, R363, C01."""
    engine = running()
    assert engine.close(1.0) == [EndInput()]
    assert (engine.is_closing, engine.lifecycle, engine.next_deadline) == (
        True,
        Lifecycle.RUNNING,
        6.0,
    )
    assert engine.close(2.0) == []
    engine.output_ended(3.0)
    assert engine.exited(0, "", 3.0) == [Publish(SessionEnded(0)), Finished()]
    assert (engine.lifecycle, engine.next_deadline) == (Lifecycle.STOPPED, None)


def test_closing_a_busy_session_interrupts_its_turn_first() -> None:
    engine = busy()
    actions = engine.close(1.0)
    assert (requests(actions), EndInput() in actions) == ([INTERRUPT], False)
    assert engine.next_deadline == 3.0
    actions = feed(engine, 1.5, cli.success("req_1"), aborted("a"))
    assert reasons(actions) == {"a": "interrupted"}
    assert actions[-1] == EndInput()


def test_prompts_that_wait_in_an_older_cli_are_interrupted_in_their_turn() -> None:
    """It runs them whatever the first interrupt asked for."""
    engine = busy(cli.OLDER, waiting=True)
    engine.close(1.0)
    actions = feed(engine, 1.1, aborted())
    assert (reasons(actions), requests(actions)) == ({"a": "interrupted"}, [INTERRUPT])
    assert EndInput() not in actions
    actions = feed(engine, 1.2, init(), echo("b"), aborted())
    assert (reasons(actions), actions[-1]) == ({"b": "interrupted"}, EndInput())


def test_prompts_that_wait_in_a_newer_cli_are_taken_out_of_its_queue() -> None:
    engine = busy(waiting=True)
    engine.close(1.0)
    actions = feed(engine, 1.1, cli.lifecycle("b", "cancelled"), aborted("a"))
    assert reasons(actions) == {"b": "interrupted", "a": "interrupted"}
    assert actions[-1] == EndInput()


def test_a_close_goes_on_when_the_last_prompt_is_withdrawn() -> None:
    engine = running()
    engine.send("a", "a", "prompt", 0.0)
    engine.close(1.0)
    actions = feed(engine, 1.1, cli.lifecycle("a", "cancelled"))
    assert (reasons(actions), actions[-1]) == ({"a": "interrupted"}, EndInput())


def test_a_close_goes_on_when_an_older_cli_took_the_last_prompt_back() -> None:
    """The answer alone says so, and nobody waits for it any more."""
    engine = running(cli.OLDER)
    engine.send("a", "a", "prompt", 0.0)
    engine.submit("k", "cancel_async_message", {"message_uuid": "a"}, 0.5)
    assert rejected(engine.close(1.0)) == {"k": SessionStopped}
    actions = feed(engine, 1.1, cli.success("req_1", {"cancelled": True}))
    assert (reasons(actions), EndInput() in actions) == ({"a": "interrupted"}, True)


def test_a_lost_result_is_the_end_of_the_interrupted_turn_too() -> None:
    engine = busy(max_line=600)
    engine.close(1.0)
    actions = feed(engine, 1.1, cli.line(type="result", result="x" * 900))
    assert (reasons(actions), actions[-1]) == ({"a": "message_lost"}, EndInput())


def test_a_cli_that_ignores_everything_is_brought_down_step_by_step() -> None:
    """R354, R355, C01."""
    engine = busy()
    engine.close(0.0)
    steps = []
    while (now := engine.next_deadline) is not None and now < 30.0:
        steps += [(now, action) for action in engine.advance(now)]
    assert steps == [(2.0, EndInput()), (7.0, Terminate()), (12.0, Kill())]
    engine.output_ended(13.0)
    actions = engine.exited(-9, "", 13.0)
    assert (reasons(actions), events(actions)) == ({"a": "stopped"}, [SessionEnded(-9)])
    assert actions[-1] == Finished()


def test_closing_settles_what_callers_and_the_cli_wait_for() -> None:
    """R300, R343, R345."""
    engine = busy(incoming=ASKING)
    engine.submit("k", "mcp_status", {}, 0.5)
    feed(engine, 0.5, cli.can_use_tool("p"), cli.hook_callback("h"))
    actions = engine.close(1.0)
    assert rejected(actions) == {"k": SessionStopped}
    assert only(CancelCall, actions) == [CancelCall(1), CancelCall(2)]
    answers = payloads(actions)
    assert answers["p"]["behavior"] == "deny"
    assert answers["h"]["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert requests(actions) == [INTERRUPT]
    assert warned(feed(engine, 1.1, cli.success("req_1"))) == [WarningKind.LATE_RESPONSE]


def test_closing_after_the_input_has_ended_only_waits() -> None:
    engine = busy()
    assert engine.end_input(0.5) == [EndInput()]
    assert engine.close(1.0) == []
    assert (engine.is_closing, engine.next_deadline) == (True, 6.0)
    assert engine.advance(6.0) == [Terminate()]


def test_closing_before_the_session_runs_is_stopping() -> None:
    engine = started()
    actions = engine.close(1.0)
    assert (rejected(actions), actions[-1]) == ({"start": SessionStopped}, Terminate())
    assert engine.lifecycle is Lifecycle.STOPPED


def test_an_interrupt_without_an_answer_raises_nothing() -> None:
    engine = busy(control_timeout=1.5)
    engine.close(0.0)
    assert engine.advance(1.5) == []


def test_a_second_interrupt_is_not_written_to_a_broken_input() -> None:
    engine = busy(cli.OLDER, waiting=True)
    engine.close(1.0)
    engine.write_failed("EPIPE", 1.1)
    actions = feed(engine, 1.2, aborted())
    assert (reasons(actions), written(actions)) == ({"a": "interrupted"}, [])


def test_a_close_whose_interrupt_cannot_be_written_goes_on() -> None:
    engine = busy()
    engine.close(1.0)
    actions = engine.write_failed("EPIPE", 1.1)
    while Terminate() not in actions:
        assert engine.next_deadline is not None
        actions += engine.advance(engine.next_deadline)
    engine.output_ended(9.0)
    actions += engine.exited(-15, "", 9.0)
    assert (reasons(actions), events(actions)) == ({"a": "stopped"}, [SessionEnded(-15)])


# ------------------------------------------------------------------------- stopping


def draining(engine: Engine) -> None:
    engine.close(0.5)


def untouched(_: Engine) -> None:
    """The session just runs."""


@pytest.mark.parametrize("before", [untouched, draining], ids=["running", "closing"])
def test_a_stop_settles_everything_and_brings_the_process_down(
    before: Callable[[Engine], None],
) -> None:
    """R343, R354, R359, R364."""
    engine = busy(waiting=True, incoming=ASKING)
    engine.submit("k", "mcp_status", {}, 0.0)
    feed(engine, 0.0, cli.can_use_tool("p"))
    opened: list[Action] = []
    before(engine)
    if before is untouched:
        opened = engine.stop(1.0)
        assert rejected(opened) == {"k": SessionStopped}
        assert only(CancelCall, opened) == [CancelCall(1)]
    else:
        opened = engine.stop(1.0)
    assert reasons(opened) == {"a": "stopped", "b": "stopped"}
    assert (events(opened), opened[-1]) == ([], Terminate())
    assert written(opened) == []
    assert (engine.lifecycle, engine.next_deadline) == (Lifecycle.STOPPED, 6.0)


def test_a_stop_may_be_repeated() -> None:
    """R358."""
    engine = running()
    engine.stop(1.0)
    assert (engine.stop(2.0), engine.close(2.0)) == ([], [])
    engine.output_ended(3.0)
    assert engine.exited(-15, "", 3.0) == [Publish(SessionEnded(-15)), Finished()]
    assert engine.stop(4.0) == []


def test_a_stop_before_the_start_ends_the_session_at_once() -> None:
    engine = Engine(EngineConfig())
    assert engine.stop(1.0) == [Publish(SessionEnded(None))]
    engine.start(START, 2.0)
    engine.output_ended(3.0)
    assert engine.exited(-15, "", 3.0) == [Finished()]


@pytest.mark.parametrize("before", [untouched, draining], ids=["running", "closing"])
def test_a_stop_leaves_no_open_request(before: Callable[[Engine], None]) -> None:
    """R361: neither ours nor the CLI's. Answers and results that come later find nothing."""
    engine = busy(waiting=True, incoming=ASKING)
    opened = engine.submit("k", "mcp_status", {}, 0.0)
    [request] = written(opened)
    calls = only(Call, feed(engine, 0.0, cli.can_use_tool("p"), cli.hook_callback("h")))
    assert len(calls) == 2
    before(engine)
    engine.stop(1.0)
    assert feed(engine, 2.0, cli.success(request["request_id"])) == []
    assert [engine.finished_call(call.call_id, None, 2.0) for call in calls] == [[], []]
    for now in (6.0, 100.0):
        assert only(Reject, engine.advance(now)) == []


def test_a_stop_empties_the_queue_of_a_session_that_never_ran() -> None:
    """R361."""
    engine = started()
    engine.submit("k", "mcp_status", {}, 0.0)
    engine.send("p", "u1", "go", 0.0)
    assert set(rejected(engine.stop(1.0))) == {START, "k", "p"}
    assert rejected(engine.advance(100.0)) == {}


def test_a_process_that_does_not_go_is_killed() -> None:
    """R354, R355."""
    engine = running()
    engine.stop(1.0)
    assert (engine.advance(5.9), engine.advance(6.0)) == ([], [Kill()])
    assert engine.next_deadline is None


def test_a_timeout_and_a_stop_settle_an_operation_once() -> None:
    """R353, C02."""
    engine = running()
    engine.submit("k", "interrupt", {}, 0.0, 5.0)
    assert rejected(engine.stop(5.0)) == {"k": SessionStopped}
    assert rejected(engine.advance(6.0)) == {}
    other = running()
    other.submit("k", "interrupt", {}, 0.0, 5.0)
    assert rejected(other.advance(5.0)) == {"k": ControlTimeout}
    assert rejected(other.stop(5.0)) == {}


def test_a_reason_of_ours_fails_the_session() -> None:
    """C30."""
    engine = busy()
    error = ConsumerTooSlow(100, 10)
    actions = engine.break_off(error, 1.0)
    assert reasons(actions) == {"a": "stopped"}
    (event,) = events(actions)
    assert isinstance(event, SessionFailed)
    assert (event.error, actions[-1], engine.lifecycle) == (error, Terminate(), Lifecycle.FAILED)
    assert engine.break_off(error, 2.0) == []
    assert rejected(engine.submit("late", "interrupt", {}, 3.0)) == {"late": SessionStopped}


# ------------------------------------------------------------------------- dying


@pytest.mark.parametrize("exit_first", [True, False], ids=["exit first", "output first"])
@pytest.mark.parametrize(
    ("code", "event"),
    [
        (0, SessionCompleted()),
        (1, SessionFailed("the CLI ended with exit code 1", 1)),
        (-9, SessionFailed("the CLI ended with SIGKILL (exit code -9)", -9)),
    ],
)
def test_a_session_is_over_when_its_process_and_its_output_are(
    code: int, event: SessionEvent, exit_first: bool
) -> None:
    """R241, R367, R368, C30."""
    engine = busy()
    engine.submit("k", "interrupt", {}, 0.0)
    if exit_first:
        assert engine.exited(code, "last words", 1.0) == []
        feed(engine, 1.1, cli.assistant())
        actions = engine.output_ended(1.2)
    else:
        assert engine.output_ended(1.0) == []
        actions = engine.exited(code, "last words", 1.2)
    assert reasons(actions) == {"a": "cli_exited"}
    (ended,) = only(TurnEnded, actions)
    assert (ended.outcome.exit_code, ended.outcome.stderr_tail) == (code, "last words")
    assert rejected(actions) == {"k": SessionStopped}
    assert (events(actions), actions[-1]) == ([event], Finished())
    assert (engine.lifecycle, engine.next_deadline) == (Lifecycle.STOPPED, None)


def test_a_turn_that_ended_keeps_its_outcome_when_the_cli_fails_afterwards() -> None:
    engine = busy()
    assert reasons(feed(engine, 1.0, result("a"))) == {"a": "completed"}
    engine.output_ended(2.0)
    assert reasons(engine.exited(1, "", 2.0)) == {}


def test_output_that_stays_open_after_the_exit_is_not_waited_for_long() -> None:
    """R367: a grandchild may hold the pipe for ever."""
    engine = busy()
    engine.exited(0, "", 1.0)
    assert delivered(feed(engine, 1.5, cli.assistant())) == [("assistant", ("a",))]
    actions = engine.advance(2.0)
    assert (reasons(actions), actions[-1]) == ({"a": "cli_exited"}, Finished())
    assert engine.output_ended(3.0) == []


def test_a_process_that_closes_its_output_but_stays_is_ended() -> None:
    """R367."""
    engine = busy(process=ProcessInfo(cli_version="2.1.325"))
    engine.output_ended(1.0)
    actions = engine.advance(2.0)
    assert reasons(actions) == {"a": "cli_exited"}
    (event,) = events(actions)
    assert isinstance(event, SessionFailed)
    assert isinstance(event.error, TransportError)
    assert (actions[-1], engine.lifecycle) == (Terminate(), Lifecycle.FAILED)
    assert engine.exited(-15, "", 3.0) == [Finished()]


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "closing"])
def test_output_that_ends_while_the_process_is_being_ended_changes_nothing(stopped: bool) -> None:
    engine = running()
    if stopped:
        engine.stop(1.0)
    else:
        engine.close(1.0)
        assert engine.advance(6.0) == [Terminate()]
    engine.output_ended(6.5 if not stopped else 1.5)
    kills = engine.advance(7.5) if not stopped else engine.advance(2.5)
    assert kills == []
    assert engine.advance(11.0) == [Kill()]


def test_a_draining_cli_that_closes_its_output_but_stays_is_terminated_early() -> None:
    engine = running()
    engine.close(1.0)
    engine.output_ended(1.5)
    assert engine.advance(2.5) == [Terminate()]


def test_a_broken_input_gives_the_cli_a_moment_to_leave_by_itself() -> None:
    """R346."""
    engine = busy()
    assert engine.write_failed("EPIPE", 1.0) == []
    engine.output_ended(1.5)
    actions = engine.exited(1, "crash", 1.5)
    assert (reasons(actions), actions[-1]) == ({"a": "cli_exited"}, Finished())


def test_an_input_that_broke_before_its_end_is_lost_although_the_report_comes_later() -> None:
    engine = busy()
    engine.end_input(1.0)
    assert (engine.write_failed("EPIPE", 2.0), engine.next_deadline) == ([], 3.0)
    assert (engine.write_failed("EPIPE", 2.5), engine.next_deadline) == ([], 3.0)


@pytest.mark.parametrize("exited", [False, True], ids=["stays", "gone, output open"])
def test_a_cli_that_stays_with_a_broken_input_is_ended(exited: bool) -> None:
    """R346."""
    engine = busy()
    engine.write_failed("EPIPE", 1.0)
    if exited:
        engine.exited(1, "", 1.9)
        assert engine.advance(2.0) == []
        assert engine.advance(2.9)[-1] == Finished()
        return
    actions = engine.advance(2.0)
    (event,) = events(actions)
    assert isinstance(event, SessionFailed)
    assert "EPIPE" in event.reason
    assert actions[-1] == Terminate()


@pytest.mark.parametrize("line", [result("a"), result("a").rstrip(b"\n")], ids=["whole", "partial"])
def test_a_last_line_counts_with_or_without_its_ending(line: bytes) -> None:
    engine = busy()
    actions = feed(engine, 1.0, line) + engine.output_ended(1.0)
    assert reasons(actions) == {"a": "completed"}


def test_a_cut_last_line_is_reported() -> None:
    engine = busy()
    feed(engine, 1.0, b'{"type":"resu')
    assert warned(engine.output_ended(1.0)) == [WarningKind.MALFORMED_LINE]


def test_a_last_line_without_its_ending_may_be_conversation_or_too_long() -> None:
    engine = busy(max_line=600)
    feed(engine, 1.0, cli.assistant().rstrip(b"\n"))
    assert delivered(engine.output_ended(1.0)) == [("assistant", ("a",))]
    other = busy(max_line=600)
    feed(other, 1.0, cli.assistant("x" * 900).rstrip(b"\n"))
    assert warned(other.output_ended(1.0)) == [WarningKind.OVERSIZED_LINE]


@pytest.mark.parametrize("words", ["no", "no" * 500], ids=["short", "too long"])
def test_lines_behind_the_one_that_ends_the_session_are_not_read(words: str) -> None:
    """R365."""
    engine = started(max_line=600)
    actions = engine.receive(cli.failure("req_0", words) + cli.assistant(), 1.0)
    assert (engine.lifecycle, delivered(actions)) == (Lifecycle.FAILED, [])


# ------------------------------------------------------------------------- after the end


def died(engine: Engine) -> None:
    engine.output_ended(1.0)
    engine.exited(0, "", 1.0)


def stopped(engine: Engine) -> None:
    engine.stop(1.0)
    engine.exited(-15, "", 1.0)
    engine.output_ended(1.0)


def outlived(engine: Engine) -> None:
    engine.exited(0, "", 1.0)
    engine.advance(2.0)


@pytest.mark.parametrize("end", [died, stopped, outlived])
def test_nothing_happens_after_the_end(end: Callable[[Engine], None]) -> None:
    """R162, R322, R333, R365."""
    engine = busy(incoming=ASKING)
    feed(engine, 0.0, cli.hook_callback("h"), cli.can_use_tool("p"))
    engine.submit("k", "interrupt", {}, 0.0)
    end(engine)
    assert engine.lifecycle is Lifecycle.STOPPED
    later: list[list[Action]] = [
        engine.receive(result("a") + cli.can_use_tool("x") + cli.success("req_1"), 3.0),
        engine.output_ended(3.0),
        engine.exited(0, "", 3.0),
        engine.write_failed("EPIPE", 3.0),
        cli.finish(engine, 1, None, 3.0),
        engine.failed_call(2, "x", 3.0),
        engine.cancel("k"),
        engine.end_input(3.0),
        engine.close(3.0),
        engine.stop(3.0),
        engine.break_off(ConsumerTooSlow(1, 1), 3.0),
        engine.advance(1e9),
    ]
    assert later == [[]] * len(later)
    assert engine.next_deadline is None


def test_the_turn_is_interrupted_before_its_open_requests_are_refused() -> None:
    """Otherwise the model could complete the turn after a refused tool call."""
    engine = running(incoming=cli.asking(can_use_tool=idle))
    engine.send("k", "u", "go", 0.0)
    feed(engine, 0.5, init(), cli.can_use_tool("p"))
    kinds = [line["type"] for line in written(engine.close(1.0))]
    assert kinds == ["control_request", "control_response"]
