"""The limits on an answer: what an answer is, and which limit of it is reached first."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.support import cli

from bridle._core.answer import AnswerWatch
from bridle._core.classify import LimitHit, ProcessEnd
from bridle._core.correlation import Deadlines
from bridle.errors import ProcessInfo
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
    """A watch, its deadlines, and a prompt at time 0."""

    def __init__(self, *, echoes: bool = True, **limits: Any) -> None:
        self.deadlines = Deadlines()
        self.watch = AnswerWatch(Limits(**limits), self.deadlines, echoes=echoes)
        self.watch.prompt(0.0)

    def hear(self, now: float, *lines: bytes) -> LimitHit | None:
        """These lines come, and then?"""
        for message in cli.decoded(b"".join(lines)):
            self.watch.hear(message, now)
        return self.watch.hit

    def wait(self, now: float) -> LimitHit | None:
        """Time passes, and then?"""
        for token in self.deadlines.pop_expired(now):
            kind, _ = cast("tuple[str, str]", token)
            self.watch.overdue(kind, now)
        return self.watch.hit

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


def test_nor_while_background_work_runs() -> None:
    answer = Answer(idle=5.0)
    answer.hear(1.0, cli.init(), model("m", USE), TASK, RESULT_OF_USE, cli.result())
    assert (answer.due(), answer.watch.is_open) == (None, True)
    answer.hear(100.0, TASK_DONE)
    assert answer.due() == 105.0, "its turn is to come"


def test_nor_while_nobody_listens() -> None:
    answer = Answer(idle=5.0)
    answer.hear(1.0, cli.init())
    answer.watch.hold(2.0)
    assert answer.due() is None
    answer.watch.go_on(50.0)
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
    assert not answer.watch.is_open


# ---------------------------------------------------------------- which answer


def test_the_total_is_that_of_all_answers() -> None:
    answer = Answer(total=60.0)
    answer.hear(1.0, cli.init(), cli.result())
    answer.watch.prompt(50.0)
    assert answer.due() == 60.0
    assert answer.wait(60.0) == LimitHit("total", 60.0)


def test_nothing_is_owed_while_the_next_prompt_is_awaited() -> None:
    answer = Answer(first_event=5.0, idle=7.0)
    answer.hear(1.0, cli.init(), cli.result())
    assert answer.due() is None
    answer.watch.prompt(100.0)
    assert answer.due() == 105.0


def test_a_prompt_that_waits_begins_no_answer_but_its_turn_does() -> None:
    """It may have become part of the turn before: then nothing more comes."""
    answer = Answer(idle=60.0)
    answer.watch.prompt(10.0)
    answer.hear(20.0, cli.init(), cli.result())
    assert answer.due() is None
    answer.hear(30.0, cli.init())
    assert answer.due() == 90.0


def test_one_the_cli_has_not_named_in_a_result_is_still_owed() -> None:
    answer = Answer(first_event=5.0, idle=60.0)
    answer.watch.prompt(10.0)
    answer.hear(20.0, cli.init("a"), cli.result("a"))
    assert (answer.due(), answer.watch.is_open) == (25.0, True)
    answer.hear(21.0, cli.init("b"), cli.result("b"))
    assert (answer.due(), answer.watch.is_open) == (None, False)


def test_two_that_are_named_in_one_result_are_answered() -> None:
    answer = Answer(first_event=5.0, idle=60.0)
    answer.watch.prompt(10.0)
    answer.hear(20.0, cli.init("a"), cli.result("a", "b"))
    assert (answer.due(), answer.watch.is_open) == (None, False)


def test_the_result_of_background_work_answers_no_prompt() -> None:
    answer = Answer(first_event=5.0)
    answer.hear(1.0, cli.init("a"), TASK, cli.result("a"))
    answer.watch.prompt(2.0)
    answer.hear(3.0, TASK_DONE, cli.init(), cli.follow_up())
    assert (answer.due(), answer.watch.is_open) == (8.0, True)


# ---------------------------------------------------------------- the end of the input


def test_once_the_input_has_ended_the_cli_owes_its_end() -> None:
    answer = Answer(idle=5.0)
    answer.hear(1.0, cli.init(), cli.result(total_cost_usd=0.25))
    assert answer.due() is None
    answer.watch.input_ended(10.0)
    assert (answer.due(), answer.watch.is_open) == (15.0, False)
    answer.hear(12.0, cli.assistant())
    assert answer.wait(17.0) == LimitHit("idle", 5.0)
    outcome = answer.watch.outcome(ProcessInfo(), 17.0)
    assert (outcome.reason, outcome.cost_usd) == (OutcomeReason.LIMIT_IDLE, 0.25)


def test_also_if_that_was_before_the_last_result() -> None:
    answer = Answer(idle=5.0)
    answer.watch.input_ended(0.0)
    answer.hear(1.0, cli.init(), model("m", USE), cli.result())
    assert (answer.due(), answer.watch.is_open) == (6.0, False)


def test_a_turn_that_comes_then_is_an_answer_of_its_own() -> None:
    answer = Answer(turns=1, usd=0.5)
    answer.watch.input_ended(0.0)
    assert answer.hear(1.0, cli.init(), model("1"), cli.result(total_cost_usd=0.4)) is None
    assert answer.hear(2.0, cli.init(), model("2"), cli.result(total_cost_usd=0.8)) is None
    assert answer.hear(3.0, cli.init(), model("3"), model("4")) == LimitHit("turns", 1)


def test_an_end_without_a_prompt_is_owed_as_well() -> None:
    deadlines = Deadlines()
    watch = AnswerWatch(Limits(first_event=5.0, idle=7.0), deadlines, echoes=False)
    watch.input_ended(1.0)
    assert deadlines.next == 6.0
    watch.overdue("limit: first event", 6.0)
    assert watch.outcome(ProcessInfo(), 6.0).duration == 0.0


def test_what_comes_between_two_answers_begins_none() -> None:
    answer = Answer(idle=60.0)
    answer.hear(1.0, cli.init(), cli.result(), QUEUED, cli.result(), cli.assistant())
    assert (answer.due(), answer.watch.is_open) == (None, False)


# ---------------------------------------------------------------- calls and dollars


def test_calls_of_the_model_are_counted_over_the_whole_answer() -> None:
    answer = Answer(turns=2)
    assert answer.hear(1.0, cli.init(), model("1"), TASK, cli.result()) is None
    assert answer.hear(2.0, TASK_DONE, cli.init(), model("2"), model("2")) is None
    assert answer.hear(3.0, model("3")) == LimitHit("turns", 2)


@pytest.mark.parametrize(("total", "is_hit"), [(0.5, False), (0.51, True), (None, False)])
def test_dollars_are_counted_when_a_result_tells_them(total: float | None, is_hit: bool) -> None:
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
    answer.wait(60.0)
    process = ProcessInfo(cli_path="/bin/claude")
    outcome = answer.watch.outcome(process, 60.0)
    assert (outcome.reason, outcome.session_id) == (OutcomeReason.LIMIT_TOTAL, "s")
    assert (outcome.duration, outcome.cost_usd, outcome.process) == (60.0, None, process)
    assert "60 s" in outcome.detail


def test_the_outcome_has_the_result_if_one_came() -> None:
    answer = Answer(usd=0.5)
    answer.hear(2.0, cli.init(), cli.result(result="words", total_cost_usd=0.75))
    outcome = answer.watch.outcome(ProcessInfo(), 3.0)
    assert (outcome.reason, outcome.cost_usd) == (OutcomeReason.LIMIT_USD, 0.75)
    assert (outcome.text, outcome.num_turns, outcome.duration) == ("words", 1, 3.0)


OK: Outcome[Any] = Outcome(reason=OutcomeReason.COMPLETED, text="begun")


def test_what_followed_a_turn_completes_its_outcome() -> None:
    answer = Answer()
    answer.hear(1.0, cli.init(), TASK, cli.result(result="begun"))
    answer.hear(2.0, TASK_DONE, cli.init(), cli.follow_up(result="done"))
    outcome = answer.watch.complete(OK)
    assert (outcome.ok, outcome.text) == (True, "done")


def test_a_limit_of_what_followed_is_the_outcome() -> None:
    answer = Answer(total=60.0)
    answer.hear(1.0, cli.init(), TASK, cli.result(result="begun"))
    answer.wait(60.0)
    outcome = answer.watch.complete(OK)
    assert (outcome.reason, outcome.text) == (OutcomeReason.LIMIT_TOTAL, "begun")
    assert outcome.detail.endswith("60 s, background work included")


def test_so_is_a_cli_that_ends_before_its_background_work() -> None:
    answer = Answer()
    answer.hear(1.0, cli.init(), TASK, cli.result(result="begun"))
    process = ProcessInfo(exit_code=3)
    outcome = answer.watch.complete(OK, ProcessEnd(process=process))
    assert (outcome.reason, outcome.exit_code) == (OutcomeReason.CLI_EXITED, 3)


def test_a_failure_stays_what_it_is() -> None:
    answer = Answer(total=60.0)
    answer.wait(60.0)
    failed: Outcome[Any] = Outcome(reason=OutcomeReason.API_ERROR)
    assert answer.watch.complete(failed) == failed


# ---------------------------------------------------------------- dollars of background work


def cost(amount: str) -> dict[str, str]:
    return {"text": f"Total cost: ${amount}"}


def test_the_dollars_of_background_work_are_asked_for_while_it_runs() -> None:
    asked: list[int] = []
    watch = AnswerWatch(
        Limits(usd=0.5),
        Deadlines(),
        echoes=True,
        keeps_completed=True,
        ask_cost=lambda: asked.append(1),
    )

    def hear(*lines: bytes) -> int:
        """The number of requests that these lines lead to."""
        before = len(asked)
        for message in cli.decoded(b"".join(lines)):
            watch.hear(message, 1.0)
        return len(asked) - before

    def tell(amount: str) -> LimitHit | None:
        watch.hear_cost(cost(amount), 2.0)
        return watch.hit

    watch.prompt(0.0)
    assert hear(cli.init(), model("1", USE), TASK, RESULT_OF_USE) == 0, (
        "the session limits the turn itself"
    )
    begun = cli.result(total_cost_usd=2.2, model_usage_since_last_result={"m": {"costUSD": 0.2}})
    assert hear(begun) == 0
    assert hear(model("s1", USE)) == 1
    assert tell("2.4000") is None
    assert hear(model("s2", USE), model("s3", USE)) == 1, "one request at a time"
    assert tell("2.4000") is None
    assert len(asked) == 3, "a call has ended since the request was sent"
    assert tell("2.8000") == LimitHit("usd", 0.5)
    outcome: Outcome[Any] = Outcome(reason=OutcomeReason.COMPLETED, detail="", cost_usd=0.2)
    outcome = watch.complete(outcome)
    assert outcome.reason is OutcomeReason.LIMIT_USD
    assert outcome.cost_usd == pytest.approx(0.8)


def test_an_answer_that_is_complete_is_not_ended_for_a_late_cost() -> None:
    watch = AnswerWatch(Limits(usd=0.5), Deadlines(), echoes=True, ask_cost=lambda: None)
    watch.prompt(0.0)
    follow_up = cli.result(total_cost_usd=0.3, origin={"kind": "task-notification"})
    begun = cli.result(total_cost_usd=0.2)
    lines = (cli.init(), TASK, begun, model("s1", USE), TASK_DONE, follow_up)
    for message in cli.decoded(b"".join(lines)):
        watch.hear(message, 1.0)
    assert not watch.is_open
    watch.hear_cost(cost("9.0000"), 2.0)
    assert watch.hit is None
