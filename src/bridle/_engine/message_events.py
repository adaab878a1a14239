"""Make session events from messages about rate limits, API retries and missing tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from bridle.events import ApiRetry, RateLimited, SessionEvent
from bridle.messages import ApiRetryMessage, InitMessage, Message, RateLimitEvent
from bridle.tools._cli_tools import names_of


def _rate_limited(message: RateLimitEvent) -> RateLimited:
    info = message.rate_limit_info
    return RateLimited(
        status=info.status,
        resets_at=info.resets_at,
        limit_type=info.rate_limit_type,
        utilization=info.utilization,
        surpassed_threshold=info.surpassed_threshold,
        overage_status=info.overage_status,
        using_overage=info.is_using_overage,
    )


def api_retry(message: ApiRetryMessage) -> ApiRetry:
    """Return the event for a message about a retry."""
    return ApiRetry(
        attempt=message.attempt,
        max_retries=message.max_retries,
        delay=message.retry_delay_ms / 1000,
        error_status=message.error_status,
        error=message.error or "",
    )


EVENT_MAKERS: dict[type[Message], Callable[[Any], SessionEvent]] = {
    RateLimitEvent: _rate_limited,
    ApiRetryMessage: api_retry,
}
"""Makes the event for each of these kinds. The messages are delivered as well."""


class MessageEvents:
    """Make the events of one session or query. ``tools`` are those that its options ask for."""

    def __init__(self, tools: tuple[str, ...] = ()) -> None:
        self._failing_since = 0.0
        self._wanted_tools = tools

    def missing_tools(self, message: InitMessage) -> str:
        """Return a text about the tools that the CLI does not have, the first time only."""
        wanted, self._wanted_tools = self._wanted_tools, ()
        if not wanted or "tools" not in message.raw:
            return ""
        missing = [name for name in wanted if not {*names_of(name)} & {*message.tools}]
        if not missing:
            return ""
        offered = ", ".join(message.tools) or "none"
        names = ", ".join(map(repr, missing))
        return f"CliOptions.tools: the CLI has no tool {names} in this session. It has: {offered}."

    def event_of(self, message: Message, now: float) -> SessionEvent:
        """Return the event for a message of a kind in ``EVENT_MAKERS``.

        A retry event says how long the API request has been failing, counted from its first retry.
        """
        event = EVENT_MAKERS[type(message)](message)
        if not isinstance(event, ApiRetry):
            return event
        if event.attempt <= 1:
            self._failing_since = now
        return structs.replace(event, waited=now - self._failing_since)
