"""A worker: takes runs from the queue, runs them, and takes over those of dead workers.

`Worker.work` is a sequence of terms. In a term the worker has one executor id and holds the lock of
it. If it loses the lock, it kills its CLIs, and a new term begins as soon as the database can be
reached.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

import msgspec
from msgspec import Struct

from bridle._spi import AgentPlan, SegmentRun, StoredOutcome
from bridle.errors import (
    BridleError,
    ControlError,
    OptionsError,
    SessionInUseError,
    SessionLoadError,
    StartError,
    StoreError,
    UsageError,
)
from bridle.fleet._costs import COST_UNKNOWN, Budgets, TenantLimits
from bridle.fleet._decisions import (
    LOOK,
    ORPHANED,
    STALL,
    RunStatus,
    SeenFor,
    Segment,
    decode_segment,
    ids_of_key,
    state_of,
)
from bridle.fleet._jobs import PREPARE, Job, Prepare, prepared
from bridle.fleet._locks import LockLost, WorkerLock
from bridle.fleet._queue.claims import submission_time
from bridle.fleet._queue.dbos_queue import Queue
from bridle.fleet._queue.executor import Executor
from bridle.fleet._queue.rows import SegmentResult
from bridle.fleet._store import FleetStore
from bridle.fleet._waiting import finish, first, in_thread, unless
from bridle.options import Retry
from bridle.outcomes import OutcomeReason

_T = TypeVar("_T")

log = logging.getLogger("bridle.fleet")

_PAUSE = 1.0
"""Seconds before something that failed is tried again."""

_PATIENCE = 60.0
"""Seconds for which a run waits for a store that fails, or a session that is in use."""

_CLOSING = 15.0
"""Seconds that DBOS has to close its connections."""

_LONGEST_PAUSE = 10.0
"""Seconds between two attempts of a run, at most."""

_COSTS = 0.5
"""Seconds between two questions about the cost of runs in progress."""

_FAILED_STARTS = 3
"""After how many runs in a row that did not start a worker pauses before the next one."""


class WorkPlan(Struct, frozen=True, kw_only=True):
    """What the workers of a fleet have in common."""

    #: The name of the fleet.
    name: str
    queue: Queue
    store: FleetStore
    plan: AgentPlan
    lock: Callable[[str], WorkerLock]
    at_once: int | None
    limits: TenantLimits
    retry: Retry | None
    prepare: Prepare | None


class Worker:
    """The worker of this process."""

    def __init__(self, plan: WorkPlan, at_once: int, stop: asyncio.Event, drain: float) -> None:
        self._plan = plan
        self._at_once = at_once
        self._stop = stop
        self._drain = drain

    async def work(self) -> None:
        """Run segments until the worker is stopped."""
        global _working
        with _guard:
            if _working:
                what = "This process has a worker already."
                raise UsageError(what, fix="Start another process, or increase at_once.")
            _working = True
        # The terms whose locks were lost, and their runs.
        survived: dict[str, list[str]] = {}
        try:
            while not self._stop.is_set():
                term = _Term(self._plan, self._at_once)
                pause = 0.0
                try:
                    await unless(term.begin(survived), self._stop, term.lost)
                    await first([self._stop.wait(), term.lost.wait()])
                    if not term.lost.is_set():
                        await term.drain(self._drain)
                except StoreError as error:
                    log.warning("%s The worker tries again.", error)
                    pause = _PAUSE
                finally:
                    await finish(term.end())
                survived |= term.survived
                await first([self._stop.wait()], pause)
        finally:
            _working = False


_working = False
_guard = threading.Lock()


class _Term:
    """The time in which a worker holds one lock."""

    def __init__(self, plan: WorkPlan, at_once: int) -> None:
        self._plan = plan
        host = "".join(c if c.isalnum() else "-" for c in socket.gethostname())[:40]
        self.name = f"{host}-{os.getpid()}-{secrets.token_hex(4)}"
        self._at_once = at_once
        self._loop = asyncio.get_running_loop()
        #: Set if the lock is lost.
        self.lost = asyncio.Event()
        #: The name of this term and its runs, if the lock was lost although the worker was well.
        self.survived: dict[str, list[str]] = {}
        self._ticked = time.monotonic()
        self._is_taking = True
        self._is_over = False
        self._jobs: dict[str, Job] = {}
        self._lock = plan.lock(self.name)
        self._free = SeenFor(self._lock.free_for)
        # Runs that were claimed and not started, and those of them that were put back.
        self._orphans = SeenFor(ORPHANED)
        self._put_back: set[str] = set()
        self._budgets = Budgets(plan.limits, plan.queue, self._write)
        self._failed_starts = 0
        self._endings: set[asyncio.Task[None]] = set()
        self._keeper: threading.Thread | None = None
        self._keeping: asyncio.AbstractEventLoop | None = None
        self._checks: list[concurrent.futures.Future[None]] = []
        self._executor: Executor | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # -- beginning and end -------------------------------------------------------------------------

    async def begin(self, survived: dict[str, list[str]]) -> None:
        """Take the lock, then take runs.

        ``survived`` has the terms whose runs other workers may have taken over as those of a dead
        worker. This says that it is not dead, and empties ``survived``.

        Raises:
            StoreError: the database cannot be reached.
        """
        await in_thread(self._plan.queue.open)
        for name, runs in list(survived.items()):
            await in_thread(self._plan.queue.acquit, name, runs)
            del survived[name]
        await self._keep()
        plan = self._plan
        self._executor = Executor(
            plan.queue,
            self.name,
            at_once=self._at_once,
            fleet_at_once=plan.at_once,
            tenant_at_once=plan.limits.at_once,
            run=self._run,
            scheduled=self._add_scheduled,
        )
        try:
            await in_thread(self._executor.start)
        except BridleError:
            raise
        except Exception as error:
            # The first line has no values of a statement.
            line = str(error).partition("\n")[0]
            reason = f"DBOS reported {type(error).__name__}: {line:.200}"
            raise StoreError("Fleet", "work", reason) from error
        self._tasks = [
            asyncio.create_task(self._watch(), name="bridle-fleet-watch"),
            asyncio.create_task(self._look(), name="bridle-fleet-look"),
            asyncio.create_task(self._note_costs(), name="bridle-fleet-costs"),
        ]
        log.info("worker %s has started", self.name)

    async def drain(self, seconds: float) -> None:
        """Take no more runs, and wait for those that run."""
        self._is_taking = False
        if self._executor is None:  # the worker was stopped before the term had begun
            return
        self._executor.stop_taking()
        end = self._loop.time() + seconds
        while self._jobs and self._loop.time() < end and not self.lost.is_set():
            await asyncio.sleep(0.05)
        end = self._loop.time() + _CLOSING
        while not self._jobs and self._loop.time() < end and self._executor.active:
            await asyncio.sleep(0.05)  # the results of the last runs are being written

    async def end(self) -> None:
        """Kill the CLIs that still run, hand the runs over, close everything."""
        self._is_taking = False
        if self._executor is not None:
            self._executor.stop_taking()
        jobs = list(self._jobs.values())
        for job in jobs:
            job.kill()
        await self._end_jobs(jobs)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._executor is not None and not self.lost.is_set():
            await self._hand_over()
        if self._executor is not None:
            try:
                async with asyncio.timeout(_CLOSING):
                    await in_thread(self._executor.stop)
            except TimeoutError:  # the next term waits for it
                log.warning("DBOS has not closed within %g seconds", _CLOSING)
        if self.lost.is_set():  # connections to the database may hang
            await in_thread(self._plan.queue.close)
            with contextlib.suppress(StoreError, TimeoutError):
                async with asyncio.timeout(_PAUSE):
                    await self._plan.store.aclose()
        self._is_over = True
        for check in self._checks:  # they would miss the lock
            check.cancel()
        await self._call(self._lock.aclose(), 2.0)
        if self._keeping is not None and self._keeper is not None:
            self._keeping.call_soon_threadsafe(self._keeping.stop)
            await in_thread(self._keeper.join, 2.0)
        if self._tasks:
            log.info("worker %s has ended", self.name)

    async def _hand_over(self) -> None:
        """Put the runs of this worker back into the queue. Otherwise others have to notice."""
        queue = self._plan.queue
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_CLOSING):
                for one, executor in await in_thread(queue.running):
                    if executor == self.name:
                        await in_thread(queue.put_back, one, executor)

    async def _end_jobs(self, jobs: Iterable[Job]) -> None:
        waiting = [job for job in jobs if job.segment.id in self._jobs]
        for job in waiting:
            job.cancel()
        end = self._loop.time() + _CLOSING
        while any(self._jobs.get(job.segment.id) is job for job in waiting):
            if self._loop.time() > end:
                log.warning("a callback of a run does not end; the worker goes on without it")
                return
            await asyncio.sleep(0.02)

    # -- the lock ----------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Take the lock and keep it in a thread: callbacks may block the event loop."""
        keeping = self._keeping = asyncio.SelectorEventLoop()

        def keep() -> None:
            try:
                keeping.run_forever()
                rest = asyncio.all_tasks(keeping)
                for task in rest:
                    task.cancel()
                keeping.run_until_complete(asyncio.wait(rest) if rest else asyncio.sleep(0))
            finally:
                keeping.close()

        self._keeper = threading.Thread(target=keep, name="bridle-fleet-lock", daemon=True)
        self._keeper.start()
        await self._in_keeper(self._lock.take())
        self._checks = [
            asyncio.run_coroutine_threadsafe(check, keeping)
            for check in (self._confirm(), self._check_tenure())
        ]

    async def _confirm(self) -> None:
        try:
            while not self._is_over:
                await self._lock.confirm()
        except LockLost:
            self._lose()
        except Exception:
            log.exception("worker %s cannot check its lock", self.name)
            self._lose()

    async def _check_tenure(self) -> None:
        while not self._is_over:
            self._ticked = time.monotonic()
            await asyncio.sleep(0.1)
            if self._lock.tenure.is_over(time.monotonic()):
                self._lose()

    def _lose(self) -> None:
        """Kill all CLIs, in the thread of the lock, and have the term end."""
        if self._is_over:
            return
        self._is_over = True
        self._is_taking = False
        jobs = list(self._jobs.values())
        for job in jobs:
            job.kill()
        if time.monotonic() - self._ticked < STALL:  # else a run may have held up this process
            self.survived[self.name] = [job.segment.id for job in jobs]
        log.warning("worker %s has lost its lock; CLIs killed: %d", self.name, len(jobs))
        with contextlib.suppress(RuntimeError):  # the event loop has been closed
            self._loop.call_soon_threadsafe(self.lost.set)

    async def _in_keeper(self, work: Any) -> Any:
        assert self._keeping is not None, "the lock is kept"
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._keeping))

    async def _call(self, work: Any, timeout: float) -> None:
        if self._keeping is None or self._keeping.is_closed():
            work.close()
            return
        with contextlib.suppress(Exception):
            async with asyncio.timeout(timeout):
                await self._in_keeper(work)

    # -- other workers -----------------------------------------------------------------------------

    async def _watch(self) -> None:
        """End the jobs if the lock is lost."""
        await self.lost.wait()
        for job in list(self._jobs.values()):
            job.kill()
            job.cancel()

    async def _look(self) -> None:
        """Look for runs that this worker has lost, and for those of dead workers."""
        while True:
            await asyncio.sleep(self._free.pause(self._loop.time(), LOOK))
            mine = dict(self._jobs)
            try:
                running = await in_thread(self._plan.queue.running)
                await self._put_orphans_back(running)
                await self._take_over(running)
                held = {one for one, executor in running if executor == self.name}
                rows = await self._rows([one for one in mine if one not in held])
            except (StoreError, LockLost):
                self._free.forget()
                continue
            except Exception:
                self._free.forget()
                log.exception("worker %s cannot look at the runs", self.name)
                continue
            for one, job in mine.items():
                if one in held or job.is_lost or job.is_cancelled or self._jobs.get(one) is not job:
                    continue
                row = rows.get(one)
                if row is None or row.status == "CANCELLED":
                    log.info("run %s was cancelled", one)
                    job.is_cancelled = True
                    self._in_background(job.interrupt())
                elif row.executor != self.name or row.status in ("ENQUEUED", "DELAYED"):
                    log.info("run %s was taken from this worker", one)
                    job.kill()
                    job.cancel()

    async def _rows(self, ids: list[str]) -> dict[str, Any]:
        return await in_thread(self._plan.queue.rows, ids) if ids else {}

    async def _note_costs(self) -> None:
        """Write down what runs have cost so far: this worker may die."""
        while True:
            await asyncio.sleep(_COSTS)
            await asyncio.gather(*map(self._note_cost, list(self._jobs.values())))

    async def _note_cost(self, job: Job) -> None:
        usd = await job.running_usd()
        if not usd:
            return
        notes = {"lost_usd": job.lost_usd, "running_usd": usd}
        async with job.noting:
            if not job.is_noted:
                with contextlib.suppress(StoreError):  # after the next model call again
                    await in_thread(self._plan.queue.note, job.segment, self.name, notes)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        self._endings.add(task := asyncio.create_task(work))
        task.add_done_callback(self._endings.discard)

    async def _put_orphans_back(self, running: list[tuple[str, str]]) -> None:
        """Put back runs that this worker has claimed and never started.

        If the connection breaks during a claim, DBOS does not know that it has the run.
        """
        assert self._executor is not None, "the term has begun"
        own = {one for one, executor in running if executor == self.name}
        orphans = own - self._jobs.keys() - self._executor.active
        for one in self._orphans.due(orphans, self._loop.time()):
            self._put_back.add(one)
            if await in_thread(self._plan.queue.put_back, one, self.name):
                log.warning("put run %s back: it was claimed and not started", one)

    async def _take_over(self, running: list[tuple[str, str]]) -> None:
        others = {executor for _, executor in running} - {self.name}
        free: list[str] = await self._in_keeper(self._lock.free(others)) if others else []
        for executor in self._free.due(free, self._loop.time()):
            await self._in_keeper(self._take_runs_of(executor))

    async def _take_runs_of(self, executor: str) -> None:
        """Put the runs of a dead worker back into the queue, while this worker has its lock."""
        async with self._lock.taking(executor) as is_taken:
            if not is_taken:
                return
            for one, crashes in (await in_thread(self._plan.queue.take_over, executor)).items():
                log.warning("took run %s over from worker %s, which is dead", one, executor)
                if crashes.is_suspect or crashes.is_hopeless:
                    log.warning("run %s: %s", one, crashes.text)

    # -- one segment -------------------------------------------------------------------------------

    async def _run(self, text: str) -> str:
        """Run a segment. Raise CancelledError to leave it to another worker."""
        segment = decode_segment(text)
        if not self._is_taking or segment.id in self._jobs:
            raise asyncio.CancelledError
        if segment.id in self._put_back and not await self._write(self._has, segment.id):
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None, "a segment runs in a task"
        job = self._jobs[segment.id] = Job(segment, task)
        try:
            job.read_notes(await self._write(self._notes, segment.id))
            await self._until_alone(job)
            result = await self._result(job)
            if job.is_lost:
                raise asyncio.CancelledError
            return msgspec.json.encode(result).decode()
        except Exception:
            log.exception("run %s failed in the worker", segment.run_id)
            raise
        finally:
            if self._jobs.get(segment.id) is job:
                del self._jobs[segment.id]
            self._in_background(job.let_go(self._plan.queue, self.name))

    async def _until_alone(self, job: Job) -> None:
        """Wait until a run that may kill the worker is the only one. No other run is claimed."""
        while job.crashes.is_suspect:
            running = await self._write(self._plan.queue.running)
            own = {one for one, executor in running if executor == self.name}
            if own.union(self._jobs) <= {job.segment.id}:
                return
            await asyncio.sleep(LOOK)
            if not self._is_taking:
                raise asyncio.CancelledError

    def _notes(self, segment_id: str) -> dict[str, Any]:
        row = self._plan.queue.rows([segment_id], heads=True).get(segment_id)
        return {} if row is None else {**row.attributes}

    def _has(self, segment_id: str) -> bool:
        """Return whether this worker has a run, by the database."""
        return self._plan.queue.states([segment_id]).get(segment_id) == ("PENDING", self.name)

    async def _result(self, job: Job) -> SegmentResult:
        if job.segment.kind == "cancel":
            stopped = StoredOutcome(reason=OutcomeReason.STOPPED, detail="the run was cancelled")
            await self._note_end(job, {"state": RunStatus.CANCELLED})
            return SegmentResult(outcome=stopped)
        try:
            outcome = await self._outcome(job)
        except asyncio.CancelledError:
            if job.is_cancelled and not job.is_lost and job.has_unreported_calls:
                await self._note_end(job, job.unknown_cost())
            raise
        if job.is_lost:
            raise asyncio.CancelledError
        outcome, notes = job.with_cost(outcome)
        if job.is_cancelled:
            await self._note_end(job, notes)
            raise asyncio.CancelledError
        await job.leave_if_undecided(outcome, notes, self.name, self._plan.queue, self._write)
        await self._note_end(job, {"state": state_of(outcome), **notes})
        return SegmentResult(outcome=outcome)

    async def _note_end(self, job: Job, notes: dict[str, Any]) -> None:
        """Write down how a segment has ended."""
        if COST_UNKNOWN in notes and self._plan.limits.usd is not None:
            text = "the cost of run %s is unknown, so it uses up the dollars of its tenant"
            log.warning(text, job.segment.run_id)
        async with job.noting:
            job.is_noted = True
            await self._write(self._plan.queue.note, job.segment, self.name, notes)

    async def _write(self, method: Callable[..., _T], *arguments: object) -> _T:
        """Call a method of the queue until the database does it."""
        while True:
            try:
                return await in_thread(method, *arguments)
            except StoreError as error:
                log.warning("%s The worker tries again.", error)
            await asyncio.sleep(_PAUSE)

    async def _is_postponed(self, segment: Segment) -> bool:
        """Put a segment off if its tenant has spent its dollars. Return whether it did."""
        pause, reason = await self._budgets.pause(segment.tenant)
        if pause <= 0:
            return False
        postpone = self._plan.queue.postpone
        await self._write(postpone, segment, self.name, pause, {"delayed": reason})
        return True

    async def _outcome(self, job: Job) -> StoredOutcome:
        """Return the outcome of a segment. Wait for some time while the store fails.

        If the database fails for longer, the worker loses its lock, and the run is taken over.
        """
        await self._pause_after_failed_starts()
        failing_since: float | None = None
        pause = _PAUSE
        while True:
            began = self._loop.time()
            run = self._segment_run(job)
            try:
                outcome = await self._attempt(job, run)
                self._failed_starts = 0
                return outcome
            except (StoreError, SessionLoadError, SessionInUseError) as error:
                now = self._loop.time()
                if failing_since is None or now - began > _PATIENCE:
                    failing_since, pause = now, _PAUSE
                if now - failing_since > _PATIENCE:
                    if not isinstance(error, SessionInUseError):
                        return run.failed(error)
                    # A worker of this machine that is frozen may hold the session. A worker of
                    # another machine can continue the run.
                    reason = f"another program on the machine of {self.name} uses the session"
                    notes = {"delayed": reason, "lost_usd": job.lost_usd}
                    postpone, segment = self._plan.queue.postpone, job.segment
                    await self._write(postpone, segment, self.name, _LONGEST_PAUSE, notes)
                    raise asyncio.CancelledError from None
                log.warning("run %s: %s The worker tries again.", job.segment.run_id, error)
            except (StartError, ControlError, OptionsError, UsageError) as error:
                # An error of `prepare`, or a call that does not wait, concerns one run only.
                if not isinstance(error, UsageError) and getattr(error, "field", "") != PREPARE:
                    self._failed_starts += 1
                return run.failed(error)
            if job.is_lost or job.is_cancelled:
                raise asyncio.CancelledError
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _pause_after_failed_starts(self) -> None:
        """Keep a worker whose CLI does not start from failing all runs of the queue at once."""
        count = self._failed_starts
        if count < _FAILED_STARTS:
            return
        pause = min(2.0 ** (count - _FAILED_STARTS), _PATIENCE)
        text = "%d runs in a row did not start on this worker. It waits %g s before the next one."
        log.error(text + " Run `bridle doctor` on this machine.", count, pause)
        await asyncio.sleep(pause)

    def _segment_run(self, job: Job) -> SegmentRun:
        plan, segment = self._plan, job.segment
        return SegmentRun(
            store=plan.store,
            session_id=segment.session_id,
            prompt=segment.prompt,
            pending=segment.pending,
            decision=segment.decision,
            make_plan=partial(prepared, plan.plan, plan.prepare, segment),
            retry=plan.retry,
            show=job.show,
        )

    async def _attempt(self, job: Job, run: SegmentRun) -> StoredOutcome:
        if job.crashes.is_hopeless:
            return StoredOutcome(reason=OutcomeReason.STOPPED, detail=job.crashes.text)
        step = await run.next_step()
        if isinstance(step, StoredOutcome):
            job.lost_usd = 0.0  # the outcome has it
        elif step == "start" and await self._is_postponed(job.segment):
            raise asyncio.CancelledError
        return await run.outcome(step)

    async def _add_scheduled(self, text: str, at: str) -> None:
        """Add the run of a schedule. The time is a part of its key, so that it is added once."""
        segment = decode_segment(text)
        key = f"{segment.key}@{at}"
        added = msgspec.structs.replace(
            segment,
            key=key,
            session_id=str(uuid4()),
            submitted_at=submission_time(),
            # The clock of this worker may be ahead.
            start={"at": datetime.fromisoformat(at).timestamp()},
        )
        ids = ids_of_key(self._plan.name, key, segment.tenant)
        await self._write(self._plan.queue.submit, added, ids)
