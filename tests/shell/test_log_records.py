"""The log's table: what each observation is called, how loud it is, and what it never says."""

from __future__ import annotations

import logging

import pytest

from bridle import (
    ApiRetry,
    Outcome,
    OutcomeReason,
    RateLimited,
    SdkWarning,
    SessionCompleted,
    SessionEnded,
    SessionEvent,
    SessionFailed,
    SessionReady,
    SessionStopped,
)
from bridle._observe.log_records import LEVELS, QUERY, SESSION, Journal, log_events
from bridle.events import WarningKind
from bridle.telemetry import (
    CallBegan,
    CallEnded,
    Happened,
    Observation,
    OperationBegan,
    OperationEnded,
    QueryBegan,
    QueryEnded,
    ToolUseBegan,
    TurnBegan,
    TurnEnded,
)

D, I, W, E = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR  # noqa: E741

TURN = TurnBegan(at=1.0, session_id="s", id=1, uuid="u")
QUERY_BEGAN = QueryBegan(at=1.0, session_id="s", id=2)
HOOK = CallBegan(at=1.0, session_id="s", id=3, kind="hook", label="Stop hook")
SET_MODEL = OperationBegan(at=1.0, session_id="s", id=4, operation="set_model")
OUTCOME: Outcome = Outcome(reason=OutcomeReason.INTERRUPTED)


def happened(event: SessionEvent) -> Happened:
    return Happened(at=1.0, session_id="s", event=event)


def warned(kind: WarningKind, detail: str = "", error: BaseException | None = None) -> Happened:
    return happened(SdkWarning(kind, detail, error))


def written(
    caplog: pytest.LogCaptureFixture, observation: Observation, scope: str = SESSION
) -> list[logging.LogRecord]:
    """Return what the journal of a session that has started writes."""
    journal = Journal(scope)
    with caplog.at_level(logging.DEBUG, logger="bridle"):
        journal.write(happened(SessionReady("s")))
        caplog.clear()
        journal.write(observation)
    return list(caplog.records)


# An observation, and what becomes of it: event, logger, level, text, and fields beside those all
# records have.
ENTRIES: list[tuple[Observation, str, str, int, str, dict[str, object]]] = [
    (TURN, "turn_began", "bridle.session", D, "turn u began", {"turn": "u"}),
    (
        TurnEnded(at=1.5, session_id="s", began=TURN, outcome=OUTCOME, failure="interrupted"),
        "turn_ended",
        "bridle.session",
        D,
        "turn u ended after 0.500 s: interrupted",
        {"turn": "u", "duration": 0.5, "result": "interrupted"},
    ),
    (QUERY_BEGAN, "query_began", "bridle.query", D, "a query began", {}),
    (
        QueryEnded(at=3.0, session_id="s", began=QUERY_BEGAN),
        "query_ended",
        "bridle.query",
        D,
        "a query ended after 2.000 s: ok",
        {"duration": 2.0, "result": "ok"},
    ),
    (
        HOOK,
        "call_began",
        "bridle.callbacks",
        D,
        "Stop hook was called (hook)",
        {"label": "Stop hook", "kind": "hook"},
    ),
    (
        CallEnded(at=1.25, session_id="s", began=HOOK, failure="timed_out"),
        "call_ended",
        "bridle.callbacks",
        D,
        "Stop hook (hook) ended after 0.250 s: timed_out",
        {"label": "Stop hook", "kind": "hook", "duration": 0.25, "result": "timed_out"},
    ),
    (
        SET_MODEL,
        "operation_began",
        "bridle.control",
        D,
        "set_model was requested",
        {"operation": "set_model"},
    ),
    (
        OperationEnded(at=2.0, session_id="s", began=SET_MODEL),
        "operation_ended",
        "bridle.control",
        D,
        "set_model ended after 1.000 s: ok",
        {"operation": "set_model", "duration": 1.0, "result": "ok"},
    ),
    (
        OperationEnded(at=2.0, session_id="s", began=SET_MODEL, failure="cancelled"),
        "operation_ended",
        "bridle.control",
        D,
        "set_model ended after 1.000 s: cancelled",
        {"operation": "set_model", "duration": 1.0, "result": "cancelled"},
    ),
    (
        OperationEnded(at=2.0, session_id="s", began=SET_MODEL, failure="ControlTimeout"),
        "operation_failed",
        "bridle.control",
        D,
        "set_model failed after 1.000 s: ControlTimeout",
        {"operation": "set_model", "duration": 1.0, "result": "ControlTimeout"},
    ),
    (
        happened(SessionReady("s", (), "2.1.0", 7)),
        "session_ready",
        "bridle.session",
        I,
        "the session is ready: CLI 2.1.0, pid 7",
        {"cli_version": "2.1.0", "pid": 7},
    ),
    (
        happened(SessionCompleted(0)),
        "session_completed",
        "bridle.session",
        I,
        "the CLI ended by itself with exit code 0",
        {"exit_code": 0},
    ),
    (
        happened(SessionEnded(None)),
        "session_ended",
        "bridle.session",
        I,
        "the session was ended, exit code None",
        {"exit_code": None},
    ),
    (
        happened(SessionFailed("said SECRET", 3)),
        "session_failed",
        "bridle.session",
        W,
        "the session failed (the CLI ended), exit code 3",
        {"result": "the CLI ended", "exit_code": 3},
    ),
    (
        happened(SessionFailed("said SECRET", 3, SessionStopped("start"))),
        "session_failed",
        "bridle.session",
        W,
        "the session failed (SessionStopped), exit code 3",
        {"result": "SessionStopped", "exit_code": 3},
    ),
    (
        happened(ApiRetry(attempt=1, max_retries=10, delay=0.55, error_status=529, error="x")),
        "api_retry",
        "bridle.session",
        I,
        "an API request failed (status 529): attempt 1 of 10 follows in 0.6 s, after 0.0 s",
        {"error_status": 529, "attempt": 1, "max_retries": 10, "delay": 0.55, "waited": 0.0},
    ),
    (
        happened(RateLimited(status="rejected", limit_type="five_hour")),
        "rate_limited",
        "bridle.session",
        I,
        "the rate limit five_hour is now: rejected",
        {"limit_type": "five_hour", "status": "rejected"},
    ),
]


