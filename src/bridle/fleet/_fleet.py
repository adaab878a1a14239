"""`Fleet`: runs that survive crashes, deployments and machines."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, cast
from uuid import uuid4

from msgspec import structs

from bridle._spi import SegmentRun, load_driver
from bridle.agent import Agent, plan_of
from bridle.content import Content
from bridle.errors import OptionsError
from bridle.fleet._costs import TenantLimits
from bridle.fleet._decisions import (
    RunStatus,
    Segment,
    different_settings,
    ids_of_key,
    segment_id,
)
from bridle.fleet._fleet_run import Run, RunInfo, info_of, read_head
from bridle.fleet._locks import FileLock, PostgresLock, WorkerLock
from bridle.fleet._queue.claims import submission_time
from bridle.fleet._queue.dbos_queue import Queue
from bridle.fleet._queue.rows import Row
from bridle.fleet._store import FleetStore
from bridle.fleet._waiting import in_thread
from bridle.fleet._worker import Worker, WorkPlan
from bridle.options import Retry
from bridle.sessions import PostgresStore, SessionStore, SqliteStore

_PRIORITIES = range(-1000, 1001)
_LONGEST_DELAY = 1e10
"""Seconds: some 300 years."""

_LONGEST_NAME = 255
"""Characters of a tenant, and of the name of a schedule. PostgreSQL indexes at most 2,704 bytes."""


def _check_count(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        problem = f"must be an integer, got {type(value).__name__}"
        raise OptionsError(field, problem, fix="Pass an integer.")
    if value < 1:
        raise OptionsError(field, f"is {value}", fix="Use 1 or more.")


Prepare = Callable[[RunInfo], str | os.PathLike[str] | Awaitable[Any] | None]
"""Returns the working directory of a run. May be ``async def``."""


class Fleet:
    """Runs of an agent, in a database, on any number of machines.

    Creating a fleet starts nothing and opens nothing. Programs that submit runs and programs that
    work on them create the same fleet.

    Args:
        agent: runs the prompts. It must not have a store: the fleet has its own.
        database: ``sqlite:///runs.db`` for a file on this machine, or
            ``postgresql://user:password@host/database`` for many machines.
        name: tells fleets in the same database apart.
        at_once: how many runs the whole fleet has at the same time. None for as many as the
            workers can take.
        tenants: limits of each tenant.
        retry: how often a run continues after a temporary failure. See ``Agent.run``.
        prepare: called by the worker before it starts a run, and before it continues one, for
            example after another worker died. Gets the `RunInfo` and returns the working directory,
            or None for that of the agent. If another worker on the same machine takes over a run,
            the run stays in its directory.
        verified: whether workers take runs only with a CLI on which ``bridle verify`` holds. A
            worker uses the stored result for this CLI if it holds, or runs ``bridle verify`` once
            before it takes runs.

    Raises:
        OptionsError: an argument is invalid, or the extra ``fleet`` is not installed.
    """

    def __init__(
        self,
        agent: Agent[Any],
        database: str = "sqlite:///runs.db",
        *,
        name: str = "default",
        at_once: int | None = None,
        tenants: TenantLimits | None = None,
        retry: Retry | None = None,
        prepare: Prepare | None = None,
        verified: bool = False,
    ) -> None:
        load_driver("Fleet", "dbos", "fleet")
        if not isinstance(cast("object", agent), Agent):
            problem = f"must be an Agent, got {type(agent).__name__}"
            raise OptionsError("agent", problem, fix="Use Fleet(bridle.Agent(...)).")
        if agent.options.sdk.store is not None:
            problem = "is set, but a fleet brings its own store"
            raise OptionsError("store", problem, fix="Create the agent without store=.")
        if not isinstance(cast("object", name), str) or not name.isidentifier():
            problem = f"must be a word of letters, digits and _, got {name!r:.80}"
            raise OptionsError("name", problem)
        if at_once is not None:
            _check_count("at_once", at_once)
        self.name = name
        self.agent = agent
        url, store, self._lock = _place(database)
        self._queue = Queue(url, name)
        self._store = FleetStore(store, self._queue.file)
        self._at_once = at_once
        self._tenants = _checked_limits(tenants)
        self._retry = retry
        self._prepare = prepare
        self._verified = verified

    def __repr__(self) -> str:
        return f"Fleet(name={self.name!r}, store={self._store!r})"

    @property
    def store(self) -> SessionStore:
        """Return the store with the conversations, for the functions of `bridle.sessions`."""
        return self._store

    # -- submitting --------------------------------------------------------------------------------

    async def submit(
        self,
        prompt: Content,
        *,
        key: str | None = None,
        tenant: str | None = None,
        priority: int = 0,
        delay: float | None = None,
        at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Run:
        """Put a prompt into the queue. It is in the database when this method returns.

        Args:
            prompt: text, or a list of content blocks.
            key: names the run among those of its tenant. If the tenant has a run with this key,
                that run is returned. The other arguments must be the same as then.
            tenant: for whom the run is, in at most 255 characters. See `TenantLimits`.
            priority: from -1000 to 1000. Runs with a higher priority start first, and of runs with
                the same priority the one that was submitted first. Runs of a tenant that has
                reached ``TenantLimits.at_once`` are skipped.
            delay: seconds before the run goes into the queue, from 0.
            at: when the run goes into the queue, instead of ``delay``. Must have a time zone.
            metadata: a JSON object for `RunInfo.metadata`, for example for ``prepare``.

        Raises:
            OptionsError: an argument is invalid, or the key names a run with other arguments.
                Nothing was submitted.
            StoreError: the database failed. Submit again: with a key there will be one run.
        """
        start = self._start(delay, at)
        segment = self._segment(prompt, key, tenant, priority, metadata, start)
        if key is None:
            await in_thread(self._queue.insert, segment)
            return self.run(segment.run_id)
        ids = ids_of_key(self.name, key, tenant)
        run_id, found = await in_thread(self._queue.submit, segment, ids)
        if found is not None and (names := different_settings(found, segment)):
            owner = f"of the tenant {tenant!r:.80}" if tenant else "without a tenant"
            problem = f"{key!r:.80} names a run {owner} that has another {' and '.join(names)}"
            fix = f"Use another key. The run with this one is {run_id}."
            raise OptionsError("key", problem, fix=fix)
        return self.run(run_id)

    @staticmethod
    def _start(delay: float | None, at: datetime | None) -> dict[str, float]:
        """Return when a run goes into the queue, as `Segment.start` has it."""
        if at is not None:
            is_time = isinstance(cast("object", at), datetime) and at.tzinfo is not None
            if delay is not None or not is_time:
                problem = "must be a time with a time zone, without a delay beside it"
                raise OptionsError("at", problem, fix="Use datetime.now(UTC) + timedelta(...).")
            return {"at": max(at.timestamp(), 0.0)}
        if delay is None:
            return {}
        is_number = isinstance(cast("object", delay), int | float) and not isinstance(delay, bool)
        if not is_number or not 0 <= delay < _LONGEST_DELAY:
            raise OptionsError("delay", f"must be seconds, from 0 to 1e10, got {delay!r:.80}")
        return {"delay": float(delay)} if delay else {}

    def _segment(
        self,
        prompt: Content,
        key: str | None,
        tenant: str | None,
        priority: int,
        metadata: Mapping[str, Any] | None,
        start: dict[str, float] | None = None,
    ) -> Segment:
        content = SegmentRun.prompt_to_json(prompt)
        _check_texts(key=key, tenant=tenant)
        _check_length(tenant=tenant)
        is_integer = isinstance(cast("object", priority), int) and not isinstance(priority, bool)
        if not is_integer or priority not in _PRIORITIES:
            problem = f"must be an integer from -1000 to 1000, got {priority!r:.80}"
            raise OptionsError("priority", problem)
        if not isinstance(cast("object", metadata), Mapping | None):
            raise OptionsError("metadata", f"must be a dict, got {type(metadata).__name__}")
        kept = SegmentRun.metadata_to_json(metadata or {})
        return Segment(
            run_id=str(uuid4()),
            session_id=str(uuid4()),
            prompt=content,
            key=key,
            tenant=tenant,
            priority=int(priority),
            metadata=kept,
            submitted_at=submission_time(),
            start=start,
        )

    async def schedule(
        self,
        name: str,
        cron: str,
        prompt: Content,
        *,
        tenant: str | None = None,
        priority: int = 0,
        timezone: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Submit a prompt again and again. A schedule of the tenant with the same name is replaced.

        Workers must run at that time. A run has the key ``<name>@<time>``, so it is added once.

        Args:
            name: names the schedule among those of its tenant, in at most 255 characters.
            cron: when, such as ``"0 3 * * *"``. Six fields begin with seconds.
            prompt: as for `submit`, here and below.
            timezone: such as ``"Europe/Berlin"``. None is UTC.

        Raises:
            OptionsError: an argument is invalid.
            StoreError: the database failed.
        """
        _check_texts(name=name, tenant=tenant)
        _check_length(name=name)
        segment = self._segment(prompt, name, tenant, priority, metadata)
        await in_thread(self._queue.schedule, name, cron, segment, timezone)

    async def unschedule(self, name: str, *, tenant: str | None = None) -> None:
        """Delete a schedule of a tenant, or the one without a tenant. Its runs stay.

        Raises:
            OptionsError: the name or the tenant is not a text.
            StoreError: the database failed.
        """
        _check_texts(name=name, tenant=tenant)
        await in_thread(self._queue.unschedule, name, tenant)

    # -- reading -----------------------------------------------------------------------------------

    def run(self, run_id: str) -> Run:
        """Return a run by its id. The database is not asked yet."""
        return Run(run_id, self._queue, self._store, plan_of(self.agent).output_type)

    async def runs(
        self,
        *,
        status: RunStatus | str | None = None,
        tenant: str | None = None,
        key: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Run]:
        """Iterate over runs, the newest first. ``run.listed`` has what was read.

        Of a prompt of more than 10,000 characters, ``listed.prompt`` has the beginning: see
        `RunInfo.is_cut`.

        Args:
            status: such as ``"failed"``. None for all.
            tenant: only the runs of this tenant.
            key: only the runs with this key: one of each tenant.
            limit: how many runs at most, from 1.

        Raises:
            OptionsError: there is no such status, or the limit is invalid.
            StoreError: the database failed.
        """
        chosen = None if status is None else _status(status)
        if limit is not None:
            _check_count("limit", limit)
        count = 0
        async for info in self._infos(chosen, tenant, key, limit):
            if limit is not None and count >= limit:
                return
            if chosen in (None, info.status) and tenant in (None, info.tenant):
                count += 1
                run = self.run(info.id)
                run.listed = info
                yield run

    async def _infos(
        self, chosen: RunStatus | None, tenant: str | None, key: str | None, limit: int | None
    ) -> AsyncIterator[RunInfo]:
        """Iterate over runs that may be wanted, the newest first."""
        if key is not None:
            for run in await self._runs_with(key, tenant):
                yield run
            return
        wanted: dict[str, Any] = {} if tenant is None else {"tenant": tenant}
        lists = [
            self._segments(statuses, wanted | attributes, limit)
            for statuses, attributes in _FILTERS[chosen]
        ]
        seen: set[str] = set()
        # Of each list, the next run.
        heads = [await anext(one, None) for one in lists]
        while any(heads):
            place, newest = max(
                ((place, one) for place, one in enumerate(heads) if one is not None),
                key=lambda item: item[1][0].created_at,
            )
            info = info_of(*newest)
            if info.id not in seen:
                seen.add(info.id)
                yield info
            heads[place] = await anext(lists[place], None)

    async def _runs_with(self, key: str, tenant: str | None) -> list[RunInfo]:
        """Return the runs that have a key, of one tenant or of all, the newest first."""
        if tenant is None:
            ids = await in_thread(self._queue.ids_with, key)
        else:
            ids = [*await in_thread(self._queue.states, ids_of_key(self.name, key, tenant))]
        found = [await read_head(self._queue, one) for one in ids]
        return sorted(found, key=lambda info: info.submitted_at, reverse=True)

    async def _segments(
        self, statuses: str | list[str] | None, attributes: dict[str, Any], limit: int | None
    ) -> AsyncIterator[tuple[Row, Row]]:
        """Iterate over the last segments of runs, each with the first one of its run."""
        place: tuple[float, int] | None = None
        seen: set[str] = set()
        while True:
            size = _PAGE if limit is None else min(limit, _PAGE)
            read = functools.partial(self._queue.segments, before=place, limit=size)
            rows, place = await in_thread(read, statuses, attributes)
            for pair in await self._last_segments([row for row in rows if row.id not in seen]):
                yield pair
            if place is None:
                return
            seen.update(row.id for row in rows)

    async def _last_segments(self, rows: list[Row]) -> list[tuple[Row, Row]]:
        """Return those of the rows that are the last of their run, each with the first one."""
        numbers = {row.id: row.segment for row in rows}
        followed = [
            segment_id(one.run_id, one.number + 1)
            for row in rows
            if (one := numbers[row.id]) is not None and row.attributes.get("state") == "waiting"
        ]
        later = [one.run_id for one in numbers.values() if one is not None and one.number > 0]
        known = {row.id: row for row in rows}
        missing = [one for one in (*followed, *later) if one not in known]
        for start in range(0, len(missing), 500):
            read = functools.partial(self._queue.rows, missing[start : start + 500], heads=True)
            known |= await in_thread(read)
        last: list[tuple[Row, Row]] = []
        for row in rows:
            segment = row.segment
            if segment is None or segment_id(segment.run_id, segment.number + 1) in known:
                continue
            last.append((row, known.get(segment.run_id, row)))
        return last

    # -- working -----------------------------------------------------------------------------------

    async def work(
        self, at_once: int = 4, *, stop: asyncio.Event | None = None, drain: float = 30.0
    ) -> None:
        """Work on runs until ``stop`` is set, or for ever. A process can have one worker.

        If the database fails, the worker kills its CLIs and goes on when the database is back.

        Args:
            at_once: how many runs this worker has at the same time. Each needs a CLI process.
            stop: set this event to end the worker.
            drain: seconds that runs have to end after that. The others are handed over.

        Raises:
            OptionsError: an argument is invalid.
            UsageError: this process has a worker already.
            UnverifiedCliError: with ``verified=True``, a promise does not hold on the CLI. The
                worker has taken no run.
            StartError: with ``verified=True``, there is no CLI, or it cannot be executed.

        Cancellation: kills the CLIs and hands the runs over.
        """
        _check_count("at_once", at_once)
        plan = plan_of(self.agent)
        options = structs.replace(plan.options, sdk=plan.options.sdk.replace(store=self._store))
        if self._verified:
            from bridle.fleet._verified import verified_cli  # loads the test kit

            path = await verified_cli(options.cli)
            options = structs.replace(options, cli=options.cli.replace(cli_path=path))
        working = WorkPlan(
            name=self.name,
            queue=self._queue,
            store=self._store,
            plan=structs.replace(plan, options=options),
            lock=self._lock,
            at_once=self._at_once,
            limits=self._tenants,
            retry=self._retry,
            prepare=None if self._prepare is None else self._prepared,
        )
        await Worker(working, at_once, stop or asyncio.Event(), drain).work()

    async def _prepared(self, segment: Segment) -> Any:
        assert self._prepare is not None, "the fleet has a function that prepares"
        info = await self.run(segment.run_id).info()
        if inspect.iscoroutinefunction(self._prepare):
            return await self._prepare(info)
        made: Any = await in_thread(self._prepare, info)
        return await made if inspect.isawaitable(made) else made

    async def aclose(self) -> None:
        """Close the connections. The fleet stays usable: the next call connects again."""
        await in_thread(functools.partial(self._queue.close, forget=True))
        await self._store.aclose()

    async def __aenter__(self) -> Fleet:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def runs_from(fleet: Fleet, start: str) -> list[Run]:
    """Return the runs whose ids begin with a text, for the command line.

    Raises:
        StoreError: the database failed.
    """
    queue = fleet._queue  # pyright: ignore[reportPrivateUsage]  # the class is above
    runs = [fleet.run(one) for one in await in_thread(queue.ids_from, start)]
    for run in runs:
        run.listed = await read_head(queue, run.id)
    return runs


