"""Messages that are also news about the session: what its events say of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridle.events import ApiRetry, RateLimited, SessionEvent
from bridle.messages import Message, RateLimitEvent
from bridle.system import ApiRetryMessage


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


def _api_retry(message: ApiRetryMessage) -> ApiRetry:
    return ApiRetry(
        attempt=message.attempt,
        max_retries=message.max_retries,
        delay=message.retry_delay_ms / 1000,
        error_status=message.error_status,
        error=message.error or "",
    )


NEWS: dict[type[Message], Callable[[Any], SessionEvent]] = {
    RateLimitEvent: _rate_limited,
    ApiRetryMessage: _api_retry,
}
"""The event each of these kinds gives rise to, beside being delivered."""
