"""How a run is summed up: words, JSON and an exit code for every ending there is."""

from __future__ import annotations

import pytest

from bridle import (
    BridleError,
    CliNotFoundError,
    OptionsError,
    Outcome,
    OutcomeReason,
    SessionStopped,
)
from bridle.cli._screens.endings import ending, failure, summary
from bridle.cli._screens.shown import dollars, plain, seconds
from bridle.cli.exits import ExitCode, exit_code_for, exit_code_of, table
from bridle.errors import MaxTurnsError, ProcessInfo

GROUPS = {
    ExitCode.OK: {"completed"},
    ExitCode.LIMIT: {
        "max_turns",
        "max_budget",
        "limit_first_event",
        "limit_idle",
        "limit_total",
        "limit_turns",
        "limit_usd",
    },
    ExitCode.AUTH: {"auth_failed"},
    ExitCode.RATE_LIMITED: {"rate_limited"},
    ExitCode.INTERRUPTED: {"interrupted"},
}


@pytest.mark.parametrize("reason", OutcomeReason)
def test_every_reason_has_its_exit_code(reason: OutcomeReason) -> None:
    codes = [code for code, reasons in GROUPS.items() if reason in reasons]
    assert [exit_code_for(reason)] == (codes or [ExitCode.FAILED])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OptionsError("model", "is odd"), ExitCode.USAGE),
        (CliNotFoundError(), ExitCode.NOT_STARTED),
        (MaxTurnsError(Outcome(reason=OutcomeReason.MAX_TURNS)), ExitCode.LIMIT),
        (SessionStopped("send"), ExitCode.FAILED),
    ],
)
def test_every_error_has_its_exit_code(error: BridleError, code: ExitCode) -> None:
    assert exit_code_of(error) == code


def test_the_help_has_a_line_for_every_code() -> None:
    assert [int(line.split()[0]) for line in table().splitlines()] == sorted(ExitCode)


def lines(outcome: Outcome) -> list[str]:
    return [plain(note.line) for note in ending(outcome)]


def test_a_completed_run_is_one_line() -> None:
    outcome = Outcome(
        reason=OutcomeReason.COMPLETED, num_turns=1, duration=2.0, cost_usd=0.5, session_id="s1"
    )
    assert lines(outcome) == ["✓ completed · 1 turn · 2.0s · $0.5000 · session s1"]


def test_what_went_wrong_is_reported_with_advice() -> None:
    outcome = Outcome(
        reason=OutcomeReason.MAX_TURNS,
        detail="at\x07 its end",
        num_turns=2,
        duration=61.0,
        session_id="s1",
    )
    assert lines(outcome) == [
        "✗ max turns · 2 turns · 1m 01s",
        "  at␇ its end",
        "  Raise --max-turns.",
        '  To continue: bridle run --resume s1 "..."',
    ]


def test_an_interrupted_run_only_says_how_to_go_on() -> None:
    outcome = Outcome(reason=OutcomeReason.INTERRUPTED, detail="[ede_diagnostic]", session_id="s1")
    assert lines(outcome)[1:] == ['  To continue: bridle run --resume s1 "..."']
    assert lines(Outcome(reason=OutcomeReason.INTERRUPTED))[1:] == []


def test_the_last_words_of_a_cli_that_left_are_reported() -> None:
    process = ProcessInfo(exit_code=1, stderr_tail="no memory")
    outcome = Outcome(reason=OutcomeReason.CLI_EXITED, detail="it left", process=process)
    assert "    | no memory" in lines(outcome)


@pytest.mark.parametrize("reason", [one for one in OutcomeReason if one != "completed"])
def test_every_failure_says_something_beyond_its_name(reason: OutcomeReason) -> None:
    assert len(lines(Outcome(reason=reason, session_id="s1"))) > 1


def test_the_summary_is_data() -> None:
    outcome = Outcome(reason=OutcomeReason.RATE_LIMITED, detail="full", resets_at=9.0, duration=1.5)
    said = summary(outcome)
    assert said["type"] == "bridle_outcome"
    assert (said["ok"], said["exit_code"], said["reason"]) == (False, 5, "rate_limited")
    assert (said["detail"], said["resets_at"], said["duration"]) == ("full", 9.0, 1.5)


def test_a_failure_without_an_outcome_is_data_too() -> None:
    said = failure(CliNotFoundError(["/a"]), 6)
    assert (said["type"], said["ok"], said["exit_code"]) == ("bridle_outcome", False, 6)
    assert (said["reason"], said["error"]) == (None, "CliNotFoundError")
    assert "/a" in str(said["detail"])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (-1.0, "0.0s"),
        (0.44, "0.4s"),
        (12.9, "12s"),
        (125.0, "2m 05s"),
        (3780.0, "1h 03m"),
        (90000.0, "1d 01h"),
    ],
)
def test_durations_are_as_short_as_they_can_be(value: float, expected: str) -> None:
    assert seconds(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(None, ""), (0.0, "$0.00"), (0.00012, "$0.0001"), (12.345, "$12.35")]
)
def test_sums_are_precise_where_they_are_small(value: float | None, expected: str) -> None:
    assert dollars(value) == expected
