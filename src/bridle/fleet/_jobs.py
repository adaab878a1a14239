"""A run that a worker has: its directory, its CLI, its end, and what it has cost so far."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import structs

from bridle._spi import AgentPlan, OneTurn, StoredOutcome
from bridle.errors import BridleError, OptionsError, StoreError
from bridle.fleet._costs import COST_UNKNOWN, noted_cost
from bridle.fleet._decisions import Crashes, Segment, is_undecided
from bridle.fleet._queue.claims import crashes_of
from bridle.fleet._waiting import in_thread

if TYPE_CHECKING:
    from bridle.fleet._queue.dbos_queue import Queue

PREPARE = "prepare"
"""The option that errors of the user's function `prepare` name."""

Prepare: TypeAlias = Callable[[Segment], Awaitable[Any]]
"""Calls this function for a segment."""

log = logging.getLogger("bridle.fleet")

_LONGEST_PAUSE = 600.0
"""Seconds before a decision that had no effect is tried again, at most."""

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
        #: The workers that died while they had it.
        self.crashes = Crashes()
        self._task = task
        self._turn: OneTurn | None = None
        # How often the decision of the segment had no effect.
        self._undecided = 0
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
        # The usage when the CLI reported these dollars.
        self._reported: object = None

    def read_notes(self, notes: Mapping[str, Any]) -> None:
        """Read what earlier workers have written down about the segment."""
        self.lost_usd = noted_cost(notes) or 0.0
        self.crashes = crashes_of(notes)
        self._undecided = notes.get("undecided", 0)

    async def leave_if_undecided(
        self,
        outcome: StoredOutcome,
        notes: Mapping[str, Any],
        worker: str,
        queue: Queue,
        write: Callable[..., Awaitable[object]],
    ) -> None:
        """Put the run off if this worker could not carry out the decision of its segment.

        ``notes`` are those about its cost. ``write`` calls a method of the queue. Then raise
        CancelledError, which leaves the run to another worker.
        """
        if not is_undecided(self.segment, outcome):
            return
        reason = f"the decision had no effect on {worker}: {outcome.detail or outcome.reason}"
        log.warning("run %s: %s", self.segment.run_id, reason)
        cost = {"lost_usd": noted_cost(notes) or self.lost_usd}
        why = {"delayed": reason, "undecided": self._undecided + 1}
        pause = min(2.0 ** min(self._undecided, 20), _LONGEST_PAUSE)
        await write(queue.postpone, self.segment, worker, pause, cost | why)
        raise asyncio.CancelledError

    def show(self, turn: OneTurn) -> None:
        """Take note of the session of each new CLI."""
        if turn is not self._turn:
            # A newer CLI continues the total of the conversation that it resumes.
            is_new = self._turn is None and self.lost_usd == 0.0 and self.segment.number == 0
            self._base = 0.0 if is_new else None
            self._earlier, self._current = self._earlier + self._current, 0.0
            self._seen = self._reported = None
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

    async def let_go(self, queue: Queue, worker: str) -> None:
        """Let a run that was cancelled count for the limits no more: its CLI has ended."""
        with contextlib.suppress(StoreError):  # after some seconds it does not count anyway
            await in_thread(queue.let_go, self.segment.id, worker)

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
        if turn is None or not turn.session.alive:
            return None
        usage = turn.session.usage
        if usage == self._seen:
            return None
        self._seen = usage
        try:
            report = await turn.session.info.usage(skip_behaviors=True, timeout=_REPORTING)
        except BridleError:
            return None
        if turn is not self._turn:
            return None
        total = report.session.total_cost_usd
        if self._base is None:
            self._base = total
        self._current = max(total - self._base, 0.0)
        self._reported = usage
        return self._earlier + self._current

    @property
    def has_unreported_calls(self) -> bool:
        """Return whether the CLI has not reported its cost since the last model call."""
        usage = None if self._turn is None else self._turn.session.usage
        return usage is not None and bool(usage.models) and usage != self._reported

    def unknown_cost(self) -> dict[str, Any]:
        """Return the attributes of a segment whose cost is unknown, with the part that is known."""
        known = {"lost_usd": self.lost_usd, "running_usd": self._earlier + self._current}
        return {COST_UNKNOWN: True, **known}

    def with_cost(self, outcome: StoredOutcome) -> tuple[StoredOutcome, dict[str, Any]]:
        """Return the outcome with the cost in all workers, and the attributes that say it."""
        cost = outcome.cost_usd
        if cost is None and outcome.model_calls:  # the CLI exited before its result
            if self._reported is None or self.has_unreported_calls:
                return outcome, self.unknown_cost()
            cost = self._earlier + self._current
        if cost is None and not self.lost_usd:
            return outcome, {}
        cost = self.lost_usd + (cost or 0.0)
        return structs.replace(outcome, cost_usd=cost), {"cost_usd": cost}


async def prepared(plan: AgentPlan, prepare: Prepare | None, segment: Segment) -> AgentPlan:
    """Return the plan of the agent, with the working directory of a run.

    Raises:
        OptionsError: `prepare` failed, or did not return a directory.
        StoreError: the database failed.
    """
    if prepare is None:
        return plan
    try:
        directory: Any = await prepare(segment)
    except StoreError:
        raise
    except Exception as error:
        log.exception("prepare failed for the run %s", segment.run_id)
        raise OptionsError(PREPARE, f"raised {type(error).__name__}") from error
    if directory is None:
        return plan
    try:
        path = os.path.abspath(os.fsdecode(directory))
    except TypeError:
        problem = f"must return a path or None, got {type(directory).__name__}"
        raise OptionsError(PREPARE, problem) from None
    if not await in_thread(os.path.isdir, path):
        raise OptionsError(PREPARE, f"has returned a directory that does not exist: {path}")
    return plan.in_directory(path)
