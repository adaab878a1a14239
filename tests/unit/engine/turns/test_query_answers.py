"""The answers of a query, and the limits of a turn together with its background work."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from tests.support import cli

from bridle._engine.actions import (
    Action,
    Deliver,
    EndInput,
    Outbox,
    PauseReading,
    ResumeReading,
    TurnEnded,
    Write,
)
from bridle._engine.config import EngineConfig
from bridle._engine.deadlines import Deadlines
from bridle._engine.engine import Engine
from bridle._engine.session_state import SessionState
from bridle._engine.turns.classify import LimitHit, ProcessEnd
from bridle._engine.turns.limits import Fail
from bridle._engine.turns.query_answers import Answers
from bridle.errors import OutcomeError, ProcessInfo
from bridle.messages import ResultMessage
from bridle.options import Limits
from bridle.outcomes import Outcome, OutcomeReason

USE = {"type": "tool_use", "id": "t", "name": "Bash", "input": {}}
RESULT_OF_USE = cli.line(
    type="user",
    message={"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]},
)
QUEUED = cli.lifecycle("a", "queued")
TASK = cli.line(type="system", subtype="task_started", task_id="b1", tool_use_id="t")
TASK_DONE = cli.line(
    type="system", subtype="task_notification", task_id="b1", tool_use_id="t", status="completed"
)


def model(message_id: str, *blocks: dict[str, Any]) -> bytes:
    """The model speaks, in a call of its own."""
    return cli.line(type="assistant", message={"id": message_id, "content": list(blocks)})


class Answer:
    """The budget of a query, its deadlines, and a prompt at time 0."""

    def __init__(self, **limits: Any) -> None:
        self.deadlines = Deadlines()
        self.failures: list[Fail] = []
        self.state = SessionState()
        self.answers = Answers(Limits(**limits), self.deadlines, Outbox(), state=self.state)
        self.prompt(0.0)

    def hear(self, now: float, *lines: bytes) -> LimitHit | None:
        """Deliver these lines; return the limit that was reached."""
        messages = cli.decoded(b"".join(lines))
        for message in messages:
            if isinstance(message, ResultMessage):
                self.answers.result(message, now)
            else:
                self.answers.deliver(message)
        self.note(Deliver(messages, (), 0), now)
        return self.answers.hit

    def note(self, action: Action, now: float) -> None:
        """Observe an action of the engine."""
        verdicts = self.answers.check([action], now, is_waiting=False)
        self.failures += [one for one in verdicts if isinstance(one, Fail)]
        assert [type(one) for one in self.failures[-1:]] == [Fail] * (self.answers.hit is not None)

    def prompt(self, now: float) -> None:
        """Send another prompt."""
        self.answers.start("", now)

    def outcome(self) -> Outcome[Any]:
        """Return the outcome in the error of the first limit that was reached."""
        error = self.failures[0].error
        assert isinstance(error, OutcomeError)
        return error.outcome

    def wait(self, now: float) -> LimitHit | None:
        """Let time pass; return the limit that was reached."""
        for token in self.deadlines.pop_expired(now):
            kind, subject = cast("tuple[str, str]", token)
            verdicts = self.answers.overdue(kind, subject, now)
            assert verdicts is not None
            self.failures += cast("list[Fail]", list(verdicts))
        return self.answers.hit

    @property
    def is_open(self) -> bool:
        """True while an answer is under way."""
        return self.answers._is_open

    def due(self) -> float | None:
        """When time is up, if nothing happens."""
        return self.deadlines.next


# ---------------------------------------------------------------- time


def test_without_limits_nothing_is_due() -> None:
    answer = Answer()
    assert answer.hear(0.0, cli.init(), model("m"), cli.result()) is None
    assert answer.due() is None


def test_an_answer_that_does_not_begin_reaches_its_first_limit() -> None:
    answer = Answer(first_event=5.0)
    assert (answer.hear(1.0, QUEUED), answer.due()) == (None, 5.0)
    assert answer.wait(5.0) == LimitHit("first_event", 5.0)


def test_one_that_begins_does_not() -> None:
    answer = Answer(first_event=5.0)
    answer.hear(4.0, cli.init())
    assert answer.due() is None


def test_silence_reaches_the_idle_limit() -> None:
    answer = Answer(idle=5.0)
    answer.hear(1.0, cli.init())
    answer.hear(3.0, model("m"))
    assert answer.due() == 8.0
    assert answer.wait(8.0) == LimitHit("idle", 5.0)


def test_silence_does_not_count_while_a_tool_runs() -> None:
    answer = Answer(idle=5.0)
    answer.hear(1.0, cli.init(), model("m", USE))
    assert answer.due() is None
    answer.hear(100.0, RESULT_OF_USE)
    assert answer.due() == 105.0


def test_no_timeout_applies_while_background_work_runs() -> None:
    answer = Answer(idle=5.0)
    answer.hear(1.0, cli.init(), model("m", USE), TASK, RESULT_OF_USE, cli.result())
    assert (answer.due(), answer.is_open) == (None, True)
    answer.hear(100.0, TASK_DONE)
    assert answer.due() == 105.0, "its turn is to come"


def test_no_timeout_applies_while_the_reader_pauses() -> None:
    answer = Answer(idle=5.0)
    answer.hear(1.0, cli.init())
    answer.note(PauseReading(), 2.0)
    assert answer.due() is None
    answer.note(ResumeReading(), 50.0)
    assert answer.due() == 55.0


def test_no_timeout_applies_to_the_first_message_of_an_answer() -> None:
    answer = Answer(first_event=5.0)
    answer.hear(1.0, cli.init(), cli.result())
    answer.note(PauseReading(), 2.0)
    answer.prompt(3.0)
    assert answer.due() is None
    answer.note(ResumeReading(), 50.0)
    assert answer.due() == 55.0


def test_an_answer_may_not_last_longer_than_its_total() -> None:
    answer = Answer(total=60.0)
    answer.hear(59.0, cli.init(), model("m", USE))
    assert answer.wait(60.0) == LimitHit("total", 60.0)


def test_background_work_is_part_of_the_total() -> None:
    answer = Answer(total=60.0)
    answer.hear(1.0, cli.init(), TASK, cli.result())
    assert answer.due() == 60.0
    answer.hear(2.0, TASK_DONE, cli.init(), cli.follow_up())
    assert not answer.is_open


# ---------------------------------------------------------------- which answer


def test_the_total_is_that_of_all_answers() -> None:
    answer = Answer(total=60.0)
    answer.hear(1.0, cli.init(), cli.result())
    answer.prompt(50.0)
    assert answer.due() == 60.0
    assert answer.wait(60.0) == LimitHit("total", 60.0)


def test_no_timeout_applies_while_the_next_prompt_is_awaited() -> None:
    answer = Answer(first_event=5.0, idle=7.0)
    answer.hear(1.0, cli.init(), cli.result())
    assert answer.due() is None
    answer.prompt(100.0)
    assert answer.due() == 105.0


def test_a_prompt_that_waits_begins_no_answer_but_its_turn_does() -> None:
    """It may have become part of the turn before: then nothing more comes."""
    answer = Answer(idle=60.0)
    answer.prompt(10.0)
    answer.hear(20.0, cli.init(), cli.result())
    assert answer.due() is None
    answer.hear(30.0, cli.init())
    assert answer.due() == 90.0


def test_a_prompt_that_no_result_names_is_still_awaited() -> None:
    answer = Answer(first_event=5.0, idle=60.0)
    answer.prompt(10.0)
    answer.hear(20.0, cli.init("a"), cli.result("a"))
    assert (answer.due(), answer.is_open) == (25.0, True)
    answer.hear(21.0, cli.init("b"), cli.result("b"))
    assert (answer.due(), answer.is_open) == (None, False)


def test_two_that_are_named_in_one_result_are_answered() -> None:
    answer = Answer(first_event=5.0, idle=60.0)
    answer.prompt(10.0)
    answer.hear(20.0, cli.init("a"), cli.result("a", "b"))
    assert (answer.due(), answer.is_open) == (None, False)


def test_the_result_of_background_work_answers_no_prompt() -> None:
    answer = Answer(first_event=5.0)
    answer.hear(1.0, cli.init("a"), TASK, cli.result("a"))
    answer.prompt(2.0)
    answer.hear(3.0, TASK_DONE, cli.init(), cli.follow_up())
    assert (answer.due(), answer.is_open) == (8.0, True)


# ---------------------------------------------------------------- the end of the input


def test_once_the_input_has_ended_the_cli_has_to_end_in_time() -> None:
    answer = Answer(idle=5.0)
    answer.hear(1.0, cli.init(), cli.result(total_cost_usd=0.25))
    assert answer.due() is None
    answer.note(EndInput(), 10.0)
    assert (answer.due(), answer.is_open) == (15.0, False)
    answer.hear(12.0, cli.assistant())
    assert answer.wait(17.0) == LimitHit("idle", 5.0)
    outcome = answer.outcome()
    assert (outcome.reason, outcome.cost_usd) == (OutcomeReason.LIMIT_IDLE, 0.25)


def test_also_if_that_was_before_the_last_result() -> None:
    answer = Answer(idle=5.0)
    answer.note(EndInput(), 0.0)
    answer.hear(1.0, cli.init(), model("m", USE), cli.result())
    assert (answer.due(), answer.is_open) == (6.0, False)


def test_a_turn_that_comes_then_is_an_answer_of_its_own() -> None:
    answer = Answer(turns=1, usd=0.5)
    answer.note(EndInput(), 0.0)
    assert answer.hear(1.0, cli.init(), model("1"), cli.result(total_cost_usd=0.4)) is None
    assert answer.hear(2.0, cli.init(), model("2"), cli.result(total_cost_usd=0.8)) is None
    assert answer.hear(3.0, cli.init(), model("3"), model("4")) == LimitHit("turns", 1)


def test_an_exit_without_a_prompt_is_limited_as_well() -> None:
    deadlines = Deadlines()
    answers = Answers(Limits(first_event=5.0, idle=7.0), deadlines, Outbox())
    list(answers.check([EndInput()], 1.0, is_waiting=False))
    assert deadlines.next == 6.0
    verdicts = answers.overdue("limit: first event", "answer", 6.0)
    assert verdicts is not None
    verdict = next(verdicts)
    assert isinstance(verdict, Fail)
    assert isinstance(verdict.error, OutcomeError)
    assert verdict.error.outcome.duration == 0.0


def test_deadlines_of_others_are_left_to_them() -> None:
    assert Answer(total=60.0).answers.overdue("request", "req_0", 1.0) is None


def test_a_query_that_is_over_has_no_deadlines() -> None:
    answer = Answer(total=60.0, idle=5.0)
    answer.hear(1.0, cli.init())
    answer.answers.end(ProcessEnd(), 1.0)
    assert answer.due() is None


def test_what_comes_between_two_answers_begins_none() -> None:
    answer = Answer(idle=60.0)
    answer.hear(1.0, cli.init(), cli.result(), QUEUED, cli.result(), cli.assistant())
    assert (answer.due(), answer.is_open) == (None, False)


# ---------------------------------------------------------------- calls and dollars


def test_calls_of_the_model_are_counted_over_the_whole_answer() -> None:
    answer = Answer(turns=2)
    assert answer.hear(1.0, cli.init(), model("1"), TASK, cli.result()) is None
    assert answer.hear(2.0, TASK_DONE, cli.init(), model("2"), model("2")) is None
    assert answer.hear(3.0, model("3")) == LimitHit("turns", 2)


def test_a_result_without_its_cost_ends_a_query_with_a_limit_in_dollars() -> None:
    answer = Answer(usd=0.5)
    hit = answer.hear(1.0, cli.init(), cli.result(total_cost_usd=None))
    assert hit is not None
    why = "the result has no number in total_cost_usd"
    assert (hit.name, hit.detail) == ("usd", f"the cost could not be read: {why}")


@pytest.mark.parametrize(("total", "is_hit"), [(0.5, False), (0.51, True)])
def test_dollars_are_counted_when_a_result_tells_them(total: float, is_hit: bool) -> None:
    answer = Answer(usd=0.5)
    hit = answer.hear(1.0, cli.init(), cli.result(total_cost_usd=total))
    assert hit == (LimitHit("usd", 0.5) if is_hit else None)


def test_dollars_of_earlier_answers_do_not_count() -> None:
    answer = Answer(usd=0.5)
    answer.hear(1.0, cli.init(), cli.result(total_cost_usd=0.4))
    assert answer.hear(2.0, cli.init(), cli.result(total_cost_usd=0.8)) is None
    # A conversation that was cleared counts from zero.
    assert answer.hear(3.0, cli.init(), cli.result(total_cost_usd=0.3)) is None
    assert answer.hear(4.0, cli.init(), cli.result(total_cost_usd=0.9)) == LimitHit("usd", 0.5)


# ---------------------------------------------------------------- what became of it


def test_the_first_limit_is_the_one() -> None:
    answer = Answer(total=60.0, turns=1)
    answer.hear(1.0, cli.init(), model("1"), model("2"))
    assert answer.wait(100.0) == LimitHit("turns", 1)


def test_the_outcome_tells_how_far_it_got() -> None:
    answer = Answer(total=60.0)
    answer.hear(1.0, cli.init(session_id="s"), model("m"))
    answer.state.process = process = ProcessInfo(cli_path="/bin/claude")
    answer.wait(60.0)
    outcome = answer.outcome()
    assert (outcome.reason, outcome.session_id) == (OutcomeReason.LIMIT_TOTAL, "s")
    assert (outcome.duration, outcome.cost_usd, outcome.process) == (60.0, None, process)
    assert "60 s" in outcome.detail


def test_the_outcome_has_the_result_if_one_came() -> None:
    answer = Answer(usd=0.5)
    answer.hear(3.0, cli.init(), cli.result(result="words", total_cost_usd=0.75))
    outcome = answer.outcome()
    assert (outcome.reason, outcome.cost_usd) == (OutcomeReason.LIMIT_USD, 0.75)
    assert (outcome.text, outcome.num_turns, outcome.duration) == ("words", 1, 3.0)


# ---------------------------------------------------------------- a turn and its background work


class Whole:
    """An engine whose outcomes wait for background work; its prompt "a" was sent at time 0."""

    def __init__(self, **limits: Any) -> None:
        config = EngineConfig(limits=Limits(**limits), awaits_follow_ups=True)
        self.engine = Engine(config)
        self.written: list[dict[str, Any]] = []
        self.outcomes: list[Outcome[Any]] = []
        self.note(self.engine.start("start", 0.0))
        self.note(self.engine.receive(cli.success("req_0", {}), 0.0))
        self.note(self.engine.send("prompt", "a", "go", 0.0))

    def note(self, actions: list[Action]) -> list[Outcome[Any]]:
        """Return the outcomes among these actions."""
        self.written += [json.loads(one.data) for one in actions if isinstance(one, Write)]
        ended = [one.outcome for one in actions if isinstance(one, TurnEnded)]
        self.outcomes += ended
        return ended

    def hear(self, now: float, *lines: bytes) -> list[Outcome[Any]]:
        """Let the CLI write these lines; return the outcomes they lead to."""
        return self.note(self.engine.receive(b"".join(lines), now))

    def tell_cost(self, now: float, amount: str) -> list[Outcome[Any]]:
        """Answer the last request for the cost."""
        asked = [one for one in self.written if one.get("type") == "control_request"][-1]
        assert asked["request"]["subtype"] == "get_usage"
        answer = {"session": {"total_cost_usd": float(amount)}}
        return self.hear(now, cli.success(asked["request_id"], answer))

    def requests(self) -> int:
        """Count the requests for the cost so far."""
        said = [one.get("request", {}).get("subtype") for one in self.written]
        return said.count("get_usage")


BEGUN = (cli.init("a"), TASK, cli.result("a", result="begun"))
DONE = (TASK_DONE, cli.init(), cli.follow_up(result="done"))


def test_what_follows_a_turn_completes_its_outcome() -> None:
    whole = Whole()
    assert whole.hear(1.0, *BEGUN) == []
    held = whole.engine.held
    assert held is not None
    assert ("a" in held, held.is_pending) == (True, True)
    (outcome,) = whole.hear(4.0, *DONE)
    assert (outcome.ok, outcome.text, outcome.duration) == (True, "done", 4.0)
    assert ("a" in held, held.is_pending) == (False, False)


def test_a_turn_without_background_work_has_its_outcome_at_once() -> None:
    (outcome,) = Whole().hear(1.0, cli.init("a"), cli.result("a", result="words"))
    assert (outcome.ok, outcome.text) == (True, "words")


def test_a_turn_that_failed_does_not_wait_for_its_background_work() -> None:
    (outcome,) = Whole().hear(1.0, cli.init("a"), TASK, cli.result("a", is_error=True))
    assert not outcome.ok


def test_a_limit_that_background_work_reaches_is_the_outcome() -> None:
    whole = Whole(total=60.0)
    whole.hear(1.0, *BEGUN)
    (outcome,) = whole.note(whole.engine.advance(60.0))
    assert (outcome.reason, outcome.text) == (OutcomeReason.LIMIT_TOTAL, "begun")
    assert outcome.detail.endswith("60 s, background work included")
    assert outcome.duration == 60.0
    assert whole.engine.next_deadline is None


def test_silence_is_limited_in_the_turn_alone() -> None:
    whole = Whole(first_event=5.0, idle=7.0)
    whole.hear(1.0, *BEGUN)
    assert whole.engine.next_deadline is None
    whole.hear(2.0, TASK_DONE, cli.init(), model("m"))
    assert whole.engine.next_deadline is None


def test_model_calls_of_background_work_count() -> None:
    whole = Whole(turns=2)
    whole.hear(1.0, cli.init("a"), model("1"), TASK, cli.result("a"))
    assert whole.hear(2.0, TASK_DONE, cli.init(), model("2")) == []
    (outcome,) = whole.hear(3.0, model("3"))
    assert outcome.reason is OutcomeReason.LIMIT_TURNS


@pytest.mark.parametrize("is_stopped", [False, True], ids=["exits", "is stopped"])
def test_a_cli_that_ends_before_its_background_work_has_not_answered(is_stopped: bool) -> None:
    whole = Whole()
    whole.hear(1.0, *BEGUN)
    if is_stopped:
        (outcome,) = whole.note(whole.engine.stop(2.0))
        assert outcome.reason is OutcomeReason.STOPPED
    else:
        whole.note(whole.engine.output_ended(2.0))
        (outcome,) = whole.note(whole.engine.exited(3, "", 2.0))
        assert (outcome.reason, outcome.exit_code) == (OutcomeReason.CLI_EXITED, 3)


def test_the_dollars_of_background_work_are_asked_for_while_it_runs() -> None:
    whole = Whole(usd=0.5)
    whole.tell_cost(0.5, "2.0000")
    assert whole.requests() == 1, "the total at the start"
    assert whole.hear(1.0, cli.init("a"), TASK) == []
    begun = cli.result(
        "a", total_cost_usd=2.2, model_usage_since_last_result={"m": {"costUSD": 0.2}}
    )
    assert whole.hear(1.0, begun) == []
    whole.hear(2.0, model("s1", USE))
    assert whole.requests() == 2
    assert whole.tell_cost(3.0, "2.4000") == []
    whole.hear(4.0, model("s2", USE), model("s3", USE))
    assert whole.requests() == 3, "one request at a time"
    assert whole.tell_cost(5.0, "2.4000") == []
    assert whole.requests() == 4, "a call has ended since the request was sent"
    (outcome,) = whole.tell_cost(6.0, "2.8000")
    assert outcome.reason is OutcomeReason.LIMIT_USD
    assert outcome.cost_usd == pytest.approx(0.8, abs=0.001)


def test_an_answer_that_is_complete_is_not_ended_for_a_late_cost() -> None:
    whole = Whole(usd=0.5)
    whole.tell_cost(0.5, "0.0000")
    whole.hear(1.0, cli.init("a"), TASK, cli.result("a", total_cost_usd=0.2), model("s1", USE))
    follow_up = cli.result(total_cost_usd=0.9, origin={"kind": "task-notification"})
    (outcome,) = whole.hear(2.0, TASK_DONE, cli.init(), follow_up)
    assert outcome.ok
    assert whole.tell_cost(3.0, "9.0000") == []


def test_a_follow_up_turn_counts_for_one_answer() -> None:
    whole = Whole()
    whole.hear(1.0, cli.init("a"), TASK, cli.result("a", result="begun", total_cost_usd=0.1))
    whole.note(whole.engine.send("other", "b", "go on", 2.0))
    assert whole.hear(3.0, cli.init("b"), cli.result("b", result="b", total_cost_usd=0.2)) == []
    done = cli.follow_up(result="done", total_cost_usd=0.4)
    first, second = whole.hear(4.0, TASK_DONE, cli.init(), done)
    assert (first.text, second.text) == ("begun", "done")
    assert first.cost_usd == pytest.approx(0.1)
    assert second.cost_usd == pytest.approx(0.3)


def test_results_of_an_earlier_answer_do_not_count_again() -> None:
    whole = Whole()
    whole.hear(1.0, *BEGUN)
    whole.hear(2.0, *DONE)
    whole.note(whole.engine.send("other", "b", "go on", 3.0))
    whole.hear(4.0, cli.init("b"), TASK, cli.result("b", result="more"))
    failed = cli.result(is_error=True, origin={"kind": "task-notification"})
    (outcome,) = whole.hear(5.0, TASK_DONE, cli.init(), failed)
    assert not outcome.ok
    assert outcome.num_turns == 2
