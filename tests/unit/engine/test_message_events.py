"""Messages that are also events of the session."""

from __future__ import annotations

import pytest
from tests.support import cli

from bridle._engine.message_events import EVENT_MAKERS, MessageEvents
from bridle._engine.wire.codec import decode_line
from bridle.events import ApiRetry, RateLimited, SessionEvent
from bridle.messages import InitMessage

RATE_LIMIT = {
    "status": "allowed_warning",
    "resetsAt": 1700000000,
    "rateLimitType": "five_hour",
    "utilization": 0.9,
    "surpassedThreshold": 0.8,
    "overageStatus": "rejected",
    "isUsingOverage": True,
}
RETRY = {"attempt": 2, "max_retries": 10, "retry_delay_ms": 1500.5, "error_status": 529}


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            cli.line(type="rate_limit_event", rate_limit_info=RATE_LIMIT),
            RateLimited(
                status="allowed_warning",
                resets_at=1700000000,
                limit_type="five_hour",
                utilization=0.9,
                surpassed_threshold=0.8,
                overage_status="rejected",
                using_overage=True,
            ),
        ),
        (cli.line(type="rate_limit_event"), RateLimited(status="")),
        (
            cli.system("api_retry", **RETRY, error="overloaded"),
            ApiRetry(attempt=2, max_retries=10, delay=1.5005, error_status=529, error="overloaded"),
        ),
        (
            cli.system("api_retry", **{**RETRY, "error_status": None}),
            ApiRetry(attempt=2, max_retries=10, delay=1.5005),
        ),
    ],
    ids=["rate limit", "empty rate limit", "retry", "retry without a status"],
)
def test_the_event_says_what_the_message_said(line: bytes, event: SessionEvent) -> None:
    (message,) = cli.decoded(line)
    assert EVENT_MAKERS[type(message)](message) == event


def test_a_retry_tells_how_long_its_request_has_been_failing() -> None:
    news = MessageEvents()

    def waited(attempt: int, now: float) -> float:
        (message,) = cli.decoded(cli.system("api_retry", **RETRY | {"attempt": attempt}))
        event = news.event_of(message, now)
        assert isinstance(event, ApiRetry)
        return event.waited

    assert [waited(1, 10.0), waited(2, 10.5), waited(3, 12.0)] == [0.0, 0.5, 2.0]
    assert [waited(1, 50.0), waited(2, 51.0)] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("wanted", "offered", "missing"),
    [
        ((), ["Read"], ""),
        (("Read", "Agent"), ["Read", "Task"], ""),
        (("Read",), None, ""),
        (
            ("Bahs",),
            [],
            "'Bahs' in this session. It has: none.",
        ),
        (
            ("LSP", "Read", "Glob"),
            ["Read", "Edit"],
            "'LSP', 'Glob' in this session. It has: Read, Edit.",
        ),
    ],
)
def test_tools_that_the_cli_does_not_have_are_named_once(
    wanted: tuple[str, ...], offered: list[str] | None, missing: str
) -> None:
    fields = {} if offered is None else {"tools": offered}
    message = decode_line(cli.system("init", **fields))
    assert isinstance(message, InitMessage)
    events = MessageEvents(wanted)
    expected = missing and f"CliOptions.tools: the CLI has no tool {missing}"
    assert (events.missing_tools(message), events.missing_tools(message)) == (expected, "")
