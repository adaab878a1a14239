"""A run of a fleet, seen from any process: its state, its outcome, and what can be done with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

import msgspec
from msgspec import Struct

from bridle._spi import OutputType, SegmentRun, StoredMessages
from bridle.approvals import PendingApproval
from bridle.errors import SessionNotFoundError, StoreError, UsageError
from bridle.fleet._costs import noted_cost
from bridle.fleet._decisions import (
    RunStatus,
    Segment,
    segment_id,
    state_of,
)
from bridle.fleet._queue.claims import submission_time
from bridle.fleet._queue.dbos_queue import Queue
from bridle.fleet._queue.rows import Row
from bridle.fleet._store import FleetStore
from bridle.fleet._waiting import in_thread
from bridle.messages import JsonObject, Message
from bridle.outcomes import Outcome, OutcomeReason
from bridle.permissions import Answers, PermissionResult
from bridle.sessions import read_messages

_POLL = 0.5
"""Seconds between two looks at a run."""

_SUBMITTED = "it was submitted with a delay"
"""Why a run is delayed that no worker has put off."""

_LOST = 120.0
"""Seconds for which a program that waits for a run puts up with a database that fails."""


class RunInfo(Struct, frozen=True, kw_only=True):
    """What is known of a run at one moment."""

    id: str
    #: The session with the conversation, in `Fleet.store`.
    session_id: str
    status: RunStatus
    #: Text, or a list of content blocks as JSON.
    prompt: str | list[JsonObject]
    #: True in `Run.listed` if ``prompt`` is the beginning of a long prompt: up to 1,000 characters
    #: of its texts. `Run.info` returns the whole prompt.
    is_cut: bool = False
    key: str | None = None
    tenant: str | None = None
    priority: int = 0
    metadata: Mapping[str, Any] = {}
    #: Unix times in seconds. A time is None if it has not come.
    submitted_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    #: When a delayed run goes into the queue, and why it does not before.
    delayed_until: float | None = None
    delay_reason: str | None = None
    #: The worker that has the run, or had it last: machine, process id and a random word.
    worker: str | None = None
    #: How often a worker has started the run or its last segment. More than 1 after a take-over.
    starts: int = 0
    #: Cost in US dollars as far as the CLI reported it, also while the run is in progress. After a
    #: take-over it includes the model calls that the dead worker wrote down. None if there is none.
    cost_usd: float | None = None
    #: The reason of the outcome, and what explains it. None before there is one.
    reason: OutcomeReason | None = None
    detail: str | None = None
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
            return RunStatus.FAILED if row.result is None else state_of(row.result.outcome)
        case _:
            return RunStatus.FAILED


def info_of(row: Row, first: Row) -> RunInfo:
    """Return what is known of a run by its last and its first segment."""
    segment = _segment_of(row)
    outcome = None if row.result is None else row.result.outcome
    status = status_of(row)
    reason = None if outcome is None else outcome.reason
    detail = None if outcome is None else outcome.detail
    if status.is_final and not _has_outcome(row):
        reason, detail = OutcomeReason.STOPPED, _why_stopped(row)
    is_delayed = status is RunStatus.DELAYED
    return RunInfo(
        id=segment.run_id,
        session_id=segment.session_id,
        status=status,
        prompt=segment.prompt,
        is_cut=row.is_cut,
        key=segment.key,
        tenant=segment.tenant,
        priority=segment.priority,
        metadata=segment.metadata,
        submitted_at=first.created_at,
        started_at=row.started_at,
        ended_at=row.completed_at if status.is_final else None,
        delayed_until=row.delayed_until if is_delayed else None,
        delay_reason=row.attributes.get("delayed", _SUBMITTED) if is_delayed else None,
        worker=row.executor,
        starts=row.starts,
        cost_usd=_cost(row),
        reason=reason,
        detail=detail or None,
        pending=outcome.pending if outcome is not None and status is RunStatus.WAITING else None,
    )


def _segment_of(row: Row) -> Segment:
    if row.segment is None:
        raise StoreError("Fleet", "read", f"the run {row.id} cannot be decoded")
    return row.segment


def _cost(row: Row) -> float | None:
    """Return what a run has cost, up to a segment. Cancelled segments have no outcome."""
    spent = _segment_of(row).spent
    own = noted_cost(row.attributes)
    return spent + (own or 0.0) if spent or own is not None else None


class Run:
    """A run of a fleet. Get it from `Fleet.submit`, `Fleet.run` or `Fleet.runs`.

    The methods work in any process that can reach the database.
    """

    def __init__(
        self,
        run_id: str,
        queue: Any,
        store: Any,
        output_type: Any = None,
    ) -> None:
        #: A UUID. It is computed from the key, if there is one.
        self.id = run_id
        #: What was known when `Fleet.runs` read the run. None if it did not.
        self.listed: RunInfo | None = None
        self._queue: Queue = queue
        self._store: FleetStore = store
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
        return (await read_head(self._queue, self.id)).status

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
        watch = _Watch(self._queue, self.id)
        async with asyncio.timeout(timeout):
            while True:
                row = await watch.look()
                if status_of(row).is_final:
                    return self._outcome(row)
                await asyncio.sleep(_POLL)

    async def messages(self) -> list[Message]:
        """Return the messages of the conversation so far. Raises as `info` does."""
        row = (await _read_rows(self._queue, self.id, heads=True))[-1]
        try:
            return await read_messages(_segment_of(row).session_id, store=self._store)
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
        watch, messages = _Watch(self._queue, self.id), StoredMessages(self._store)
        last: RunChanged | None = None
        while True:
            row = await watch.look()
            status = status_of(row)
            changed = RunChanged(status, row.executor)
            if changed != last:
                yield changed
                last = changed
            for message in await messages.read(_segment_of(row).session_id):
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
            status = status_of(row)
            if status.is_final:
                return
            if status is not RunStatus.WAITING:
                await in_thread(self._queue.cancel, row.id)
                continue  # it may have ended in the meantime
            await self._add_next(row, "cancel")

    async def approve(
        self, decision: PermissionResult | Answers, *, pending: PendingApproval | None = None
    ) -> None:
        """Decide about the tool call that the run waits for, and put the run into the queue.

        If several programs decide, exactly one decision counts: the first one.

        Args:
            decision: ``Allow()``, ``Deny(reason)`` or ``Edit(new_input)``.
            pending: the call that the person saw, from `info`. Without it, the decision is about
                the call that waits now.

        Raises:
            OptionsError: it is not a decision about this call, or ``pending`` was changed.
            UsageError: the run does not wait for a decision, or waits for one about another call
                than ``pending``, or another program was faster.
            StoreError: the database failed.
        """
        row, _ = await self._rows()
        outcome = None if row.result is None else row.result.outcome
        waiting = None if outcome is None else outcome.pending
        if row.segment is None or status_of(row) is not RunStatus.WAITING or waiting is None:
            what = f"The run {self.id} does not wait for a decision: it is {status_of(row)}."
            raise UsageError(what, fix="Call run.status() first.")
        stored = SegmentRun.decision_to_json(waiting, decision, pending)
        own = str(uuid4())
        await self._add_next(
            row,
            "decide",
            pending=waiting,
            decision=stored,
            decision_id=own,
        )
        found, _ = await self._rows(row.segment.number + 1)
        if found.segment is None or found.segment.decision_id != own:
            what = f"Another program has decided about the run {self.id} before."
            raise UsageError(what, fix="Call run.status() to see what became of it.")

    async def _add_next(
        self,
        row: Row,
        kind: Any,
        *,
        pending: PendingApproval | None = None,
        decision: JsonObject | None = None,
        decision_id: str | None = None,
    ) -> None:
        segment = _segment_of(row)
        following = msgspec.structs.replace(
            segment,
            number=segment.number + 1,
            kind=kind,
            pending=pending,
            decision=decision,
            decision_id=decision_id,
            spent=_cost(row) or 0.0,
            submitted_at=submission_time(),
        )
        await in_thread(self._queue.add, following)

    # -- rows --------------------------------------------------------------------------------------

    async def _rows(self, number: int = -1) -> tuple[Row, Row]:
        """Return the last segment, or that with a number, and the first one."""
        found = await _read_rows(self._queue, self.id)
        return found[number], found[0]

    def _outcome(self, row: Row) -> Outcome[Any]:
        stored = None if row.result is None else row.result.outcome
        if stored is None or not _has_outcome(row):
            detail = _why_stopped(row)
            session_id = None if row.segment is None else row.segment.session_id
            return Outcome(reason=OutcomeReason.STOPPED, detail=detail, session_id=session_id)
        outcome = stored.restored()
        if self._output_type is not None:
            outcome = OutputType(self._output_type).convert_stored(outcome)
        return outcome


async def read_head(queue: Queue, run_id: str) -> RunInfo:
    """Return what `Fleet.runs` tells of a run: its prompt is cut. Raises as `Run.info` does."""
    found = await _read_rows(queue, run_id, heads=True)
    return info_of(found[-1], found[0])


async def _read_rows(queue: Queue, run_id: str, *, heads: bool = False) -> list[Row]:
    """Return the segments of a run in their order. With ``heads``, long prompts are cut."""
    found: list[Row] = []
    while True:
        ids = [segment_id(run_id, one) for one in range(len(found), len(found) + _STEP)]
        some = await in_thread(partial(queue.rows, ids, heads=heads))
        found += [some[one] for one in ids if one in some]
        if len(some) < _STEP:
            break
    if not found:
        what = f"The fleet has no run {run_id!r:.80}."
        raise UsageError(what, fix="Check the id, the database and the name of the fleet.")
    return found


class _Watch:
    """The last segment of a run. It is read again only if its state has changed."""

    def __init__(self, queue: Queue, run_id: str) -> None:
        self._queue = queue
        self._run_id = run_id
        self._row: Row | None = None
        self._number = 0
        # The state of the segments from that number on, before they were read.
        self._states: dict[str, tuple[str, str | None]] | None = None

    async def look(self) -> Row:
        """Return the last segment. Wait while the database fails. Raises as `Run.info`."""
        end = time.monotonic() + _LOST
        while True:
            try:
                return await self._look()
            except StoreError:
                if time.monotonic() > end:
                    raise
            await asyncio.sleep(_POLL)

    async def _look(self) -> Row:
        ids = [segment_id(self._run_id, self._number + one) for one in range(_STEP)]
        states = await in_thread(self._queue.states, ids)
        if self._row is None or states != self._states:
            rows = await _read_rows(self._queue, self._run_id, heads=True)
            is_same = len(rows) - 1 == self._number
            self._row, self._number = rows[-1], len(rows) - 1
            self._states = states if is_same else None
        return self._row


def _why_stopped(row: Row) -> str:
    """Return why a run has ended without an outcome of its own."""
    if status_of(row) is RunStatus.CANCELLED:
        return "the run was cancelled"
    if row.error is not None:
        return f"the worker {row.executor} failed with {row.error}: see its log"
    return f"the run was started {row.starts} times and never ended"


def _has_outcome(row: Row) -> bool:
    """Return whether a segment has the outcome of the run. A tool call that waits is none."""
    return row.result is not None and state_of(row.result.outcome) is not RunStatus.WAITING


_STEP = 4
"""How many segments are read at a time."""
