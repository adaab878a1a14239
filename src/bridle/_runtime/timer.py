"""Waiting until a point in unix time, for example until a rate limit resets.

The event loop's clock stops while the machine sleeps and does not follow changes of the system
time. So a long wait consists of short ones, and each compares the system time again.
"""

from __future__ import annotations

import asyncio
import time

_STEP = 60.0
"""Seconds between two checks of the system time."""


async def until(moment: float) -> None:
    """Wait until this unix time. Return at once if it has passed."""
    while (left := moment - time.time()) > 0:
        await asyncio.sleep(min(left, _STEP))


def until_sync(moment: float) -> None:
    """Block until this unix time. Return at once if it has passed."""
    while (left := moment - time.time()) > 0:
        time.sleep(min(left, _STEP))


def in_seconds(seconds: float) -> float:
    """Return the unix time that many seconds from now."""
    return time.time() + seconds
