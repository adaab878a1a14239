"""A run that a worker has: its CLI, its end, and what it has cost so far."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from bridle._core.fleet_runs import Segment
from bridle._doors.run import OneTurn
from bridle.errors import BridleError

_REPORTING = 5.0
"""Seconds that a CLI has to report its cost."""


class Job:
    """A segment that this worker runs.

    Args:
        segment: the segment.
        task: runs it.
        lost_usd: US dollars that it has cost in workers that lost it.
    """

    def __init__(self, segment: Segment, task: asyncio.Task[Any], lost_usd: float = 0.0) -> None:
        self.segment = segment
        self.lost_usd = lost_usd
        self._task = task
        self._turn: OneTurn | None = None
        #: Whether the run belongs to this worker no more.
        self.is_lost = False
        #: Whether the run was cancelled.
        self.is_cancelled = False
        #: Held while something is written about the run, and whether the last of it was written.
        self.noting = asyncio.Lock()
        self.is_noted = False
        # Dollars: of processes that have ended, and of the last one.
        self._earlier = 0.0
        self._current = 0.0
        # The CLI's total when the last process began. None before it is known.
        self._base: float | None = None
        self._seen: object = None

    def show(self, turn: OneTurn) -> None:
        """Take note of the session of each new CLI."""
        if turn is not self._turn:
            # A newer CLI continues the total of the conversation that it resumes.
            is_new = self._turn is None and self.lost_usd == 0.0 and self.segment.number == 0
            self._base = 0.0 if is_new else None
            self._earlier, self._current = self._earlier + self._current, 0.0
            self._seen = None
        self._turn = turn
        if self.is_lost:
            turn.kill()

    def kill(self) -> None:
        """Kill the CLI now. Safe from any thread."""
        self.is_lost = True
        turn = self._turn
        if turn is not None:
            turn.kill()

    def cancel(self) -> None:
        """End the run, in the event loop of the worker."""
        self._task.cancel()

    async def interrupt(self) -> None:
        """End a run that was cancelled. The CLI reports what an interrupted turn has cost."""
        with contextlib.suppress(BridleError, TimeoutError):
            async with asyncio.timeout(_REPORTING):
                if self._turn is not None and self._turn.turn is not None:
                    await self._turn.turn.interrupt()
                    await asyncio.wait([self._task])
        self.cancel()

    async def running_usd(self) -> float | None:
        """Return what the run has cost in this worker so far. None if nothing new is known.

        Messages carry no cost, so the CLI is asked after each model call. It does not count the
        call that is in progress.
        """
        turn = self._turn
        if turn is None or not turn.alive:
            return None
        usage = turn.usage
        if usage == self._seen:
            return None
        self._seen = usage
        try:
            report = await turn.info.usage(skip_behaviors=True, timeout=_REPORTING)
        except BridleError:
            return None
        if turn is not self._turn:
            return None
        total = report.session.total_cost_usd
        if self._base is None:
            self._base = total
        self._current = max(total - self._base, 0.0)
        return self._earlier + self._current
