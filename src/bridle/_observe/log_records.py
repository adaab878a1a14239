"""The log records of Bridle: one table with the logger, level and text of each event.

Records contain names, numbers and kinds: tools, events, operations, classes of exceptions, seconds.
They never contain prompts, answers, input or output of tools, or text of the CLI that may quote
these. The one exception is an exception that a callback raises: it is logged with its traceback.

Every record has `bridle_event`, the name in the table. Records of sessions and queries also have
`session_id`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

from bridle._observe.user_values import texts_of
from bridle.events import (
    ApiRetry,
    RateLimited,
    SdkWarning,
    SessionCompleted,
    SessionEnded,
    SessionEvent,
    SessionFailed,
    SessionReady,
    WarningKind,
    WarningLevel,
)
from bridle.telemetry import (
    CANCELLED,
    CallBegan,
    CallEnded,
    Ended,
    Happened,
    Observation,
    OperationBegan,
    OperationEnded,
    QueryBegan,
    QueryEnded,
    TurnBegan,
    TurnEnded,
)

SESSION = "bridle.session"
QUERY = "bridle.query"
CALLBACKS = "bridle.callbacks"
CONTROL = "bridle.control"

LEVELS: dict[WarningLevel, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

LONG_RETRY = 5.0
"""Seconds that an API request may keep failing before its retries are logged as warnings."""

_BRIDLE = logging.getLogger("bridle")


class Entry(NamedTuple):
    """How one kind of observation is logged.

    ``fields`` maps the names of fields in the record to functions that get them from an
    observation. ``text`` has a placeholder for each field, in order.
    """

    event: str
    logger: str
    level: int
    text: str
    fields: dict[str, Callable[[Any], object]]


def _fields(**paths: str) -> dict[str, Callable[[Any], object]]:
    return {name: attrgetter(path) for name, path in paths.items()}


def _failure_of(seen: Any) -> str:
    failed: SessionFailed = seen.event
    return "the CLI ended" if failed.error is None else type(failed.error).__name__


def _how(seen: Any) -> str:
    ended: Ended = seen
    return ended.failure or "ok"


_ENDING = {**_fields(duration="duration"), "result": _how}

_EVENTS: dict[type[Observation], Entry] = {
    TurnBegan: Entry("turn_began", SESSION, logging.DEBUG, "turn %s began", _fields(turn="uuid")),
    TurnEnded: Entry(
        "turn_ended",
        SESSION,
        logging.DEBUG,
        "turn %s ended after %.3f s: %s",
        {**_fields(turn="began.uuid"), **_ENDING},
    ),
    QueryBegan: Entry("query_began", QUERY, logging.DEBUG, "a query began", {}),
    QueryEnded: Entry(
        "query_ended",
        QUERY,
        logging.DEBUG,
        "a query ended after %.3f s: %s",
        _ENDING,
    ),
    CallBegan: Entry(
        "call_began",
        CALLBACKS,
        logging.DEBUG,
        "%s was called (%s)",
        _fields(label="label", kind="kind"),
    ),
    CallEnded: Entry(
        "call_ended",
        CALLBACKS,
        logging.DEBUG,
        "%s (%s) ended after %.3f s: %s",
        {**_fields(label="began.label", kind="began.kind"), **_ENDING},
    ),
    OperationBegan: Entry(
        "operation_began",
        CONTROL,
        logging.DEBUG,
        "%s was requested",
        _fields(operation="operation"),
    ),
    OperationEnded: Entry(
        "operation_ended",
        CONTROL,
        logging.DEBUG,
        "%s ended after %.3f s: %s",
        {**_fields(operation="began.operation"), **_ENDING},
    ),
}
# At level DEBUG, because the caller gets the exception and can log it.
_OPERATION_FAILED = Entry(
    "operation_failed",
    CONTROL,
    logging.DEBUG,
    "%s failed after %.3f s: %s",
    {**_fields(operation="began.operation"), **_ENDING},
)

_HAPPENINGS: dict[type, Entry] = {
    SessionReady: Entry(
        "session_ready",
        SESSION,
        logging.INFO,
        "the session is ready: CLI %s, pid %s",
        _fields(cli_version="event.cli_version", pid="event.pid"),
    ),
    SessionCompleted: Entry(
        "session_completed",
        SESSION,
        logging.INFO,
        "the CLI ended by itself with exit code %s",
        _fields(exit_code="event.exit_code"),
    ),
    SessionEnded: Entry(
        "session_ended",
        SESSION,
        logging.INFO,
        "the session was ended, exit code %s",
        _fields(exit_code="event.exit_code"),
    ),
    SessionFailed: Entry(
        "session_failed",
        SESSION,
        logging.WARNING,
        "the session failed (%s), exit code %s",
        {"result": _failure_of, **_fields(exit_code="event.exit_code")},
    ),
    ApiRetry: Entry(
        "api_retry",
        SESSION,
        logging.INFO,
        "an API request failed (status %s): attempt %s of %s follows in %.1f s, after %.1f s",
        _fields(
            error_status="event.error_status",
            attempt="event.attempt",
            max_retries="event.max_retries",
            delay="event.delay",
            waited="event.waited",
        ),
    ),
    RateLimited: Entry(
        "rate_limited",
        SESSION,
        logging.INFO,
        "the rate limit %s is now: %s",
        _fields(limit_type="event.limit_type", status="event.status"),
    ),
}


_TELEMETRY_FAILED = "telemetry_failed"


def log_events() -> dict[str, tuple[str, int]]:
    """Return every ``bridle_event`` with its logger and its level.

    Events of a query are logged by the logger of queries in place of that of sessions.
    """
    rows = [*_EVENTS.values(), _OPERATION_FAILED, *_HAPPENINGS.values()]
    rows += [_warning(kind) for kind in WarningKind]
    told = {row.event: (row.logger, row.level) for row in rows}
    return {**told, _TELEMETRY_FAILED: (_BRIDLE.name, logging.ERROR)}


_logger = cache(logging.getLogger)


class Journal:
    """The log of one session or query. ``logger`` is the name of the logger for its events."""

    def __init__(self, logger: str) -> None:
        self._logger = logger
        self._has_started = False

    def ear_for(self, kind: type[Observation]) -> Callable[[], bool]:
        """Return a function that says whether observations of this kind are logged now.

        The caller uses it to skip building frequent observations that are not logged.
        """
        entry = _EVENTS[kind]
        return partial(_logger(entry.logger).isEnabledFor, entry.level)

    def write(self, observation: Observation) -> None:
        """Log an observation if there is an entry for its kind."""
        entry = self._entry(observation)
        if entry is None:
            return
        logger = _logger(entry.logger)
        if not logger.isEnabledFor(entry.level):
            return
        found = {name: get(observation) for name, get in entry.fields.items()}
        error = _cause(observation)
        record = logger.makeRecord(
            logger.name,
            entry.level,
            *logger.findCaller()[:2],
            entry.text,
            tuple(found.values()),
            None if error is None else (type(error), error, error.__traceback__),
            extra={"bridle_event": entry.event, "session_id": observation.session_id, **found},
        )
        if error is not None and (texts := texts_of(error)) is not None:
            record.exc_text = texts.traceback  # or the handler makes it here, on the event loop
        logger.handle(record)

    def _entry(self, observation: Observation) -> Entry | None:
        if isinstance(observation, Happened):
            event = observation.event
            if isinstance(event, SdkWarning):
                return _warning(event.kind)._replace(logger=self._logger)
            entry = _HAPPENINGS[type(event)]
            return entry._replace(logger=self._logger, level=self._level(event, entry))
        if isinstance(observation, OperationEnded) and observation.failure not in (None, CANCELLED):
            return _OPERATION_FAILED
        return _EVENTS.get(type(observation))

    def _level(self, event: SessionEvent, entry: Entry) -> int:
        if isinstance(event, SessionReady):
            self._has_started = True
        elif isinstance(event, SessionFailed) and not self._has_started:
            return logging.DEBUG  # the caller that starts the session gets the error
        elif isinstance(event, ApiRetry) and event.waited + event.delay > LONG_RETRY:
            return logging.WARNING
        return entry.level

    def write_failure(self, error: BaseException) -> None:
        """Log that the telemetry raised an exception."""
        _BRIDLE.error(
            "the telemetry raised; it goes on being told, and this is not logged again",
            exc_info=error,
            extra={"bridle_event": _TELEMETRY_FAILED},
        )


# ---------------------------------------------------------------- warnings

# The details of these contain text of the CLI, or of the user, and may quote anything.
_WITHHELD = frozenset(
    {
        WarningKind.INIT_FAILED_LATE,
        WarningKind.RESULT_IGNORED,
        WarningKind.VERSION_INCONCLUSIVE,
    }
)


def _warning(kind: WarningKind) -> Entry:
    return Entry(kind.value, SESSION, LEVELS[kind.level], f"{kind.value}: %s", {"detail": _detail})


def _detail(observation: Any) -> str:
    """Return the part of a warning that may be logged. ``on_warning`` gets the whole detail."""
    warning: SdkWarning = observation.event
    if warning.kind in _WITHHELD:
        return warning.kind.meaning
    return warning.detail or warning.kind.meaning


def _cause(observation: Observation) -> BaseException | None:
    """Return the exception that a warning is about, if the application raised one."""
    event = observation.event if isinstance(observation, Happened) else None
    return event.error if isinstance(event, SdkWarning) else None
