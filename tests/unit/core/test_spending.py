"""What turns cost: read from results, asked of the CLI while a turn runs, and a limit to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support import cli
from tests.support.sizes import largest_container

from bridle import Limits, OutcomeReason
from bridle._core.actions import Action, TurnEnded, Warn
from bridle._core.budget import Used
from bridle._core.engine import Engine
from bridle._core.spending import Meter, Spending, Told, read_total
from bridle.events import WarningKind
from bridle.messages import ResultMessage

USD = 0.3
INIT = cli.init("a")
USE = {"type": "tool_use", "id": "t", "name": "Bash", "input": {}}
TEXT = {"type": "text", "text": "words"}
TOOL_RESULT = cli.line(
    type="user",
    message={"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]},
)


def call(message_id: str, *blocks: dict[str, Any], **members: object) -> bytes:
    """A model call: one line of it."""
    return cli.line(type="assistant", message={"id": message_id, "content": [*blocks]}, **members)


def told(request_id: str, cost: str) -> bytes:
    text = f"Total cost:            ${cost}\nTotal duration (API):  0s"
    return cli.success(request_id, {"text": text})


def asked(actions: list[Action]) -> list[tuple[str, str]]:
    """The control requests that were sent: subtype and id."""
    frames = [one for one in cli.written(actions) if one["type"] == "control_request"]
    return [(frame["request"]["subtype"], frame["request_id"]) for frame in frames]


def reasons(actions: list[Action]) -> list[OutcomeReason]:
    return [ended.outcome.reason for ended in cli.only(TurnEnded, actions)]


def warned(actions: list[Action]) -> list[WarningKind]:
    return [warning.kind for warning in cli.only(Warn, actions)]


def prompted(start: str = "0.0000") -> Engine:
    """An engine with one prompt, whose turn starts from a total."""
    engine = cli.running(limits=Limits(usd=USD))
    assert asked(engine.send("key", "a", "prompt", 0.0)) == [("get_session_cost", "req_1")]
    engine.receive(told("req_1", start) + INIT, 0.1)
    return engine


# ------------------------------------------------------------------------- results


def result(**members: object) -> ResultMessage:
    [message] = cli.decoded(cli.result(**members))
    assert isinstance(message, ResultMessage)
    return message


def test_a_result_costs_what_it_adds_to_the_total() -> None:
    meter = Meter()
    totals = [0.5, 0.75, None, 0.75, 0.25]
    costs = [meter.charge(result(total_cost_usd=total)) for total in totals]
    assert costs == [0.5, 0.25, None, 0.0, 0.25], "a total that fell has begun anew"


def test_the_total_of_a_resumed_conversation_is_not_the_cost_of_its_first_turn() -> None:
    meter = Meter()
    added = {"m": {"costUSD": 0.5}, "n": {"costUSD": 0.25}}
    members = {"total_cost_usd": 3.0, "model_usage_since_last_result": added}
    assert meter.charge(result(**members)) == 0.75
    assert meter.charge(result(total_cost_usd=3.5, model_usage_since_last_result={})) == 0.5


def test_a_late_result_does_not_lower_the_total() -> None:
    meter = Meter()
    meter.charge(result(total_cost_usd=2.0))
    meter.charge_late(result(total_cost_usd=1.0))
    assert meter.total == 2.0
    meter.charge_late(result(total_cost_usd=2.5))
    assert meter.total == 2.5


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"text": "Total cost:            $0.0001\nmore"}, (0.00005, 0.00015)),
        ({"text": "Total cost: $1.08 (costs may be inaccurate)"}, (1.075, 1.085)),
        ({"text": "Total cost: $1,234.50"}, (1234.495, 1234.505)),
        ({"text": "Total cost: $7"}, (6.5, 7.5)),
        ({"text": "You are on a subscription."}, None),
        ({"text": 7}, None),
        ({}, None),
        (None, None),
        (TimeoutError(), None),
    ],
)
def test_the_total_is_read_from_text_and_the_rounding_is_known(
    payload: object, expected: tuple[float, float] | None
) -> None:
    read = read_total(payload)
    assert (read is None) == (expected is None)
    if expected is not None and read is not None:
        assert (read.low, read.high) == pytest.approx(expected)
        assert isinstance(read, Told)


# ------------------------------------------------------------------------- while a turn runs


def test_without_a_limit_in_dollars_nothing_is_asked() -> None:
    engine = cli.running(limits=Limits(turns=9))
    actions = engine.send("key", "a", "prompt", 0.0)
    actions += engine.receive(INIT + call("1", USE) + TOOL_RESULT + call("2", USE), 0.1)
    assert asked(actions) == []


def test_a_turn_that_passes_its_dollars_is_interrupted() -> None:
    engine = prompted()
    assert asked(engine.receive(call("1", TEXT), 1.0)) == [], "the call is not over yet"
    assert asked(engine.receive(call("1", USE), 1.0)) == [("get_session_cost", "req_2")]
    assert asked(engine.receive(told("req_2", "0.1800"), 1.0)) == []
    assert asked(engine.receive(TOOL_RESULT, 2.0)) == [], "that call is counted"
    assert asked(engine.receive(call("2", USE), 3.0)) == [("get_session_cost", "req_3")]
    assert asked(engine.receive(told("req_3", "0.3600"), 3.0)) == [("interrupt", "req_4")]
    ended = cli.only(TurnEnded, engine.receive(cli.aborted("a"), 3.1))
    assert [turn.outcome.reason for turn in ended] == [OutcomeReason.LIMIT_USD]


def test_a_call_that_is_not_counted_yet_is_asked_for_again_when_its_tool_has_a_result() -> None:
    engine = prompted()
    engine.receive(call("1", USE), 1.0)
    engine.receive(told("req_2", "0.0000"), 1.0)
    assert asked(engine.receive(TOOL_RESULT, 2.0)) == [("get_session_cost", "req_3")]
    assert asked(engine.receive(told("req_3", "0.4000"), 2.0)) == [("interrupt", "req_4")]


def test_a_call_without_a_tool_is_asked_for_when_the_next_one_begins() -> None:
    engine = prompted()
    assert asked(engine.receive(call("1", TEXT), 1.0)) == []
    assert asked(engine.receive(call("2", TEXT), 1.0)) == [("get_session_cost", "req_2")]


def test_at_most_one_request_is_under_way() -> None:
    engine = prompted()
    assert len(asked(engine.receive(call("1", USE) + TOOL_RESULT + call("2", USE), 1.0))) == 1
    assert asked(engine.receive(TOOL_RESULT, 1.0)) == []
    assert asked(engine.receive(told("req_2", "0.0000"), 1.0)) == [("get_session_cost", "req_3")]
    assert asked(engine.receive(told("req_3", "0.2000"), 1.0)) == []


def test_the_calls_of_subagents_count() -> None:
    engine = prompted()
    inner = call("s", USE, parent_tool_use_id="task")
    assert asked(engine.receive(inner, 1.0)) == [("get_session_cost", "req_2")]


def test_a_turn_whose_total_has_not_grown_has_spent_nothing() -> None:
    """The CLI rounds its total, so the start is known as a range only."""
    answers: list[Callable[[object], None]] = []
    spending = Spending(
        USD, Meter(), ask=lambda then, now: answers.append(then), warn=lambda kind, detail: None
    )
    spending.begin(0.0)
    answers[0]({"text": "Total cost: $2.16"})
    assert spending.spent == 0.0
    spending.hear(cli.decoded(call("1", USE))[0], 1.0)
    answers[1]({"text": "Total cost: $2.26"})
    assert spending.spent == pytest.approx(0.095)


def test_what_was_spent_before_the_turn_does_not_count() -> None:
    engine = prompted(start="2.16")
    engine.receive(call("1", USE), 1.0)
    assert asked(engine.receive(told("req_2", "2.46"), 1.0)) == [], "it may be 30 cents or less"
    engine.receive(call("2", USE), 1.0)
    assert asked(engine.receive(told("req_3", "2.48"), 1.0)) == [("interrupt", "req_4")]


def test_the_last_result_says_where_the_next_turn_starts() -> None:
    engine = prompted()
    engine.receive(cli.result("a", total_cost_usd=0.25), 1.0)
    assert asked(engine.send("key b", "b", "prompt", 2.0)) == []
    engine.receive(cli.init("b") + call("1", USE), 2.0)
    assert asked(engine.receive(told("req_2", "0.5000"), 2.0)) == []
    engine.receive(call("2", USE), 2.0)
    assert asked(engine.receive(told("req_3", "0.56"), 2.0)) == [("interrupt", "req_4")]


def test_a_total_that_fell_has_begun_anew() -> None:
    engine = prompted()
    engine.receive(cli.result("a", total_cost_usd=5.0), 1.0)
    engine.send("key b", "b", "prompt", 2.0)
    engine.receive(cli.init("b") + call("1", USE), 2.0)
    assert asked(engine.receive(told("req_2", "0.4000"), 2.0)) == [("interrupt", "req_3")]


def test_prompts_of_one_turn_end_together_by_one_interrupt() -> None:
    engine = prompted()
    engine.send("key b", "b", "prompt", 1.0)
    engine.receive(cli.echo("b") + call("1", USE), 2.0)
    assert asked(engine.receive(told("req_2", "0.4000"), 2.0)) == [("interrupt", "req_3")]
    ended = engine.receive(cli.aborted("a", "b"), 3.0)
    assert reasons(ended) == [OutcomeReason.LIMIT_USD, OutcomeReason.LIMIT_USD]


def test_a_prompt_that_waits_does_not_pay_for_a_turn_of_the_clis_own() -> None:
    engine = prompted()
    engine.receive(cli.result("a", total_cost_usd=0.0), 1.0)
    engine.receive(cli.init() + call("f", USE), 2.0)
    assert asked(engine.send("key b", "b", "prompt", 2.0)) == [("get_session_cost", "req_2")]
    assert asked(engine.receive(told("req_2", "9.00") + call("g", USE), 3.0)) == []


@pytest.mark.parametrize("answer", ["refused", "unreadable"])
def test_a_cli_that_does_not_tell_is_reported_once_a_turn(answer: str) -> None:
    engine = prompted()
    engine.receive(call("1", USE), 1.0)
    lines = {"refused": cli.failure("req_2", "no"), "unreadable": cli.success("req_2", {})}
    actions = engine.receive(lines[answer], 1.0)
    assert warned(actions) == [WarningKind.COST_UNKNOWN]
    assert asked(engine.receive(TOOL_RESULT + call("2", USE), 32.0)) == []
    ended = engine.receive(cli.result("a", total_cost_usd=7.2), 33.0)
    assert reasons(ended) == [OutcomeReason.COMPLETED]
    assert warned(ended) == [WarningKind.USD_LIMIT_PASSED]
    engine.send("key b", "b", "prompt", 34.0)
    assert len(asked(engine.receive(cli.init("b") + call("3", USE), 35.0))) == 1


def test_a_request_that_times_out_is_sent_again_after_the_next_model_call() -> None:
    engine = prompted()
    engine.receive(call("1", USE), 1.0)
    assert warned(engine.advance(31.0)) == [WarningKind.COST_UNKNOWN]
    assert asked(engine.receive(TOOL_RESULT, 32.0)) == [("get_session_cost", "req_3")]
    assert warned(engine.advance(62.0)) == [], "one warning a turn"
    assert asked(engine.receive(call("2", USE), 63.0)) == [("get_session_cost", "req_4")]
    assert asked(engine.receive(told("req_4", "0.3600"), 63.0)) == [("interrupt", "req_5")]


def test_a_cost_that_arrives_after_its_timeout_ends_the_turn() -> None:
    engine = prompted()
    engine.receive(call("1", USE), 1.0)
    engine.advance(31.0)
    assert asked(engine.receive(TOOL_RESULT, 32.0)) == [("get_session_cost", "req_3")]
    late = engine.receive(told("req_2", "0.4000"), 33.0)
    assert asked(late) == [("interrupt", "req_4")]
    assert warned(late) == []


def test_a_late_cost_of_an_earlier_turn_does_not_end_the_next_one() -> None:
    engine = prompted()
    engine.receive(call("1", USE), 1.0)
    engine.advance(31.0)
    engine.receive(cli.result("a", total_cost_usd=0.1), 32.0)
    engine.send("key b", "b", "prompt", 33.0)
    assert asked(engine.receive(told("req_2", "0.5000"), 34.0)) == []


def test_a_late_cost_does_not_lower_the_known_one() -> None:
    engine = prompted()
    engine.receive(call("1", USE), 1.0)
    engine.advance(31.0)
    engine.receive(TOOL_RESULT, 32.0)
    engine.receive(told("req_3", "0.2900") + told("req_2", "0.1000"), 33.0)
    assert engine.receive(call("2", USE), 34.0)
    assert asked(engine.receive(told("req_4", "0.3100"), 35.0)) == [("interrupt", "req_5")]


def test_a_late_refusal_of_the_cost_is_ignored() -> None:
    engine = prompted()
    engine.receive(call("1", USE), 1.0)
    engine.advance(31.0)
    assert engine.receive(cli.failure("req_2", "no"), 32.0) == []
    assert asked(engine.receive(TOOL_RESULT, 33.0)) == [("get_session_cost", "req_3")]


def test_a_late_total_of_the_start_is_the_start() -> None:
    engine = cli.running(limits=Limits(usd=USD))
    engine.send("key", "a", "prompt", 0.0)
    engine.advance(30.0)
    engine.receive(INIT + call("1", USE), 31.0)
    assert asked(engine.receive(told("req_1", "5.00"), 32.0)) == []
    assert asked(engine.receive(told("req_2", "5.40"), 33.0)) == [("interrupt", "req_3")]


def test_the_cost_of_an_earlier_prompt_counts_only_for_the_answer_it_belongs_to() -> None:
    engine = cli.running(limits=Limits(usd=USD))
    engine.send("key", "a", "correct it", 0.0, Used(usd=0.2))
    engine.receive(told("req_1", "0.0000") + INIT, 0.1)
    engine.send("key b", "b", "prompt", 1.0)
    engine.receive(cli.echo("b") + call("1", USE), 2.0)
    assert asked(engine.receive(told("req_2", "0.1500"), 2.0)) == [("interrupt", "req_3")]
    ended = engine.receive(cli.aborted("a", "b"), 3.0)
    assert reasons(ended) == [OutcomeReason.LIMIT_USD, OutcomeReason.INTERRUPTED]


def test_a_start_that_is_not_told_in_time_is_asked_for_again() -> None:
    engine = cli.running(limits=Limits(usd=USD))
    engine.send("key", "a", "prompt", 0.0)
    engine.advance(30.0)
    assert asked(engine.receive(INIT + call("1", USE), 31.0)) == [("get_session_cost", "req_2")]
    engine.receive(told("req_2", "5.00") + TOOL_RESULT, 32.0)
    engine.receive(call("2", USE), 33.0)
    assert asked(engine.receive(told("req_3", "5.50"), 33.0)) == [("interrupt", "req_4")]


def test_an_answer_that_completes_first_stays_completed() -> None:
    engine = prompted()
    engine.receive(call("1", USE), 1.0)
    done = cli.result("a", total_cost_usd=0.5)
    actions = engine.receive(done + told("req_2", "0.5000"), 2.0)
    assert asked(actions) == []
    assert reasons(actions) == [OutcomeReason.COMPLETED]


def test_a_prompt_that_is_taken_back_does_not_hide_what_the_running_turn_has_spent() -> None:
    engine = prompted()
    engine.send("key b", "b", "prompt", 1.0)
    engine.receive(call("1", USE), 2.0)
    actions = engine.receive(told("req_2", "0.4000") + cli.lifecycle("b", "cancelled"), 3.0)
    assert reasons(actions) == [OutcomeReason.INTERRUPTED]
    assert asked(actions) == [("interrupt", "req_3")]


# ------------------------------------------------------------------------- background work

TASK = cli.line(type="system", subtype="task_started", task_id="b1", tool_use_id="task")
TASK_DONE = cli.line(
    type="system", subtype="task_notification", task_id="b1", tool_use_id="task", status="stopped"
)


def left_behind(*lines: bytes) -> Engine:
    """An engine whose first turn, of 20 cents, left a task; then these lines came."""
    engine = prompted()
    engine.receive(TASK + cli.result("a", total_cost_usd=0.2) + b"".join(lines), 1.0)
    return engine


@pytest.mark.parametrize("lines", [(), (call("s", USE, parent_tool_use_id="task"), TASK_DONE)])
def test_what_background_work_spent_between_two_turns_does_not_count(lines: tuple[bytes]) -> None:
    engine = left_behind(*lines)
    assert asked(engine.send("key b", "b", "prompt", 2.0)) == [("get_session_cost", "req_2")]
    engine.receive(told("req_2", "3.20") + cli.init("b") + call("1", USE), 3.0)
    assert asked(engine.receive(told("req_3", "3.38"), 3.0)) == []
    ended = engine.receive(cli.result("b", total_cost_usd=3.38), 4.0)
    assert reasons(ended) == [OutcomeReason.COMPLETED]
    assert warned(ended) == []


def test_what_the_turn_spends_after_background_work_counts() -> None:
    engine = left_behind()
    engine.send("key b", "b", "prompt", 2.0)
    engine.receive(told("req_2", "3.20") + cli.init("b") + call("1", USE), 3.0)
    assert asked(engine.receive(told("req_3", "3.56"), 3.0)) == [("interrupt", "req_4")]


def test_the_turn_of_background_work_does_not_count_for_the_prompt_behind_it() -> None:
    engine = left_behind(TASK_DONE + cli.init() + call("f", USE))
    engine.send("key b", "b", "prompt", 2.0)
    follow_up = cli.result(total_cost_usd=2.0, origin={"kind": "task-notification"})
    engine.receive(told("req_2", "1.00") + follow_up + cli.init("b") + call("1", USE), 3.0)
    assert asked(engine.receive(told("req_3", "2.20"), 3.0)) == []


def test_a_cost_from_before_the_last_result_does_not_end_the_next_turn() -> None:
    """The lower total is older than the result. It does not mean a cleared conversation."""
    engine = left_behind(TASK_DONE + cli.init() + call("f", USE))
    engine.send("key b", "b", "prompt", 2.0)
    follow_up = cli.result(total_cost_usd=2.0, origin={"kind": "task-notification"})
    engine.receive(told("req_2", "1.00") + follow_up, 3.0)
    assert asked(engine.receive(cli.init("b"), 3.0)) == []
    assert asked(engine.receive(call("1", USE), 4.0)) == [("get_session_cost", "req_3")]
    assert asked(engine.receive(told("req_3", "2.40"), 4.0)) == [("interrupt", "req_4")]


def test_a_prompt_that_is_sent_and_ends_with_the_session_asks_for_no_cost() -> None:
    engine = cli.started(limits=Limits(usd=USD))
    engine.send("key", "a", "prompt", 0.0)
    engine.receive(cli.success("req_0").removesuffix(b"\n"), 1.0)
    engine.exited(-9, "", 1.0)
    actions = engine.output_ended(1.0)
    assert reasons(actions) == [OutcomeReason.CLI_EXITED]
    assert asked(actions) == []
    assert engine.next_deadline is None


def test_no_turn_is_ended_before_its_start_is_known() -> None:
    engine = left_behind(call("s", USE, parent_tool_use_id="task"))
    engine.send("key b", "b", "prompt", 2.0)
    assert asked(engine.receive(cli.init("b") + call("1", USE), 3.0)) == []
    actions = engine.receive(told("req_2", "3.20"), 3.0)
    assert asked(actions) == [("get_session_cost", "req_3")]
    assert asked(engine.receive(told("req_3", "3.56"), 3.0)) == [("interrupt", "req_4")]


def test_the_cost_of_earlier_prompts_counts_towards_the_limit() -> None:
    engine = cli.running(limits=Limits(usd=USD))
    engine.send("key", "a", "prompt", 0.0, Used(usd=0.2))
    engine.receive(told("req_1", "0.0000") + INIT, 0.1)
    assert asked(engine.receive(call("1", USE), 1.0)) == [("get_session_cost", "req_2")]
    requests = asked(engine.receive(told("req_2", "0.0500") + call("2", USE), 1.0))
    assert [subtype for subtype, _ in requests] == ["get_session_cost"]
    assert ("interrupt", "req_4") in asked(engine.receive(told("req_3", "0.1500"), 2.0))


def test_a_turn_after_a_cleared_conversation_counts_from_the_lower_total() -> None:
    engine = prompted("0.2000")
    engine.receive(cli.result("a", total_cost_usd=0.01), 1.0)
    engine.send("key b", "b", "prompt", 2.0)
    engine.receive(cli.init("b") + call("1", USE), 3.0)
    assert asked(engine.receive(told("req_2", "0.3300"), 3.0)) == [("interrupt", "req_3")]


def test_running_tasks_are_not_remembered_without_a_bound() -> None:
    engine = prompted()
    for number in range(3000):
        started = {"subtype": "task_started", "task_id": f"t{number}"}
        engine.receive(cli.line(type="system", **started), 1.0)
    assert largest_container(engine) <= 1024


def test_the_cost_of_earlier_prompts_counts_for_their_own_answer_only() -> None:
    engine = prompted()
    engine.receive(call("1", USE), 1.0)
    engine.send("key b", "b", "prompt", 1.0, Used(usd=0.25))
    assert asked(engine.receive(told("req_2", "0.1000"), 2.0)) == [], "the first prompt runs"
    engine.receive(cli.result("a", total_cost_usd=0.1), 3.0)
    blocked = cli.line(type="command_lifecycle", command_uuid="b", state="cancelled")
    engine.receive(blocked, 4.0)
    engine.send("key c", "c", "prompt", 5.0)
    engine.receive(cli.init("c") + call("3", USE), 6.0)
    assert asked(engine.receive(told("req_3", "0.2000"), 6.0)) == [], "the third one begins anew"
