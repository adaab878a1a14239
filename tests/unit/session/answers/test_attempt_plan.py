"""When Bridle asks again for the same answer, after how long, and what the answer costs then."""

from __future__ import annotations

from typing import Any

import pytest

from bridle import Limits, Outcome, OutcomeReason, Retry
from bridle._session.answers.attempt_plan import AnswerPlan, AskAgain, combined
from bridle.messages import Usage

WALL = 1_000_000.0
UNFIT = Outcome[Any](
    reason=OutcomeReason.OUTPUT_INVALID, detail="total: must be a number", model_calls=1
)
OVERLOADED = Outcome[Any](reason=OutcomeReason.RATE_LIMITED)
LIMITED = Outcome[Any](reason=OutcomeReason.RATE_LIMITED, resets_at=WALL + 90)


def plan(
    output_retries: int = 0, retry: Retry | None = None, limits: Limits | None = None
) -> AnswerPlan:
    return AnswerPlan(output_retries=output_retries, retry=retry, limits=limits or Limits())


def ask(
    answer: AnswerPlan,
    outcome: Outcome[Any],
    seconds: float = 1.0,
    chance: float = 0.5,
    *,
    is_last: bool = True,
) -> AskAgain | None:
    return answer.next(outcome, is_last=is_last, seconds=seconds, wall=WALL, chance=chance)


def test_an_invalid_output_goes_back_with_its_errors_as_often_as_allowed() -> None:
    answer = plan(output_retries=2)
    first = ask(answer, UNFIT)
    assert first is not None
    assert "total: must be a number" in first.prompt
    assert first.pause == 0.0
    assert ask(answer, UNFIT) is not None
    assert ask(answer, UNFIT) is None


def test_a_missing_output_is_requested() -> None:
    again = ask(plan(output_retries=1), Outcome(reason=OutcomeReason.OUTPUT_MISSING, model_calls=1))
    assert again is not None
    assert "no structured output" in again.prompt


@pytest.mark.parametrize("reason", [OutcomeReason.COMPLETED, OutcomeReason.INTERRUPTED])
def test_other_outcomes_are_final(reason: OutcomeReason) -> None:
    assert ask(plan(output_retries=3, retry=Retry()), Outcome(reason=reason)) is None


def test_an_api_error_is_retried_after_pauses_that_double() -> None:
    answer = plan(retry=Retry(attempts=4))
    pauses = [again.pause for _ in range(3) if (again := ask(answer, OVERLOADED))]
    assert pauses == [1.0, 2.0, 4.0]
    assert ask(answer, OVERLOADED) is None


@pytest.mark.parametrize(("chance", "pause"), [(0.0, 0.5), (1.0, 1.5)])
def test_the_pause_is_random_within_a_half(chance: float, pause: float) -> None:
    again = ask(plan(retry=Retry()), OVERLOADED, chance=chance)
    assert again is not None
    assert again.pause == pause


def test_the_pause_is_bounded() -> None:
    answer = plan(retry=Retry(attempts=40, max_wait=3.0))
    pauses = [again.pause for _ in range(39) if (again := ask(answer, OVERLOADED))]
    assert max(pauses) == pauses[-1] == 3.0


@pytest.mark.parametrize(
    ("retry", "pause"),
    [(Retry(), 91.0), (Retry(max_wait=89.0), None), (Retry(wait_for_reset=False), None)],
)
def test_a_rate_limit_is_waited_for_if_it_resets_in_time(retry: Retry, pause: float | None) -> None:
    again = ask(plan(retry=retry), LIMITED)
    assert (None if again is None else again.pause) == pause


def test_no_pause_is_longer_than_the_longest_wait() -> None:
    again = ask(plan(retry=Retry(max_wait=90.0)), LIMITED)
    assert again is not None
    assert again.pause == 90.0


def test_a_reset_in_the_past_still_means_a_pause() -> None:
    past = Outcome[Any](reason=OutcomeReason.RATE_LIMITED, resets_at=WALL - 5)
    again = ask(plan(retry=Retry()), past)
    assert again is not None
    assert again.pause == 1.0


@pytest.mark.parametrize("outcome", [UNFIT, OVERLOADED])
def test_nothing_is_asked_after_a_later_prompt(outcome: Outcome[Any]) -> None:
    assert ask(plan(1, Retry()), outcome, is_last=False) is None
    assert ask(plan(1, Retry()), outcome) is not None


def test_a_slash_command_is_not_corrected() -> None:
    assert ask(plan(1), Outcome(reason=OutcomeReason.OUTPUT_MISSING)) is None


def test_half_a_surrogate_pair_does_not_reach_the_prompt() -> None:
    odd = Outcome[Any](reason=OutcomeReason.OUTPUT_INVALID, detail="\ud800", model_calls=1)
    again = ask(plan(1), odd)
    assert again is not None
    assert "rejected: ?." in again.prompt


def test_without_retry_nothing_is_retried() -> None:
    assert ask(plan(output_retries=1), OVERLOADED) is None


