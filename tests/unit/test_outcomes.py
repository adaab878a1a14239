"""Outcomes: one reason, one error class for it, and a record that tells the rest."""

from __future__ import annotations

import copy
import pickle

import pytest

from bridle.errors import OutcomeError, ProcessInfo, RateLimitedError
from bridle.messages import DeferredToolUse
from bridle.outcomes import OUTCOME_ERRORS, Outcome, OutcomeReason

FAILING = [reason for reason in OutcomeReason if reason != "completed"]


def test_the_reasons_are_exactly_these() -> None:
    assert [reason.value for reason in OutcomeReason] == [
        "completed",
        "interrupted",
        "max_turns",
        "max_budget",
        "api_error",
        "rate_limited",
        "auth_failed",
        "refused",
        "prompt_blocked",
        "stopped_by_hook",
        "tool_deferred",
        "output_missing",
        "output_invalid",
        "limit_first_event",
        "limit_idle",
        "limit_total",
        "limit_turns",
        "limit_usd",
        "execution_error",
        "message_lost",
        "cli_exited",
        "stopped",
        "start_failed",
    ]


def test_every_failing_reason_has_an_error_class_of_its_own() -> None:
    assert list(OUTCOME_ERRORS) == FAILING
    assert len(set(OUTCOME_ERRORS.values())) == len(FAILING)
    assert set(OUTCOME_ERRORS.values()) == set(OutcomeError.__subclasses__())


def test_only_completed_is_ok() -> None:
    assert [reason for reason in OutcomeReason if Outcome(reason=reason).ok] == ["completed"]


def test_a_completed_outcome_passes_through_raise_for_reason() -> None:
    outcome = Outcome(reason=OutcomeReason.COMPLETED, text="4")
    assert outcome.raise_for_reason() is outcome


@pytest.mark.parametrize("reason", FAILING)
def test_any_other_outcome_raises_the_error_of_its_reason(reason: OutcomeReason) -> None:
    outcome = Outcome(reason=reason, detail="why")
    with pytest.raises(OutcomeError, match="why") as caught:
        outcome.raise_for_reason()
    assert caught.type is OUTCOME_ERRORS[reason]
    assert caught.value.outcome is outcome


@pytest.mark.parametrize("reason", OutcomeReason)
def test_an_outcome_pickles_and_copies(reason: OutcomeReason) -> None:
    outcome = Outcome(
        reason=reason,
        detail="why",
        text="4",
        output={"x": 5},
        structured_output={"x": 5},
        errors=("one",),
        uuid="u-1",
        merged_with=("u-2",),
        session_id="s-1",
        cost_usd=0.25,
        num_turns=2,
        duration=1.5,
        messages=(),
        deferred_tool_use=DeferredToolUse("toolu_1", "Bash"),
        resets_at=5.0,
        process=ProcessInfo(exit_code=1, stderr_tail="oh"),
    )
    for twin in (pickle.loads(pickle.dumps(outcome)), copy.copy(outcome), copy.deepcopy(outcome)):
        assert twin == outcome
        assert twin is not outcome


def test_the_error_of_an_outcome_pickles_with_the_outcome() -> None:
    error = RateLimitedError(Outcome(reason=OutcomeReason.RATE_LIMITED, resets_at=5.0))
    twin = pickle.loads(pickle.dumps(error))
    assert (twin.outcome, twin.resets_at) == (error.outcome, 5.0)


def test_an_outcome_cannot_be_changed() -> None:
    outcome = Outcome(reason=OutcomeReason.COMPLETED)
    with pytest.raises(AttributeError):
        outcome.text = "5"  # type: ignore[misc]  # pyright: ignore  # that it is refused is the test


def test_process_data_can_be_read_from_the_outcome() -> None:
    process = ProcessInfo(exit_code=-9, stderr_tail="oh")
    outcome = Outcome(reason=OutcomeReason.CLI_EXITED, process=process)
    assert (outcome.exit_code, outcome.stderr_tail) == (-9, "oh")


def test_an_outcome_without_a_process_has_no_exit_code() -> None:
    outcome = Outcome(reason=OutcomeReason.COMPLETED)
    assert (outcome.exit_code, outcome.stderr_tail) == (None, "")


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (Outcome(reason=OutcomeReason.COMPLETED), "completed"),
        (Outcome(reason=OutcomeReason.COMPLETED, text="4", detail="x"), "completed: 4"),
        (Outcome(reason=OutcomeReason.STOPPED, text="4"), "stopped"),
        (Outcome(reason=OutcomeReason.API_ERROR, text="4", detail="529"), "api_error: 529"),
    ],
)
def test_an_outcome_reads_as_its_answer_or_its_cause(outcome: Outcome, text: str) -> None:
    assert str(outcome) == text


@pytest.mark.parametrize(
    ("outcome", "shown"),
    [
        (Outcome(reason=OutcomeReason.STOPPED), "Outcome(stopped)"),
        (
            Outcome(
                reason=OutcomeReason.COMPLETED,
                text="4",
                output=5,
                cost_usd=0.25,
                num_turns=1,
                session_id="s-1",
                merged_with=("u-2",),
                duration=2.0,
            ),
            "Outcome(completed, text='4', output=5, cost_usd=0.25, num_turns=1, "
            "session_id='s-1', merged_with=('u-2',))",
        ),
        (
            Outcome(reason=OutcomeReason.API_ERROR, detail="529", cost_usd=0.0),
            "Outcome(api_error, detail='529')",
        ),
    ],
)
def test_a_repr_shows_the_reason_and_what_there_is(outcome: Outcome, shown: str) -> None:
    assert repr(outcome) == shown


@pytest.mark.parametrize(
    ("error", "expected"),
    [("server_error", True), ("overloaded", True), ("max_output_tokens", False), (None, False)],
)
def test_an_api_error_without_a_status_is_retryable_by_its_name(
    error: str | None, expected: bool
) -> None:
    """The CLI calls a lost connection `server_error`."""
    outcome = Outcome(reason=OutcomeReason.API_ERROR, api_error=error)
    assert outcome.retryable is expected
