"""Limits of ours on a turn: reached once, interrupted, and given up on if that does not help."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import cli
from tests.support.sizes import largest_container

from bridle import Limits, OutcomeReason
from bridle._engine.actions import Action, Call, Reject, Terminate, TurnEnded, Write
from bridle._engine.engine import Engine
from bridle._engine.turns.limits import REACTION
from bridle._engine.turns.turn_records import Used


def running(**limits: Any) -> Engine:
    engine = cli.running(limits=Limits(**limits))
    engine.send("key", "a", "prompt", 0.0)
    return engine


def asked(actions: list[Action]) -> list[str]:
    """The control operations that were sent."""
    frames = cli.written(actions)
    return [frame["request"]["subtype"] for frame in frames if frame["type"] == "control_request"]


def reason(actions: list[Action]) -> OutcomeReason:
    [ended] = [action for action in actions if isinstance(action, TurnEnded)]
    return ended.outcome.reason


INIT = cli.line(type="system", subtype="init", user_message_uuids=["a"])
ABORTED = cli.line(
    type="result",
    subtype="error_during_execution",
    is_error=True,
    terminal_reason="aborted_streaming",
    user_message_uuids=["a"],
)


def assistant(message_id: str, *blocks: dict[str, Any]) -> bytes:
    return cli.line(type="assistant", message={"id": message_id, "content": list(blocks)})


USE = {"type": "tool_use", "id": "t", "name": "Bash", "input": {}}
RESULT = cli.line(
    type="user",
    message={"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]},
)


def test_without_limits_there_is_no_deadline() -> None:
    assert running().next_deadline is None


def test_silence_after_a_prompt_reaches_the_first_limit() -> None:
    engine = running(first_event=5.0)
    assert engine.next_deadline == 5.0
    assert asked(engine.advance(5.0)) == ["interrupt"]
    assert reason(engine.receive(INIT + ABORTED, 6.0)) is OutcomeReason.LIMIT_FIRST_EVENT
    assert engine.next_deadline == 35.0, "only the interrupt's own timeout is left"


def test_the_first_sign_of_life_ends_the_first_limit() -> None:
    engine = running(first_event=5.0)
    engine.receive(INIT, 4.0)
    assert engine.next_deadline is None


def test_a_report_that_a_prompt_is_queued_does_not_count_as_activity() -> None:
    engine = running(first_event=5.0)
    engine.receive(cli.line(type="command_lifecycle", command_uuid="a", state="queued"), 1.0)
    assert engine.next_deadline == 5.0


def test_a_prompt_that_waits_for_another_is_not_late() -> None:
    engine = running(first_event=5.0)
    engine.send("key b", "b", "prompt", 1.0)
    engine.receive(INIT, 2.0)
    assert engine.next_deadline is None
    done = cli.line(
        type="result",
        subtype="success",
        is_error=False,
        terminal_reason="completed",
        user_message_uuids=["a"],
    )
    engine.receive(done, 10.0)
    assert engine.next_deadline == 15.0


def test_silence_in_a_turn_reaches_the_idle_limit() -> None:
    engine = running(idle=5.0)
    engine.receive(INIT, 1.0)
    engine.receive(assistant("m"), 3.0)
    assert engine.next_deadline == 8.0
    assert asked(engine.advance(8.0)) == ["interrupt"]
    assert reason(engine.receive(ABORTED, 9.0)) is OutcomeReason.LIMIT_IDLE


def test_the_idle_limit_starts_with_the_first_event_of_the_turn() -> None:
    engine = running(idle=5.0)
    assert engine.next_deadline is None
    engine.receive(INIT, 3.0)
    assert engine.next_deadline == 8.0


def test_only_the_turn_itself_puts_its_idle_limit_off() -> None:
    engine = running(idle=5.0)
    engine.receive(INIT, 1.0)
    engine.submit("k", "mcp_status", {}, 4.0)
    assert engine.next_deadline == 6.0


def test_the_idle_clock_stands_still_while_a_tool_runs() -> None:
    engine = running(idle=5.0)
    engine.receive(INIT + assistant("m", USE), 1.0)
    assert engine.next_deadline is None
    engine.receive(RESULT, 1000.0)
    assert engine.next_deadline == 1005.0


def test_the_idle_timeout_pauses_while_a_callback_runs() -> None:
    engine = cli.running(limits=Limits(idle=5.0), incoming=cli.asking(can_use_tool=cli.idle))
    engine.send("key", "a", "prompt", 0.0)
    actions = engine.receive(INIT + cli.can_use_tool("r"), 1.0)
    assert engine.next_deadline is None
    [call] = cli.only(Call, actions)
    cli.finish(engine, call.call_id, None, 100.0)
    assert engine.next_deadline == 105.0


def test_a_question_of_the_cli_is_a_sign_of_life() -> None:
    incoming = cli.asking(can_use_tool=cli.idle)
    engine = cli.running(limits=Limits(first_event=5.0), incoming=incoming)
    engine.send("key", "a", "prompt", 0.0)
    engine.receive(cli.can_use_tool("r"), 1.0)
    assert engine.next_deadline is None


def test_after_it_the_idle_clock_runs() -> None:
    incoming = cli.asking(can_use_tool=cli.idle)
    engine = cli.running(limits=Limits(first_event=5.0, idle=7.0), incoming=incoming)
    engine.send("key", "a", "prompt", 0.0)
    [call] = cli.only(Call, engine.receive(cli.can_use_tool("r"), 1.0))
    cli.finish(engine, call.call_id, None, 100.0)
    assert engine.next_deadline == 107.0


def test_a_request_without_a_prompt_starts_no_timeout() -> None:
    incoming = cli.asking(can_use_tool=cli.idle)
    engine = cli.running(limits=Limits(first_event=5.0, idle=7.0), incoming=incoming)
    engine.receive(cli.can_use_tool("r"), 1.0)
    assert engine.next_deadline is None


def test_a_tool_without_a_result_is_not_waited_for_once_the_model_speaks_again() -> None:
    engine = running(idle=5.0)
    engine.receive(INIT + assistant("m", USE) + assistant("m"), 1.0)
    assert engine.next_deadline is None, "a message comes in pieces"
    engine.receive(assistant("n"), 2.0)
    assert engine.next_deadline == 7.0


def of_subagent(message_id: str, *blocks: dict[str, Any]) -> bytes:
    message = {"id": message_id, "content": list(blocks)}
    return cli.line(type="assistant", message=message, parent_tool_use_id="t")


INNER = {"type": "tool_use", "id": "inner", "name": "Bash", "input": {}}


def test_a_tool_of_a_subagent_is_waited_for_whatever_the_main_conversation_says() -> None:
    engine = running(idle=5.0)
    started = INIT + assistant("m", USE) + RESULT  # in the background
    engine.receive(started + of_subagent("s", INNER) + assistant("n"), 1.0)
    assert engine.next_deadline is None
    engine.receive(of_subagent("s2"), 2.0)
    assert engine.next_deadline == 7.0


def test_the_result_of_a_subagent_ends_its_tools() -> None:
    engine = running(idle=5.0)
    engine.receive(INIT + assistant("m", USE) + of_subagent("s", INNER), 1.0)
    assert engine.next_deadline is None
    engine.receive(RESULT, 2.0)
    assert engine.next_deadline == 7.0


def test_a_turn_may_not_last_longer_than_its_total() -> None:
    engine = running(total=60.0)
    engine.receive(INIT + assistant("m", USE), 59.0)
    assert asked(engine.advance(60.0)) == ["interrupt"]
    assert reason(engine.receive(ABORTED, 61.0)) is OutcomeReason.LIMIT_TOTAL


def test_a_prompt_that_waits_past_its_total_is_taken_back() -> None:
    engine = running(total=60.0)
    engine.receive(INIT, 1.0)
    engine.send("key b", "b", "prompt", 30.0)
    assert asked(engine.advance(60.0)) == ["interrupt"]
    engine.receive(ABORTED, 61.0)
    engine.send("key c", "c", "prompt", 62.0)
    engine.receive(cli.init("c"), 63.0)
    assert asked(engine.advance(90.0)) == ["cancel_async_message"]
    withdrawn = cli.lifecycle("b", "cancelled")
    assert reason(engine.receive(withdrawn, 91.0)) is OutcomeReason.LIMIT_TOTAL


def test_calls_of_the_model_are_counted_by_message() -> None:
    engine = running(turns=2)
    engine.receive(INIT + assistant("1", USE) + assistant("1") + RESULT + assistant("2"), 1.0)
    assert asked(engine.receive(assistant("3"), 2.0)) == ["interrupt"]
    assert asked(engine.receive(assistant("4"), 2.0)) == []
    assert reason(engine.receive(ABORTED, 3.0)) is OutcomeReason.LIMIT_TURNS


def continuing(used: Used, **limits: Any) -> Engine:
    """A prompt that continues an answer which has used that much of its limits."""
    engine = cli.running(limits=Limits(**limits))
    engine.send("key", "a", "prompt", 0.0, used)
    return engine


@pytest.mark.parametrize(("seconds", "left"), [(4.0, 6.0), (12.0, 0.0)])
def test_time_of_earlier_prompts_counts_towards_the_total(seconds: float, left: float) -> None:
    assert continuing(Used(seconds=seconds), total=10.0).next_deadline == left


def test_model_calls_of_earlier_prompts_count_towards_the_limit() -> None:
    engine = continuing(Used(turns=2), turns=3)
    assert asked(engine.receive(INIT + assistant("1"), 1.0)) == []
    assert asked(engine.receive(assistant("2"), 1.0)) == ["interrupt"]


def test_what_earlier_prompts_used_counts_once() -> None:
    engine = continuing(Used(seconds=4.0, turns=2), total=10.0, turns=3)
    done = cli.line(type="result", subtype="success", result="", user_message_uuids=["a"])
    engine.receive(INIT + assistant("1") + done, 1.0)
    engine.send("key2", "b", "prompt", 2.0)
    assert engine.next_deadline == 12.0
    started = cli.line(type="system", subtype="init", user_message_uuids=["b"])
    lines = started + assistant("2") + assistant("3") + assistant("4")
    assert asked(engine.receive(lines, 3.0)) == []


def test_a_turn_that_cost_too_much_stays_completed() -> None:
    engine = running(usd=0.5)
    [ended] = cli.only(TurnEnded, engine.receive(INIT + cli.result("a", total_cost_usd=0.75), 1.0))
    assert (ended.outcome.reason, ended.outcome.cost_usd) == (OutcomeReason.COMPLETED, 0.75)


def test_a_turn_that_does_not_end_when_interrupted_ends_the_session() -> None:
    engine = running(total=10.0)
    engine.receive(INIT, 1.0)
    engine.advance(10.0)
    actions = engine.advance(10.0 + REACTION)
    assert reason(actions) is OutcomeReason.LIMIT_TOTAL
    assert Terminate() in actions


# ------------------------------------------------------------------------- two prompts, silence


@pytest.mark.parametrize(
    ("limits", "first"),
    [
        ({"total": 10.0}, OutcomeReason.LIMIT_TOTAL),
        ({"first_event": 10.0}, OutcomeReason.LIMIT_FIRST_EVENT),
        ({"first_event": 9.0, "total": 10.0}, OutcomeReason.LIMIT_FIRST_EVENT),
    ],
)
def test_two_open_prompts_end_although_the_cli_is_silent(
    limits: dict[str, float], first: OutcomeReason
) -> None:
    engine = running(**limits)
    engine.send("key b", "b", "prompt", 0.0)
    engine.advance(10.0)
    ended = cli.only(TurnEnded, engine.advance(10.0 + 2 * REACTION))
    assert [turn.uuid for turn in ended] == ["a", "b"]
    assert ended[0].outcome.reason is first
    assert ended[1].outcome.reason in (OutcomeReason.LIMIT_TOTAL, OutcomeReason.CLI_EXITED)
    engine.advance(100.0)
    engine.exited(-9, "", 101.0)
    engine.output_ended(101.0)
    assert engine.next_deadline is None


def test_a_limit_that_passes_after_the_session_ended_does_nothing() -> None:
    engine = running(total=10.0)
    engine.send("key b", "b", "prompt", 1.0)
    engine.advance(10.0)
    actions = engine.advance(100.0)
    assert len(cli.only(TurnEnded, actions)) == 2
    assert len(cli.only(Terminate, actions)) == 1


def test_a_limit_is_not_reached_by_a_turn_that_has_ended_in_the_same_read() -> None:
    engine = running(turns=1)
    done = cli.result("a")
    actions = engine.receive(INIT + assistant("1", USE) + RESULT + assistant("2") + done, 1.0)
    assert reason(actions) is OutcomeReason.COMPLETED
    assert asked(actions) == [], "an interrupt would hit the next turn"
    assert engine.next_deadline is None


def test_a_limit_that_is_reached_by_the_last_words_writes_nothing_after_the_end() -> None:
    engine = running(turns=1)
    engine.exited(1, "", 1.0)
    engine.receive(INIT + assistant("1") + assistant("2").rstrip(b"\n"), 1.0)
    actions = engine.output_ended(1.0)
    assert cli.written(actions) == []
    assert engine.next_deadline is None


def test_an_answer_that_completed_stays_completed_although_its_interrupt_is_under_way() -> None:
    engine = running(total=10.0)
    engine.receive(INIT, 1.0)
    assert asked(engine.advance(10.0)) == ["interrupt"]
    assert reason(engine.receive(cli.result("a"), 10.1)) is OutcomeReason.COMPLETED


def test_the_first_event_of_a_waiting_prompt_is_not_expected_while_an_interrupt_is_under_way() -> (
    None
):
    engine = running(first_event=2.0)
    engine.send("key b", "b", "prompt", 0.0)
    assert asked(engine.advance(2.0)) == ["interrupt"]
    engine.send("key c", "c", "prompt", 2.5)
    assert asked(engine.advance(4.5)) == []
    assert reason(engine.receive(INIT + ABORTED, 5.0)) is OutcomeReason.LIMIT_FIRST_EVENT
    assert asked(engine.advance(7.0)) == ["interrupt"], "now it is the turn of b"


def test_tools_that_never_get_a_result_are_not_remembered_for_ever() -> None:
    engine = running(idle=5.0)
    engine.receive(INIT, 1.0)
    for number in range(3000):
        use = {**USE, "id": f"t{number}"}
        engine.receive(cli.line(type="assistant", message={"content": [use]}), 1.0)
    assert largest_container(engine) <= 1024


@pytest.mark.parametrize("is_told", [True, False])
def test_a_prompt_that_begins_before_it_is_taken_back_is_interrupted(is_told: bool) -> None:
    engine = running(total=10.0)
    engine.receive(INIT, 0.1)
    engine.send("key b", "b", "prompt", 1.0)
    assert asked(engine.advance(10.0)) == ["interrupt"]
    assert asked(engine.advance(11.0)) == ["cancel_async_message"]
    assert reason(engine.receive(ABORTED, 11.5)) is OutcomeReason.LIMIT_TOTAL
    refused = cli.success("req_2", {"cancelled": False}) if is_told else b""
    begun = engine.receive(refused + cli.init("b"), 12.0)
    assert asked(begun) == ["interrupt"]
    assert asked(engine.receive(assistant("m"), 12.1)) == [], "one interrupt is enough"
    assert not cli.only(TurnEnded, engine.advance(12.0 + REACTION - 0.1)), "it has its time"
    assert reason(engine.receive(cli.aborted("b"), 12.0 + REACTION)) is OutcomeReason.LIMIT_TOTAL


def test_a_prompt_with_a_limit_that_never_ends_is_given_up() -> None:
    engine = running(total=10.0)
    engine.receive(INIT, 0.1)
    engine.send("key b", "b", "prompt", 1.0)
    engine.advance(10.0)
    engine.advance(11.0)
    engine.receive(ABORTED + cli.init("b"), 12.0)
    assert reason(engine.advance(12.0 + REACTION)) is OutcomeReason.LIMIT_TOTAL


SUBAGENT_CALL = cli.line(
    type="assistant",
    parent_tool_use_id="t",
    message={"id": "s", "content": [{**USE, "id": "inner"}]},
)
"""A tool call of the subagent that the tool call ``t`` has started."""


def test_the_tools_of_a_subagent_that_was_stopped_do_not_hold_the_idle_clock() -> None:
    engine = running(idle=5.0)
    started = cli.line(type="system", subtype="task_started", task_id="b", tool_use_id="t")
    engine.receive(INIT + assistant("m", USE) + started + RESULT + SUBAGENT_CALL, 1.0)
    assert engine.next_deadline is None
    stopped = cli.line(
        type="system", subtype="task_notification", task_id="b", tool_use_id="t", status="stopped"
    )
    engine.receive(stopped, 2.0)
    assert engine.next_deadline == 7.0


def test_the_tools_of_a_turn_that_has_ended_do_not_hold_the_idle_clock_of_the_next() -> None:
    engine = running(idle=5.0)
    engine.receive(INIT, 0.1)
    engine.send("key b", "b", "prompt", 0.2)
    engine.receive(assistant("m", USE) + SUBAGENT_CALL + ABORTED, 1.0)
    engine.receive(cli.init("b") + assistant("n"), 2.0)
    assert engine.next_deadline == 7.0


def test_a_cli_that_crashes_after_a_limit_was_reached_is_reported_as_such() -> None:
    engine = running(total=10.0)
    engine.receive(INIT, 0.1)
    engine.advance(10.0)
    engine.output_ended(11.0)
    [ended] = cli.only(TurnEnded, engine.exited(-11, "", 11.0))
    assert ended.outcome.reason is OutcomeReason.CLI_EXITED
    assert ended.outcome.detail.endswith("; before that, the turn was not over after 10 s")


def test_the_tools_of_a_turn_that_reached_a_limit_do_not_hold_the_idle_clock_of_the_next() -> None:
    engine = running(total=10.0, idle=5.0)
    engine.receive(INIT + assistant("m", USE), 1.0)
    engine.send("key b", "b", "prompt", 9.0)
    assert asked(engine.advance(10.0)) == ["interrupt"]
    engine.receive(ABORTED + cli.init("b"), 11.0)
    assert engine.next_deadline == 16.0


@pytest.mark.parametrize("name", ["idle", "total"])
def test_prompts_that_share_a_turn_are_interrupted_once(name: str) -> None:
    """A second interrupt could hit the next turn."""
    engine = running(**{name: 5.0})
    engine.send("other", "b", "prompt", 0.0)
    engine.receive(cli.init("a", "b"), 0.0)
    written = [action for action in engine.advance(6.0) if isinstance(action, Write)]
    assert sum(b'"subtype":"interrupt"' in action.data for action in written) == 1


# ---------------------------------------------------------------- a prompt that is sent twice

TWICE = "11111111-1111-4111-8111-111111111111"


def test_a_prompt_whose_outcome_is_held_cannot_be_sent_again() -> None:
    engine = cli.running(awaits_follow_ups=True)
    engine.send("k1", TWICE, "hi", 1.0)
    task = cli.system("task_started", task_id="t1", tool_use_id="u1")
    cli.feed(engine, 2.0, cli.init(TWICE), task, cli.result(TWICE))
    (rejection,) = engine.send("k2", TWICE, "again", 3.0)
    assert isinstance(rejection, Reject)
    assert "already in use" in str(rejection.error)
    over = cli.system("task_updated", task_id="t1", patch={"status": "completed"})
    none_runs = cli.system("background_tasks_changed", tasks=[])
    assert reasons(cli.feed(engine, 6.0, over, none_runs)) == [OutcomeReason.COMPLETED]


def reasons(actions: list[Action]) -> list[OutcomeReason]:
    return [action.outcome.reason for action in actions if isinstance(action, TurnEnded)]