@pytest.mark.parametrize("row", ENTRIES, ids=lambda row: f"{row[1]}-{row[4]}"[:60])
def test_an_observation_is_one_record_of_the_table(
    row: tuple[Observation, str, str, int, str, dict[str, object]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R450, R454: a name, a level, and fields to search by."""
    observation, event, logger, level, text, fields = row
    (record,) = written(caplog, observation)
    assert (record.name, record.levelno, record.getMessage()) == (logger, level, text)
    told = {"bridle_event": event, "session_id": "s", **fields}
    assert {name: vars(record)[name] for name in told} == told
    assert log_events()[event] == (logger, level)


@pytest.mark.parametrize("kind", WarningKind)
def test_a_warning_is_logged_under_its_own_name(
    kind: WarningKind, caplog: pytest.LogCaptureFixture
) -> None:
    """R451, R454: hooks that fail or are late are warnings; every oddity has its name."""
    (record,) = written(caplog, warned(kind))
    fields = vars(record)
    assert (record.levelno, fields["bridle_event"]) == (LEVELS[kind.level], kind.value)
    assert (record.name, fields["session_id"]) == ("bridle.session", "s")
    assert log_events()[kind.value] == (record.name, record.levelno)


def test_the_events_that_were_asked_for_have_these_levels() -> None:
    """R450, R451, R454. An exception that is raised to the caller is no error of the log."""
    wanted = {
        "call_ended": D,
        "hook_failed": W,
        "hook_timed_out": W,
        "operation_failed": D,
        "session_failed": W,
        "api_retry": I,
        "unknown_callback": W,
        "orphan_response": W,
        "late_response": D,
        "malformed_line": W,
        "oversized_line": E,
        "limit_reached": W,
        "version_inconclusive": W,
        "missing_capabilities": I,
        "telemetry_failed": E,
    }
    assert {name: log_events()[name][1] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("waited", "delay", "level"),
    [(0.0, 0.5, I), (2.0, 3.0, I), (2.0, 3.1, W), (0.0, 6.0, W), (190.0, 13.0, W)],
)
def test_retries_are_warnings_once_a_request_fails_for_more_than_five_seconds(
    waited: float, delay: float, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    retry = ApiRetry(attempt=3, max_retries=10, delay=delay, waited=waited)
    (record,) = written(caplog, happened(retry))
    assert record.levelno == level


def test_a_session_that_fails_is_a_warning_unless_its_start_raises_the_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="bridle")
    failed = happened(SessionFailed("x", 1))
    Journal(SESSION).write(failed)
    started = Journal(SESSION)
    started.write(happened(SessionReady("s", (), "2.1.0", 7)))
    started.write(failed)
    levels = [one.levelno for one in caplog.records if "failed" in one.getMessage()]
    assert levels == [D, W]


def test_what_happens_in_a_query_is_logged_as_the_querys(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = warned(WarningKind.NO_RESULT, "it exited with code 0")
    (record,) = written(caplog, seen, QUERY)
    assert (record.name, record.getMessage()) == (
        "bridle.query",
        "no_result: it exited with code 0",
    )


def test_what_is_only_for_telemetry_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    tool = ToolUseBegan(at=1.0, id=5, tool="Bash", tool_use_id="t")
    assert written(caplog, tool) == []


def test_observations_without_a_listener_are_not_built(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL, logger="bridle"):
        Journal(SESSION).write(warned(WarningKind.HOOK_FAILED, "boom"))
    assert caplog.records == []


def test_what_the_application_raised_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R451."""
    error = ValueError("boom")
    seen = warned(WarningKind.HOOK_FAILED, "Stop hook: ValueError: boom", error)
    (record,) = written(caplog, seen)
    assert record.exc_info == (ValueError, error, None)
    assert record.getMessage() == "hook_failed: Stop hook: ValueError: boom"


DETAILS = [
    (WarningKind.OVERSIZED_LINE, "assistant of 20 bytes, over 10", True),
    (WarningKind.LIMIT_REACHED, "interrupt: 16 operations are queued", True),
    (WarningKind.MALFORMED_LINE, "not JSON: 20 bytes that look like plain text", True),
    (WarningKind.INCOMPLETE_LINE, "not JSON: 20 bytes that look like plain text", True),
    (WarningKind.INIT_FAILED_LATE, "agents.0.prompt: SECRET is too long", False),
    (WarningKind.RESULT_IGNORED, "Answers names 'SECRET?', which was not asked", False),
]


@pytest.mark.parametrize(("kind", "detail", "shown"), DETAILS)
def test_sizes_and_names_are_logged_and_words_of_the_cli_are_not(
    kind: WarningKind, detail: str, shown: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """R454: sizes, counts and what came, but nothing that somebody said."""
    (record,) = written(caplog, warned(kind, detail))
    assert (detail in record.getMessage()) is shown
    assert shown or kind.meaning in record.getMessage()
    assert "SECRET" not in str(vars(record))


def test_telemetry_that_raises_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    error = KeyError("x")
    Journal(SESSION).write_failure(error)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("bridle", "ERROR")
    assert vars(record)["bridle_event"] == "telemetry_failed"
    assert record.exc_info == (KeyError, error, None)
