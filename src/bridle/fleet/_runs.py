"""A run of a fleet, seen from any process: its state, its outcome, and what can be done with it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from bridle._core.fleet_runs import (
    RunStatus,
    Segment,
    decision_to_json,
    is_deferred,
    segment_id,
)
from bridle._core.journal import StoredOutcome, restore_outcome
from bridle._message import Message
from bridle._raw_line import JsonObject
from bridle._shell.resuming import decision_about
from bridle._shell.typed_output import OutputType
from bridle._store import SessionStore
from bridle.approvals import PendingApproval
from bridle.errors import SessionNotFoundError, StoreError, UsageError
from bridle.fleet._dbos import Queue, Row
from bridle.fleet._worker import in_thread
from bridle.outcomes import Outcome, OutcomeReason
from bridle.permissions import Answers, PermissionResult
from bridle.sessions import read_messages

_POLL = 0.5
"""Seconds between two looks at a run."""

_LOST = 120.0
"""Seconds for which a program that waits for a run puts up with a database that fails."""


class RunInfo(Struct, frozen=True, kw_only=True):
    """What is known of a run at one moment."""

    id: str
    status: RunStatus
    #: Text, or a list of content blocks as JSON.
    prompt: str | list[JsonObject]
    key: str | None = None
    tenant: str | None = None
    priority: int = 0
    metadata: Mapping[str, Any] = {}
    #: Unix times in seconds. A time is None if it has not come.
    submitted_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    #: When a delayed run goes into the queue.
    delayed_until: float | None = None
    #: The worker that has the run, or had it last: machine, process id and a random word.
    worker: str | None = None
    #: How often a worker has started the run or its last segment. More than 1 after a take-over.
    starts: int = 0
    #: Cost in US dollars as far as the CLI reported it. None before there is an outcome.
    cost_usd: float | None = None
    #: The reason of the outcome. None before there is one.
    reason: OutcomeReason | None = None
    #: The tool call that waits for a decision, if the status is ``waiting``.
    pending: PendingApproval | None = None


class RunChanged(Struct, frozen=True):
    """The status of a run has changed, or another worker has it."""

    status: RunStatus
    worker: str | None


class RunMessage(Struct, frozen=True):
    """A message of the conversation of a run."""

    message: Message


class RunEnded(Struct, frozen=True):
    """A run has ended. The last event."""

    outcome: Outcome[Any]


RunEvent: TypeAlias = RunChanged | RunMessage | RunEnded


def status_of(row: Row) -> RunStatus:
    """Return the status of a run by its last segment."""
    if row.segment is not None and row.segment.kind == "cancel":
        return RunStatus.CANCELLED
    match row.status:
        case "ENQUEUED":
            return RunStatus.QUEUED
        case "DELAYED":
            return RunStatus.DELAYED
        case "PENDING":
            return RunStatus.RUNNING
        case "CANCELLED":
            return RunStatus.CANCELLED
        case "SUCCESS":
            state = str(row.attributes.get("state"))
            # A segment that puts its run off ends after the next one is in the queue.
            return RunStatus.DELAYED if state == "later" else RunStatus(state)
        case _:
            return RunStatus.FAILED


def info_of(row: Row, first: Row) -> RunInfo:
    """Return what is known of a run by its last and its first segment."""
    segment = row.segment
    assert segment is not None, "the argument of the workflow was loaded"
    outcome = None if row.result is None else row.result.outcome
    status = status_of(row)
    return RunInfo(
        id=segment.run_id,
        status=status,
        prompt=segment.prompt,
        key=segment.key,
        tenant=segment.tenant,
        priority=segment.priority,
        metadata=segment.metadata,
        submitted_at=first.created_at,
        started_at=row.started_at,
        ended_at=row.completed_at if status.is_final else None,
        delayed_until=row.delayed_until if status is RunStatus.DELAYED else None,
        worker=row.executor,
        starts=row.starts,
        cost_usd=_cost(segment, outcome),
        reason=None if outcome is None else outcome.reason,
        pending=outcome.pending if outcome is not None and status is RunStatus.WAITING else None,
    )


def _cost(segment: Segment, outcome: StoredOutcome | None) -> float | None:
    """Return what a run has cost, up to a segment."""
    own = None if outcome is None else outcome.cost_usd
    return segment.spent + (own or 0.0) if segment.spent or own is not None else None


def _spent(row: Row) -> float:
    assert row.segment is not None, "the argument of the workflow was loaded"
    return _cost(row.segment, None if row.result is None else row.result.outcome) or 0.0


class Run:
    """A run of a fleet. Get it from `Fleet.submit`, `Fleet.run` or `Fleet.runs`.

    The methods work in any process that can reach the database.
    """

    def __init__(
        self,
        run_id: str,
        queue: Any,
        store: SessionStore,
        output_type: Any = None,
        info: RunInfo | None = None,
    ) -> None:
        #: A UUID. It is also the id of the session in the store.
        self.id = run_id
        #: What was known when `Fleet.runs` read the run. None if it did not.
        self.listed = info
        self._queue: Queue = queue
        self._store = store
        self._output_type = output_type

    def __repr__(self) -> str:
        return f"Run({self.id!r})"

    # -- reading -----------------------------------------------------------------------------------

    async def info(self) -> RunInfo:
        """Return what is known of the run now.

        Raises:
            UsageError: the fleet has no such run.
            StoreError: the database failed.
        """
        row, first = await self._rows()
        return info_of(row, first)

    async def status(self) -> RunStatus:
        """Return the status of the run. Raises as `info` does."""
        return (await self.info()).status

    async def outcome(self, timeout: float | None = None) -> Outcome[Any]:
        """Wait until the run has ended, and return its outcome.

        A run that waits for a decision has not ended. A cancelled run has the outcome ``stopped``.
        If the database fails, this method waits up to two minutes for it.

        Args:
            timeout: seconds after which TimeoutError is raised. None waits for ever.

        Raises:
            UsageError: the fleet has no such run.
            StoreError: the database failed.

        Cancellation: ends the wait. The run goes on.
        """
        async with asyncio.timeout(timeout):
            while True:
                row = await self._patient_row()
                if status_of(row).is_final:
                    return self._outcome(row)
                await asyncio.sleep(_POLL)

    async def messages(self) -> list[Message]:
        """Return the messages of the conversation so far."""
        try:
            return await read_messages(self.id, store=self._store)
        except SessionNotFoundError:
            return []

    async def events(self) -> AsyncIterator[RunEvent]:
        """Follow the run: yield messages and changes of its status until it has ended.

        The first events are the present status and the messages so far. A message comes when the
        worker has stored it, about a second after the CLI has sent it.

        Raises:
            UsageError: the fleet has no such run.
            StoreError: the database failed.
        """
        seen: set[str] = set()
        last: RunChanged | None = None
        while True:
            row = await self._patient_row()
            status = status_of(row)
            changed = RunChanged(status, row.executor)
            if changed != last:
                yield changed
                last = changed
            for number, message in enumerate(await self.messages()):
                uuid = getattr(message, "uuid", None) or f"#{number}"
                if uuid not in seen:
                    seen.add(uuid)
                    yield RunMessage(message)
            if status.is_final:
                yield RunEnded(self._outcome(row))
                return
            await asyncio.sleep(_POLL)

    # -- changing ----------------------------------------------------------------------------------

    async def cancel(self) -> None:
        """Cancel the run. Does nothing if it has ended.

        A worker that has the run ends its CLI within a few seconds.

        Raises:
            UsageError: the fleet has no such run.
            StoreError: the database failed.
        """
        while True:
            row, _ = await self._rows()
            assert row.segment is not None, "the argument of the workflow was loaded"
            status = status_of(row)
            if status.is_final:
                return
            if status is not RunStatus.WAITING:
                await in_thread(self._queue.cancel, row.id)
                # It may have ended, or been put off, in the meantime.
                continue
            await self._add_next(row.segment, "cancel", _spent(row))

    async def approve(self, decision: PermissionResult | Answers) -> None:
        """Decide about the tool call that the run waits for, and put the run into the queue.

        If two programs decide at the same time, the first decision counts.

        Args:
            decision: ``Allow()``, ``Deny(reason)`` or ``Edit(new_input)``.

        Raises:
            OptionsError: it is not a decision about this call.
            UsageError: the run does not wait for a decision, or another program was faster.
            StoreError: the database failed.
        """
        row, _ = await self._rows()
        pending = (
            None
            if row.result is None or row.result.outcome is None
            else (row.result.outcome.pending)
        )
        if row.segment is None or status_of(row) is not RunStatus.WAITING or pending is None:
            what = f"The run {self.id} does not wait for a decision: it is {status_of(row)}."
            raise UsageError(what, fix="Call run.status() first.")
        decision_about(pending, decision)
        chosen = decision_to_json(decision)
        await self._add_next(row.segment, "decide", _spent(row), pending, chosen)
        found, _ = await self._rows(row.segment.number + 1)
        if found.segment is None or found.segment.decision != chosen:
            what = f"Another program has decided about the run {self.id} before."
            raise UsageError(what, fix="Call run.status() to see what became of it.")

    async def _add_next(
        self,
        segment: Segment,
        kind: Any,
        spent: float,
        pending: PendingApproval | None = None,
        decision: JsonObject | None = None,
    ) -> None:
        following = msgspec.structs.replace(
            segment,
            number=segment.number + 1,
            kind=kind,
            pending=pending,
            decision=decision,
            spent=spent,
        )
        await in_thread(self._queue.add, following)

    # -- rows --------------------------------------------------------------------------------------

    async def _rows(self, number: int | None = None) -> tuple[Row, Row]:
        """Return the last segment, or that with a number, and the first one."""
        await in_thread(self._queue.open)
        found: dict[str, Row] = {}
        start = 0
        while True:
            ids = [segment_id(self.id, one) for one in range(start, start + _STEP)]
            some = await in_thread(self._queue.rows, ids)
            found |= some
            if len(some) < _STEP:
                break
            start += _STEP
        if self.id not in found:
            what = f"The fleet has no run {self.id!r:.80}."
            raise UsageError(what, fix="Check the id, the database and the name of the fleet.")
        last = len(found) - 1 if number is None else number
        return found[segment_id(self.id, last)], found[self.id]

    async def _patient_row(self) -> Row:
        """Return the last segment. Wait while the database fails."""
        end = time.monotonic() + _LOST
        while True:
            with contextlib.suppress(StoreError):
                return (await self._rows())[0]
            if time.monotonic() > end:
                return (await self._rows())[0]
            await asyncio.sleep(_POLL)

    def _outcome(self, row: Row) -> Outcome[Any]:
        stored = None if row.result is None else row.result.outcome
        if stored is None or is_deferred_result(row):
            if status_of(row) is RunStatus.CANCELLED:
                detail = "the run was cancelled"
            else:
                detail = f"the worker failed; the run was started {row.starts} times"
            return Outcome(reason=OutcomeReason.STOPPED, detail=detail, session_id=self.id)
        outcome = restore_outcome(stored)
        if self._output_type is not None:
            outcome = OutputType(self._output_type).convert_stored(outcome)
        return outcome


def is_deferred_result(row: Row) -> bool:
    """Return whether the result of a segment is that a tool call waits."""
    return row.result is not None and is_deferred(row.result)


_STEP = 4
"""How many segments are read at a time."""