def test_a_cli_that_has_exited_is_not_asked_again() -> None:
    gone = Outcome[Any](reason=OutcomeReason.CLI_EXITED)
    assert gone.retryable
    assert ask(plan(retry=Retry()), gone) is None


CRASHED = Outcome[Any](reason=OutcomeReason.CLI_EXITED, main_model_calls=1, cost_usd=0.5)


def test_a_new_process_after_a_crash_is_an_attempt() -> None:
    answer = plan(retry=Retry(attempts=3))
    assert ask(answer, OVERLOADED) is not None
    assert answer.pause_after_crash(CRASHED, 1.0, 0.5) == 2.0
    assert answer.pause_after_crash(CRASHED, 1.0, 0.5) is None
    assert plan().pause_after_crash(CRASHED, 1.0, 0.5) is None


@pytest.mark.parametrize("limits", [Limits(turns=1), Limits(usd=0.5), Limits(total=1.5)])
def test_no_process_is_started_after_a_crash_if_a_limit_is_used_up(limits: Limits) -> None:
    assert plan(retry=Retry(), limits=limits).pause_after_crash(CRASHED, 1.0, 0.5) is None


def test_a_new_process_has_the_attempts_that_are_left() -> None:
    answer = plan(output_retries=2, retry=Retry(attempts=5, max_wait=7.0))
    assert answer.pause_after_crash(CRASHED, 1.0, 0.5) is not None
    rest = answer.rest()
    assert rest == Retry(attempts=4, max_wait=7.0)
    second = plan(output_retries=2, retry=rest)
    assert ask(second, OVERLOADED) is not None
    assert ask(second, UNFIT) is not None
    answer.count(second)
    assert (answer.retries, answer.corrections, answer.rest()) == (
        2,
        1,
        Retry(attempts=3, max_wait=7.0),
    )
    assert plan().rest() is None


@pytest.mark.parametrize(
    ("limits", "outcome", "seconds"),
    [
        (Limits(total=10.0), LIMITED, 1.0),  # the pause would pass the limit
        (Limits(total=10.0), UNFIT, 10.0),
        (Limits(turns=2), Outcome(reason=UNFIT.reason, model_calls=2, main_model_calls=2), 1.0),
        (Limits(usd=0.5), Outcome(reason=UNFIT.reason, model_calls=1, cost_usd=0.5), 1.0),
    ],
)
def test_an_answer_that_has_used_up_a_limit_is_final(
    limits: Limits, outcome: Outcome[Any], seconds: float
) -> None:
    assert ask(plan(1, Retry(), limits), outcome, seconds) is None
    assert ask(plan(1, Retry(), Limits()), outcome, seconds) is not None


def test_a_model_call_of_unknown_cost_uses_up_the_limit_in_dollars() -> None:
    assert UNFIT.cost_usd is None
    assert UNFIT.model_calls > 0
    assert ask(plan(1, limits=Limits(usd=0.5)), UNFIT) is None
    assert ask(plan(1), UNFIT) is not None
    crashed = Outcome(reason=OutcomeReason.CLI_EXITED)
    limited = plan(1, retry=Retry(attempts=3), limits=Limits(usd=0.5))
    assert limited.pause_after_crash(crashed, 1.0, 0.5) is not None, "no model call was made"


def test_the_answer_costs_what_all_of_its_prompts_cost() -> None:
    first = Outcome[Any](
        reason=OutcomeReason.OUTPUT_INVALID,
        uuid="a",
        text="first",
        cost_usd=0.25,
        usage=Usage(input_tokens=1, output_tokens=2, cache_read_input_tokens=3),
        num_turns=1,
        model_calls=2,
        main_model_calls=1,
        tool_calls=3,
        api_retries=4,
        merged_with=("m",),
    )
    second = Outcome[Any](
        reason=OutcomeReason.COMPLETED,
        uuid="b",
        cost_usd=0.5,
        usage=Usage(input_tokens=10, output_tokens=20),
        num_turns=10,
        model_calls=20,
        main_model_calls=10,
        tool_calls=30,
        api_retries=40,
        merged_with=("m", "n"),
    )
    both = combined(first, second)
    assert (both.uuid, both.reason, both.text) == ("a", OutcomeReason.COMPLETED, "first")
    assert (both.cost_usd, both.num_turns, both.merged_with) == (0.75, 11, ("m", "n"))
    assert (both.model_calls, both.tool_calls, both.api_retries) == (22, 33, 44)
    assert both.main_model_calls == 11
    assert both.usage == Usage(input_tokens=11, output_tokens=22, cache_read_input_tokens=3)


@pytest.mark.parametrize("costs", [(0.25, None), (None, 0.25)])
def test_an_unknown_cost_adds_nothing(costs: tuple[float | None, float | None]) -> None:
    first, second = (Outcome[Any](reason=OutcomeReason.API_ERROR, cost_usd=cost) for cost in costs)
    assert combined(first, second).cost_usd == 0.25
    assert combined(first, second).usage is None
