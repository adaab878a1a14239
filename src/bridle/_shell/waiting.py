"""Waiting for a moment of the calendar, which is not the clock of the event loop.

Waits are made of short ones: a machine that slept, or a clock that was set, is noticed within a
minute.
"""

from __future__ import annotations

import asyncio
import time

_STEP = 60.0


async def until(moment: float) -> None:
    """Wait until that moment of unix time."""
    while (left := moment - time.time()) > 0:
        await asyncio.sleep(min(left, _STEP))


def until_sync(moment: float) -> None:
    """Block until that moment of unix time."""
    while (left := moment - time.time()) > 0:
        time.sleep(min(left, _STEP))


def in_seconds(seconds: float) -> float:
    """The moment that many seconds from now."""
    return time.time() + seconds
