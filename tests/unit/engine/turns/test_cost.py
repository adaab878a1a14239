"""What turns cost: read from results, asked of the CLI while a turn runs, and a limit to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs
from tests.support import cli
from tests.support.sizes import largest_container

from bridle import Limits, OutcomeReason
from bridle._engine.actions import Action, TurnEnded, Warn
from bridle._engine.engine import Engine
from bridle._engine.turns.cost import SPENDING_TIMEOUT, USAGE_TIMEOUT, Meter, Spending, read_total
from bridle._engine.turns.turn_records import Used
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


def told(request_id: str, cost: object) -> bytes:
    return cli.success(request_id, {"session": {"total_cost_usd": cost, "model_usage": {}}})


def asked(actions: list[Action]) -> list[tuple[str, str]]:
    """The control requests that were sent: subtype and id."""
    frames = [one for one in cli.written(actions) if one["type"] == "control_request"]
    return [(frame["request"]["subtype"], frame["request_id"]) for frame in frames]


def reasons(actions: list[Action]) -> list[OutcomeReason]:
    return [ended.outcome.reason for ended in cli.only(TurnEnded, actions)]


def warned(actions: list[Action]) -> list[WarningKind]:
    return [warning.kind for warning in cli.only(Warn, actions)]


def prompted(start: float = 0.0) -> Engine:
    """An engine with one prompt, whose turn starts from a total."""
    engine = cli.running(limits=Limits(usd=USD))
    assert asked(engine.send("key", "a", "prompt", 0.0)) == [("get_usage", "req_1")]
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


@pytest.mark.parametrize("total", [0, 0.0001, 7, 1234.5])
def test_the_total_is_a_number_in_the_response(total: float) -> None:
    assert read_total({"session": {"total_cost_usd": total}}) == total


NO_NUMBER = "the response has no number in session.total_cost_usd"
NO_COST = "session.total_cost_usd is not a cost"

UNREADABLE: dict[str, tuple[Any, str]] = {
    "no payload": (None, NO_NUMBER),
    "a list": ([], NO_NUMBER),
    "no session": ({}, NO_NUMBER),
    "the text of get_session_cost": ({"text": "Total cost: $0.10"}, NO_NUMBER),
    "a session that is a list": ({"session": []}, NO_NUMBER),
    "a renamed field": ({"session": {"total_cost": 0.1}}, NO_NUMBER),
    "null": ({"session": {"total_cost_usd": None}}, NO_NUMBER),
    "a string": ({"session": {"total_cost_usd": "0.10"}}, NO_NUMBER),
    "true": ({"session": {"total_cost_usd": True}}, NO_NUMBER),
    "a negative number": ({"session": {"total_cost_usd": -0.1}}, NO_COST),
    "not a number": ({"session": {"total_cost_usd": math.nan}}, NO_COST),
    "infinity": ({"session": {"total_cost_usd": math.inf}}, NO_COST),
    "a huge integer": ({"session": {"total_cost_usd": 10**400}}, NO_COST),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_total_that_cannot_be_read_says_why(name: str) -> None:
    answer, why = UNREADABLE[name]
    assert read_total(answer) == why


@pytest.mark.parametrize("total", [-1.0, math.nan, math.inf])
def test_a_result_whose_total_is_not_a_cost_costs_nothing_that_is_known(total: float) -> None:
    meter = Meter()
    assert meter.charge(structs.replace(result(), total_cost_usd=total)) is None
    assert meter.total is None


# ------------------------------------------------------------------------- while a turn runs


def test_without_a_limit_in_dollars_nothing_is_asked() -> None:
    engine = cli.running(limits=Limits(turns=9))
    actions = engine.send("key", "a", "prompt", 0.0)
    actions += engine.receive(INIT + call("1", USE) + TOOL_RESULT + call("2", USE), 0.1)
    assert asked(actions) == []


def test_a_turn_that_passes_its_dollars_is_interrupted() -> None:
    engine = prompted()
    assert asked(engine.receive(call("1", TEXT), 1.0)) == [], "the call is not over yet"
    assert asked(engine.receive(call("1", USE), 1.0)) == [("get_usage", "req_2")]
    assert asked(engine.receive(told("req_2", 0.18), 1.0)) == []
    assert asked(engine.receive(TOOL_RESULT, 2.0)) == [], "that call is counted"
    assert asked(engine.receive(call("2", USE), 3.0)) == [("get_usage", "req_3")]
    assert asked(engine.receive(told("req_3", 0.36), 3.0)) == [("interrupt", "req_4")]
    ended = cli.only(TurnEnded, engine.receive(cli.aborted("a"), 3.1))
    assert [turn.outcome.reason for turn in ended] == [OutcomeReason.LIMIT_USD]


def test_a_call_that_is_not_counted_yet_is_asked_for_again_when_its_tool_has_a_result() -> None:
    engine = prompted()
    engine.receive(call("1", USE), 1.0)
    engine.receive(told("req_2", 0.0), 1.0)
    assert asked(engine.receive(TOOL_RESULT, 2.0)) == [("get_usage", "req_3")]
    assert asked(engine.receive(told("req_3", 0.4), 2.0)) == [("interrupt", "req_4")]


def test_a_call_without_a_tool_is_asked_for_when_the_next_one_begins() -> None:
    engine = prompted()
    assert asked(engine.receive(call("1", TEXT), 1.0)) == []
    assert asked(engine.receive(call("2", TEXT), 1.0)) == [("get_usage", "req_2")]


def test_at_most_one_request_is_under_way() -> None:
    engine = prompted()
    assert len(asked(engine.receive(call("1", USE) + TOOL_RESULT + call("2", USE), 1.0))) == 1
    assert asked(engine.receive(TOOL_RESULT, 1.0)) == []
    assert asked(engine.receive(told("req_2", 0.0), 1.0)) == [("get_usage", "req_3")]
    assert asked(engine.receive(told("req_3", 0.2), 1.0)) == []


def test_the_calls_of_subagents_count() -> None:
    engine = prompted()
    inner = call("s", USE, parent_tool_use_id="task")
    assert asked(engine.receive(inner, 1.0)) == [("get_usage", "req_2")]


def test_a_turn_whose_total_has_not_grown_has_spent_nothing() -> None:
    answers: list[Callable[[object], None]] = []
    spending = Spending(
        USD,
        Meter(),
        ask=lambda then, now: answers.append(then),
        is_silent=lambda: False,
        warn=lambda kind, detail: None,
    )
    spending.begin(0.0)
    answers[0]({"session": {"total_cost_usd": 2.16}})
    assert spending.spent == 0.0
    spending.hear(cli.decoded(call("1", USE))[0], 1.0)
    answers[1]({"session": {"total_cost_usd": 2.26}})
    assert spending.spent == pytest.approx(0.1)


def test_what_was_spent_before_the_turn_does_not_count() -> None:
    engine = prompted(start=2.16)
    engine.receive(call("1", USE), 1.0)
    assert asked(engine.receive(told("req_2", 2.46), 1.0)) == [], "exactly the limit"
    engine.receive(call("2", USE), 1.0)
    assert asked(engine.receive(told("req_3", 2.48), 1.0)) == [("interrupt", "req_4")]


def test_the_last_result_says_where_the_next_turn_starts() -> None:
    engine = prompted()
    engine.receive(cli.result("a", total_cost_usd=0.25), 1.0)
    assert asked(engine.send("key b", "b", "prompt", 2.0)) == []
    engine.receive(cli.init("b") + call("1", USE), 2.0)
    assert asked(engine.receive(told("req_2", 0.5), 2.0)) == []
    engine.receive(call("2", USE), 2.0)
    assert asked(engine.receive(told("req_3", 0.56), 2.0)) == [("interrupt", "req_4")]


def test_prompts_of_one_turn_end_together_by_one_interrupt() -> None:
    engine = prompted()
    engine.send("key b", "b", "prompt", 1.0)
    engine.receive(cli.echo("b") + call("1", USE), 2.0)
    assert asked(engine.receive(told("req_2", 0.4), 2.0)) == [("interrupt", "req_3")]
    ended = engine.receive(cli.aborted("a", "b"), 3.0)
    assert reasons(ended) == [OutcomeReason.LIMIT_USD, OutcomeReason.LIMIT_USD]


def test_a_prompt_that_waits_does_not_pay_for_a_turn_of_the_clis_own() -> None:
    engine = prompted()
    engine.receive(cli.result("a", total_cost_usd=0.0), 1.0)
    engine.receive(cli.init() + call("f", USE), 2.0)
    assert asked(engine.send("key b", "b", "prompt", 2.0)) == [("get_usage", "req_2")]
    assert asked(engine.receive(told("req_2", 9.0) + call("g", USE), 3.0)) == []


# ------------------------------------------------------------------------- an unreadable cost


def ended(engine: Engine, now: float) -> list[tuple[OutcomeReason, str]]:
    """End the interrupted turn of the prompt "a". Return reason and detail."""
    turns = cli.only(TurnEnded, engine.receive(cli.aborted("a"), now))
    return [(turn.outcome.reason, turn.outcome.detail) for turn in turns]


@pytest.mark.parametrize("name", [name for name in UNREADABLE if name != "infinity"])
def test_a_turn_ends_at_the_first_model_call_whose_cost_cannot_be_read(name: str) -> None:
    answer, why = UNREADABLE[name]
    if name == "not a number":  # JSON has none
        answer = {"session": {"total_cost_usd": "NaN"}}
        why = NO_NUMBER
    engine = prompted()
    engine.receive(call("1", USE), 1.0)
    actions = engine.receive(cli.success("req_2", answer), 1.0)
    assert asked(actions) == [("interrupt", "req_3")]
    [warning] = cli.only(Warn, actions)
    assert (warning.kind, warning.detail) == (WarningKind.COST_UNKNOWN, f"get_usage: {why}")
    assert asked(engine.receive(TOOL_RESULT + call("2", USE), 2.0)) == []
    assert ended(engine, 3.0) == [(OutcomeReason.LIMIT_USD, f"the cost could not be read: {why}")]


def test_a_turn_ends_if_the_cli_rejects_the_request_for_its_cost() -> None:
    engine = prompted()
    engine.receive(call("1", USE), 1.0)
    answer = cli.failure("req_2", "Unsupported control request subtype: get_usage")
    assert asked(engine.receive(answer, 1.0)) == [("interrupt", "req_3")]
    why = "the CLI rejected the request"
    assert ended(engine, 2.0) == [(OutcomeReason.LIMIT_USD, f"the cost could not be read: {why}")]


def test_a_turn_ends_if_the_cli_does_not_answer_the_request_for_its_cost() -> None:
    engine = prompted()
    engine.receive(call("1", USE), 1.0)
    assert asked(engine.advance(1.0 + USAGE_TIMEOUT - 0.1)) == []
    assert asked(engine.advance(1.0 + USAGE_TIMEOUT)) == [("interrupt", "req_3")]
    late = engine.receive(told("req_2", 0.01), 17.0)
    assert (asked(late), warned(late)) == ([], [WarningKind.LATE_RESPONSE])
    why = f"the CLI did not answer within {USAGE_TIMEOUT:g} s"
    assert ended(engine, 18.0) == [(OutcomeReason.LIMIT_USD, f"the cost could not be read: {why}")]


def test_a_turn_ends_sooner_if_the_model_is_called_again_meanwhile() -> None:
    engine = prompted()
    engine.receive(call("1", USE), 1.0)
    assert asked(engine.receive(TOOL_RESULT + call("2", USE), 1.1)) == []
    assert asked(engine.receive(call("2", TEXT), 11.5)) == [], "the same model call"
    actions = engine.receive(TOOL_RESULT + call("3", USE), 11.6)
    assert asked(actions) == [("interrupt", "req_3")]
    assert warned(actions) == [WarningKind.COST_UNKNOWN]
    assert warned(engine.advance(1.0 + USAGE_TIMEOUT)) == [], "one warning a turn"


def test_a_turn_ends_after_three_model_calls_of_an_agent_without_an_answer() -> None:
    """However fast they are: each may cost as much as the limit."""
    engine = prompted()
    engine.receive(call("1", USE), 1.0)
    others = b"".join(
        call(f"{task}{number}", USE, parent_tool_use_id=task) for task in "ab" for number in "12"
    )
    assert asked(engine.receive(others, 1.1)) == [], "two more of each agent"
    assert asked(engine.receive(call("2", USE) + call("3", USE), 1.2)) == []
    actions = engine.receive(call("4", USE), 1.3)
    assert asked(actions) == [("interrupt", "req_3")]
    why = "the CLI did not answer during 3 model calls"
    assert ended(engine, 2.0) == [(OutcomeReason.LIMIT_USD, f"the cost could not be read: {why}")]


@pytest.mark.parametrize("version", ["2.0.0", None])
def test_a_cli_that_may_never_tell_its_cost_ends_the_turn_at_its_first_model_call(
    version: str | None,
) -> None:
    """A CLI whose version could not be read may be one of them."""
    engine = cli.running({}, limits=Limits(usd=USD))
    engine.describe(cli_version=version)
    assert asked(engine.send("key", "a", "prompt", 0.0)) == [("get_usage", "req_1")]
    actions = engine.receive(INIT + call("1", USE), 0.5)
    assert asked(actions) == [("interrupt", "req_2")]
    assert warned(actions) == [WarningKind.COST_UNKNOWN]
    why = "the CLI did not answer; it must be 2.1.197 or newer"
    assert ended(engine, 1.0) == [(OutcomeReason.LIMIT_USD, f"the cost could not be read: {why}")]


@pytest.mark.parametrize("version", ["2.1.197", "2.1.326"])
def test_a_cli_that_tells_its_cost_has_time_while_the_model_is_called(version: str) -> None:
    engine = cli.running(limits=Limits(usd=USD))
    engine.describe(cli_version=version)
    engine.send("key", "a", "prompt", 0.0)
    assert asked(engine.receive(INIT + call("1", USE), SPENDING_TIMEOUT - 0.1)) == []


def test_an_older_cli_that_has_reported_its_cost_once_has_time_too() -> None:
    engine = cli.running(limits=Limits(usd=USD))
    engine.describe(cli_version="2.1.100")
    engine.send("key", "a", "prompt", 0.0)
    engine.receive(told("req_1", 0.0) + INIT + call("1", USE), 1.0)
    assert asked(engine.receive(TOOL_RESULT + call("2", USE), 2.0)) == []


def test_the_control_timeout_limits_the_wait_for_the_cost_if_it_is_shorter() -> None:
    engine = cli.running(limits=Limits(usd=USD), control_timeout=2.0)
    engine.send("key", "a", "prompt", 0.0)
    engine.receive(INIT + call("1", USE), 1.0)
    assert asked(engine.advance(2.0)) == [("interrupt", "req_2")]


def test_a_turn_ends_if_the_total_falls_within_the_process() -> None:
    engine = prompted()
    engine.receive(cli.result("a", total_cost_usd=5.0), 1.0)
    engine.send("key b", "b", "prompt", 2.0)
    engine.receive(cli.init("b") + call("1", USE), 2.0)
    assert asked(engine.receive(told("req_2", 0.1), 2.0)) == [("interrupt", "req_3")]
    [turn] = cli.only(TurnEnded, engine.receive(cli.aborted("b"), 3.0))
    why = "the CLI's total fell from $5.0000 to $0.1000"
    assert turn.outcome.detail == f"the cost could not be read: {why}"


STILL = "the CLI's total does not rise"


def still(engine: Engine, *lines: bytes, total: float = 0.0) -> list[Action]:
    """Receive model calls. Every request for the cost is answered with the same total."""
    actions: list[Action] = []
    for line in lines:
        found = engine.receive(line, 1.0)
        while found:
            actions += found
            asks = [request_id for subtype, request_id in asked(found) if subtype == "get_usage"]
            found = [
                action
                for request_id in asks
                for action in engine.receive(told(request_id, total), 1.0)
            ]
    return actions


def rounds(first: int, last: int, **members: object) -> list[bytes]:
    """Model calls with a tool, and the results of the tools."""
    numbers = range(first, last + 1)
    return [line for n in numbers for line in (call(str(n), USE, **members), TOOL_RESULT)]


@pytest.mark.parametrize("start", [0.0, 2.16])
def test_a_turn_ends_if_the_total_does_not_rise_from_call_to_call(start: float) -> None:
    engine = prompted(start)
    assert warned(still(engine, *rounds(1, 2), total=start)) == []
    actions = still(engine, *rounds(3, 3), total=start)
    assert warned(actions) == [WarningKind.COST_UNKNOWN]
    assert "interrupt" in [subtype for subtype, _ in asked(actions)]
    assert ended(engine, 3.0) == [(OutcomeReason.LIMIT_USD, f"the cost could not be read: {STILL}")]


def test_a_turn_ends_if_the_total_stops_rising() -> None:
    engine = prompted()
    assert warned(still(engine, *rounds(1, 1), total=0.1)) == []
    assert warned(still(engine, *rounds(2, 3), total=0.1)) == []
    assert warned(still(engine, *rounds(4, 4), total=0.1)) == [WarningKind.COST_UNKNOWN]


def test_a_turn_ends_if_the_total_stops_at_the_last_result() -> None:
    engine = prompted()
    engine.receive(cli.result("a", total_cost_usd=0.2), 1.0)
    engine.send("key", "b", "prompt", 2.0)
    engine.receive(cli.init("b"), 2.0)
    assert warned(still(engine, *rounds(1, 2), total=0.2)) == []
    assert warned(still(engine, *rounds(3, 3), total=0.2)) == [WarningKind.COST_UNKNOWN]


def test_calls_from_before_a_result_of_the_clis_own_do_not_count() -> None:
    engine = prompted()
    assert warned(still(engine, *rounds(1, 2))) == []
    engine.receive(cli.result(total_cost_usd=0.1), 1.0)
    assert warned(still(engine, *rounds(3, 4), total=0.1)) == []


def test_a_total_that_is_one_call_behind_does_not_end_the_turn() -> None:
    engine = prompted()
    for number in range(1, 20):
        lines = rounds(number, number)
        assert warned(still(engine, *lines, total=0.01 * (number - 1))) == []


def test_a_total_that_rises_with_every_other_call_does_not_end_the_turn() -> None:
    engine = prompted()
    for number in range(1, 20):
        lines = rounds(number, number)
        assert warned(still(engine, *lines, total=0.01 * (number // 2))) == []


def test_subagents_that_begin_at_the_same_time_do_not_end_the_turn() -> None:
    engine = prompted()
    for block in (TEXT, USE):
        lines = [call(f"s{n}", block, parent_tool_use_id=f"t{n}") for n in range(5)]
        assert warned(still(engine, *lines)) == []


def test_a_subagent_whose_calls_add_nothing_to_the_total_ends_the_turn() -> None:
    engine = prompted()
    lines = rounds(1, 3, parent_tool_use_id="t")
    assert warned(still(engine, *lines)) == [WarningKind.COST_UNKNOWN]


@pytest.mark.parametrize("cached", [None, 0])
def test_calls_without_tokens_may_cost_nothing(cached: int | None) -> None:
    engine = prompted()
    usage = {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": cached}
    for number in range(1, 9):
        message = {"id": str(number), "content": [USE], "usage": usage}
        assert warned(still(engine, cli.line(type="assistant", message=message), TOOL_RESULT)) == []


def test_messages_of_the_cli_itself_do_not_count_as_calls() -> None:
    engine = prompted()
    for number in range(1, 9):
        message = {"id": str(number), "content": [TEXT], "model": "<synthetic>"}
        assert warned(still(engine, cli.line(type="assistant", message=message))) == []


def test_a_turn_whose_start_is_unknown_ends_at_its_first_model_call() -> None:
    engine = cli.running(limits=Limits(usd=USD))
    engine.send("key", "a", "prompt", 0.0)
    actions = engine.receive(cli.success("req_1", {}) + INIT, 1.0)
    assert (asked(actions), warned(actions)) == ([], [WarningKind.COST_UNKNOWN])
    assert asked(engine.receive(call("1", TEXT), 2.0)) == [("interrupt", "req_2")]


def test_a_command_without_a_model_call_does_not_end_for_an_unknown_cost() -> None:
    engine = cli.running(limits=Limits(usd=USD))
    engine.send("key", "a", "/help", 0.0)
    synthetic = {"id": "s", "model": "<synthetic>", "content": [TEXT]}
    lines = cli.success("req_1", {}) + INIT + cli.line(type="assistant", message=synthetic)
    assert asked(engine.receive(lines, 1.0)) == []
    assert reasons(engine.receive(cli.result("a"), 2.0)) == [OutcomeReason.COMPLETED]


def test_the_next_turn_is_measured_again() -> None:
    engine = prompted()
    engine.receive(call("1", USE), 1.0)
    engine.receive(cli.success("req_2", {}), 1.0)
    engine.receive(cli.result("a", is_error=True, total_cost_usd=0.1), 2.0)
    engine.send("key b", "b", "prompt", 3.0)
    assert asked(engine.receive(cli.init("b") + call("2", USE), 4.0)) == [("get_usage", "req_4")]
    assert asked(engine.receive(told("req_4", 0.2), 4.0)) == []


def test_a_response_from_before_the_last_result_is_read_again() -> None:
    engine = prompted()
    engine.receive(call("1", USE), 1.0)
    engine.receive(cli.result("a", total_cost_usd=0.1), 2.0)
    engine.send("key b", "b", "prompt", 3.0)
    engine.receive(cli.init("b") + call("2", USE), 3.5)
    assert asked(engine.receive(told("req_2", 0.05), 5.0)) == [("get_usage", "req_3")]
    assert asked(engine.receive(told("req_3", 0.5), 6.0)) == [("interrupt", "req_4")]


def test_a_result_without_a_readable_total_makes_the_next_turn_request_its_start() -> None:
    engine = prompted()
    engine.receive(cli.result("a", total_cost_usd=0.1), 1.0)
    engine.send("key b", "b", "prompt", 2.0)
    engine.receive(cli.init("b") + cli.result("b", total_cost_usd=None), 3.0)
    assert asked(engine.send("key c", "c", "prompt", 4.0)) == [("get_usage", "req_2")]


def test_the_outcome_of_a_cli_that_exited_has_the_cost_that_it_reported() -> None:
    engine = prompted()
    engine.send("key b", "b", "prompt", 0.5)
    engine.receive(call("1", USE), 1.0)
    engine.receive(told("req_2", 0.2), 1.0)
    engine.exited(-9, "", 2.0)
    turns = cli.only(TurnEnded, engine.output_ended(2.0))
    costs = [(turn.outcome.reason, turn.outcome.cost_usd) for turn in turns]
    assert costs == [(OutcomeReason.CLI_EXITED, 0.2), (OutcomeReason.CLI_EXITED, None)]


def test_the_cost_of_an_earlier_prompt_counts_only_for_the_answer_it_belongs_to() -> None:
    engine = cli.running(limits=Limits(usd=USD))
    engine.send("key", "a", "correct it", 0.0, Used(usd=0.2))
    engine.receive(told("req_1", 0.0) + INIT, 0.1)
    engine.send("key b", "b", "prompt", 1.0)
    engine.receive(cli.echo("b") + call("1", USE), 2.0)
    assert asked(engine.receive(told("req_2", 0.15), 2.0)) == [("interrupt", "req_3")]
    ended = engine.receive(cli.aborted("a", "b"), 3.0)
    assert reasons(ended) == [OutcomeReason.LIMIT_USD, OutcomeReason.INTERRUPTED]


def test_an_answer_that_completes_first_stays_completed() -> None:
    engine = prompted()
    engine.receive(call("1", USE), 1.0)
    done = cli.result("a", total_cost_usd=0.5)
    actions = engine.receive(done + told("req_2", 0.5), 2.0)
    assert asked(actions) == []
    assert reasons(actions) == [OutcomeReason.COMPLETED]


def test_a_prompt_that_is_taken_back_does_not_hide_what_the_running_turn_has_spent() -> None:
    engine = prompted()
    engine.send("key b", "b", "prompt", 1.0)
    engine.receive(call("1", USE), 2.0)
    actions = engine.receive(told("req_2", 0.4) + cli.lifecycle("b", "cancelled"), 3.0)
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
    assert asked(engine.send("key b", "b", "prompt", 2.0)) == [("get_usage", "req_2")]
    engine.receive(told("req_2", 3.2) + cli.init("b") + call("1", USE), 3.0)
    assert asked(engine.receive(told("req_3", 3.38), 3.0)) == []
    ended = engine.receive(cli.result("b", total_cost_usd=3.38), 4.0)
    assert reasons(ended) == [OutcomeReason.COMPLETED]
    assert warned(ended) == []


def test_what_the_turn_spends_after_background_work_counts() -> None:
    engine = left_behind()
    engine.send("key b", "b", "prompt", 2.0)
    engine.receive(told("req_2", 3.2) + cli.init("b") + call("1", USE), 3.0)
    assert asked(engine.receive(told("req_3", 3.56), 3.0)) == [("interrupt", "req_4")]


def test_the_turn_of_background_work_does_not_count_for_the_prompt_behind_it() -> None:
    engine = left_behind(TASK_DONE + cli.init() + call("f", USE))
    engine.send("key b", "b", "prompt", 2.0)
    follow_up = cli.result(total_cost_usd=2.0, origin={"kind": "task-notification"})
    engine.receive(told("req_2", 1.0) + follow_up + cli.init("b") + call("1", USE), 3.0)
    assert asked(engine.receive(told("req_3", 2.2), 3.0)) == []


def test_a_cost_from_before_the_last_result_does_not_end_the_next_turn() -> None:
    """The lower total is older than the result. It does not mean a cleared conversation."""
    engine = left_behind(TASK_DONE + cli.init() + call("f", USE))
    engine.send("key b", "b", "prompt", 2.0)
    follow_up = cli.result(total_cost_usd=2.0, origin={"kind": "task-notification"})
    engine.receive(told("req_2", 1.0) + follow_up, 3.0)
    assert asked(engine.receive(cli.init("b"), 3.0)) == []
    assert asked(engine.receive(call("1", USE), 4.0)) == [("get_usage", "req_3")]
    assert asked(engine.receive(told("req_3", 2.4), 4.0)) == [("interrupt", "req_4")]


def test_a_prompt_that_is_sent_and_ends_with_the_session_requests_no_cost() -> None:
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
    actions = engine.receive(told("req_2", 3.2), 3.0)
    assert asked(actions) == [("get_usage", "req_3")]
    assert asked(engine.receive(told("req_3", 3.56), 3.0)) == [("interrupt", "req_4")]


def test_the_cost_of_earlier_prompts_counts_towards_the_limit() -> None:
    engine = cli.running(limits=Limits(usd=USD))
    engine.send("key", "a", "prompt", 0.0, Used(usd=0.2))
    engine.receive(told("req_1", 0.0) + INIT, 0.1)
    assert asked(engine.receive(call("1", USE), 1.0)) == [("get_usage", "req_2")]
    requests = asked(engine.receive(told("req_2", 0.05) + call("2", USE), 1.0))
    assert [subtype for subtype, _ in requests] == ["get_usage"]
    assert ("interrupt", "req_4") in asked(engine.receive(told("req_3", 0.15), 2.0))


def test_a_turn_after_a_cleared_conversation_counts_from_the_lower_total() -> None:
    engine = prompted(0.2)
    engine.receive(cli.result("a", total_cost_usd=0.01), 1.0)
    engine.send("key b", "b", "prompt", 2.0)
    engine.receive(cli.init("b") + call("1", USE), 3.0)
    assert asked(engine.receive(told("req_2", 0.33), 3.0)) == [("interrupt", "req_3")]


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
    assert asked(engine.receive(told("req_2", 0.1), 2.0)) == [], "the first prompt runs"
    engine.receive(cli.result("a", total_cost_usd=0.1), 3.0)
    blocked = cli.line(type="command_lifecycle", command_uuid="b", state="cancelled")
    engine.receive(blocked, 4.0)
    engine.send("key c", "c", "prompt", 5.0)
    engine.receive(cli.init("c") + call("3", USE), 6.0)
    assert asked(engine.receive(told("req_3", 0.2), 6.0)) == [], "the third one begins anew"