_PAGE = 200
"""How many runs are read at a time."""

_FILTERS: dict[RunStatus | None, list[tuple[str | list[str] | None, dict[str, str]]]] = {
    None: [(None, {})],
    RunStatus.QUEUED: [("ENQUEUED", {})],
    RunStatus.DELAYED: [("DELAYED", {})],
    RunStatus.RUNNING: [("PENDING", {})],
    RunStatus.WAITING: [("SUCCESS", {"state": "waiting"})],
    RunStatus.COMPLETED: [("SUCCESS", {"state": "completed"})],
    RunStatus.FAILED: [
        ("SUCCESS", {"state": "failed"}),
        (["ERROR", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"], {}),
    ],
    # A worker carries out the cancellation of a run that waits, as a workflow of its own.
    RunStatus.CANCELLED: [
        (["ENQUEUED", "DELAYED", "PENDING"], {"kind": "cancel"}),
        ("SUCCESS", {"state": "cancelled"}),
        ("CANCELLED", {}),
    ],
}
"""The workflows that can have a status: their status in DBOS, and their attributes.

They are read one after the other. A workflow that changes its status meanwhile only moves on to a
later one of a list, so that it is found once or twice.
"""


def _check_texts(**options: object) -> None:
    """Check options that must be texts. All but the name may be None."""
    for option, value in options.items():
        if not _is_text(value) and (value is not None or option == "name"):
            raise OptionsError(option, f"must be a text, got {value!r:.80}")


def _check_length(**names: str | None) -> None:
    for option, name in names.items():
        if name is not None and len(name) > _LONGEST_NAME:
            problem = f"must have at most {_LONGEST_NAME} characters, got {len(name)}"
            raise OptionsError(option, problem)


def _is_text(value: object) -> bool:
    """Return whether a value is a text that a database can store."""
    if not isinstance(value, str) or not value or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _status(status: str) -> RunStatus:
    try:
        return RunStatus(status)
    except ValueError:
        known = ", ".join(RunStatus)
        raise OptionsError("status", f"must be one of {known}, got {status!r:.80}") from None


def _checked_limits(limits: TenantLimits | None) -> TenantLimits:
    if limits is None:
        return TenantLimits()
    if not isinstance(cast("object", limits), TenantLimits):
        problem = f"must be TenantLimits, got {type(limits).__name__}"
        raise OptionsError("tenants", problem, fix="Use TenantLimits(at_once=2).")
    if limits.at_once is not None:
        _check_count("TenantLimits.at_once", limits.at_once)
    for name, value in (("usd", limits.usd), ("per", limits.per)):
        if value is not None and not value > 0:
            raise OptionsError(f"TenantLimits.{name}", f"must be positive, got {value!r:.80}")
    return limits


def _place(
    database: object,
) -> tuple[str, SqliteStore | PostgresStore, Callable[[str], WorkerLock]]:
    """Return the url for DBOS, the store and the locks of a database."""
    fix = "Use sqlite:///runs.db or postgresql://user:password@host/database."
    if not isinstance(database, str):
        raise OptionsError("database", f"must be a url, got {type(database).__name__}", fix=fix)
    if database.startswith("sqlite:///"):
        if database.removeprefix("sqlite:///") in ("", ":memory:"):
            problem = "must be a file: the workers share it"
            raise OptionsError("database", problem, fix=fix)
        path = os.path.realpath(database.removeprefix("sqlite:///"))
        return f"sqlite:///{path}", SqliteStore(path), lambda name: FileLock(name, path)
    if database.startswith(("postgresql://", "postgres://")):
        return database, PostgresStore(database), lambda name: PostgresLock(name, database)
    raise OptionsError("database", "is not the url of an SQLite or PostgreSQL database", fix=fix)
