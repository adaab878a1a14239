"""The only module that uses DBOS: the queue of runs, for programs that submit and for workers.

`Queue` reads and writes runs and runs nothing. `Executor` runs the workflows of one worker. Their
methods block.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import fcntl
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from bridle._core.fleet_runs import Segment, SegmentResult
from bridle._stores.drivers import load_driver
from bridle._stores.sqlite import create_file
from bridle.errors import OptionsError, StoreError

SCHEMA = "bridle_fleet"
"""The PostgreSQL schema of DBOS's tables."""

RUN = "bridle_run"
SCHEDULED = "bridle_scheduled"
"""Names of the workflow functions. They are in the database."""

QUEUE = "bridle"

_VERSION = "bridle-1"
"""The version of the application. It is constant, so that a deployment continues old runs."""

MAX_STARTS = 50
"""How often a run is started before it counts as failed. Each take-over starts it again."""

_POLL = 0.5
"""Seconds between two looks of a worker into the queue."""

_FIRST = 1 << 30
"""The number that DBOS has for priority 0. DBOS starts lower numbers first."""

_CONNECT_TIMEOUT = 5
_PAGE = 200


class Row(Struct, frozen=True, kw_only=True):
    """A workflow as it is in the database."""

    id: str
    #: ENQUEUED, DELAYED, PENDING, SUCCESS, ERROR, CANCELLED or MAX_RECOVERY_ATTEMPTS_EXCEEDED.
    status: str
    executor: str | None
    attributes: Mapping[str, Any]
    starts: int
    #: Seconds since the epoch.
    created_at: float
    started_at: float | None
    completed_at: float | None
    delayed_until: float | None
    segment: Segment | None
    result: SegmentResult | None


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _row(one: Any) -> Row:
    given: dict[str, Any] = one.input or {}
    arguments: Any = given.get("args", ())
    output = one.output
    return Row(
        id=one.workflow_id,
        status=one.status,
        executor=one.executor_id,
        attributes=one.attributes or {},
        starts=one.recovery_attempts or 0,
        created_at=(one.created_at or 0) / 1000,
        started_at=_seconds(one.dequeued_at),
        completed_at=_seconds(one.completed_at),
        delayed_until=_seconds(one.delay_until_epoch_ms),
        segment=msgspec.json.decode(arguments[0], type=Segment) if arguments else None,
        result=msgspec.json.decode(output, type=SegmentResult) if isinstance(output, str) else None,
    )


class Queue:
    """The runs of a fleet in a database. Any program may have one, at any time.

    Args:
        url: the database, as SQLAlchemy names it.
        name: the name of the fleet.
    """

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._name = f"bridle-{name}"
        self._is_sqlite = url.startswith("sqlite")
        self._client: Any = None
        self._opening = threading.Lock()

    def open(self) -> None:
        """Create or update the tables, and connect."""
        with self._opening:
            if self._client is None:
                self._client = self._connect()

    def _connect(self) -> Any:
        dbos = load_driver("Fleet", "dbos", "fleet")
        _quiet()
        with self._errors("open"), _migrating(self._url):
            dbos.DBOS.migrate(self._url, schema=SCHEMA)
        with self._errors("open"):
            return dbos.DBOSClient(
                system_database_url=self._url,
                dbos_system_schema=SCHEMA,
                serializer=_serializer(),
                application_name=self._name,
                retry_connection_errors=False,
            )

    def close(self) -> None:
        """Close the connections. The next call of `open` opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            client.destroy()

    @contextlib.contextmanager
    def _errors(self, operation: str) -> Generator[None]:
        """Turn errors of the database into `StoreError`, without the url and without values."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except SQLAlchemyError as error:
            # Arguments of the error may show the url or values of a statement.
            reason = type(getattr(error, "orig", None) or error).__name__
        else:
            return
        fix = "Check that the database is reachable. The operation can be repeated."
        raise StoreError("Fleet", operation, f"the database reported {reason}", fix=fix)

    # -- runs --------------------------------------------------------------------------------------

    def add(self, segment: Segment, delay: float | None = None) -> None:
        """Put a segment into the queue, unless there is one with its id."""
        attributes: dict[str, Any] = {"run": segment.run_id}
        if segment.key is not None:
            attributes["key"] = segment.key
        if segment.tenant is not None:
            attributes["tenant"] = segment.tenant
        options: dict[str, Any] = {
            "workflow_name": RUN,
            "queue_name": QUEUE,
            "workflow_id": segment.id,
            "app_version": _VERSION,
            "priority": _FIRST - segment.priority,
            "queue_partition_key": segment.tenant or "",
            "attributes": attributes,
        }
        if delay is not None and delay > 0:
            options["delay_seconds"] = delay
        with self._errors("submit"):
            self._client.enqueue(options, msgspec.json.encode(segment).decode())

    def rows(self, ids: Sequence[str]) -> dict[str, Row]:
        """Return the workflows with these ids."""
        with self._errors("read"):
            found = self._client.list_workflows(workflow_ids=list(ids))
        return {one.workflow_id: _row(one) for one in found}

    def segments(
        self,
        status: str | Sequence[str] | None,
        attributes: Mapping[str, Any],
        *,
        limit: int | None = None,
        completed_after: float | None = None,
        is_brief: bool = False,
    ) -> list[Row]:
        """Return segments, the newest first. ``is_brief`` leaves arguments and results out."""
        offset = 0
        after = None
        if completed_after is not None:
            at = datetime.datetime.fromtimestamp(completed_after, datetime.UTC)
            after = at.isoformat()
        rows: list[Row] = []
        while True:
            # SQLite has no filter by attributes, so that rows are left out here.
            wanted = _PAGE if limit is None else min(limit - len(rows), _PAGE)
            size = _PAGE if self._is_sqlite and attributes else wanted
            with self._errors("list"):
                found = self._client.list_workflows(
                    name=RUN,
                    application_name=self._name,
                    status=status if status is None or isinstance(status, str) else [*status],
                    attributes=None if self._is_sqlite else dict(attributes) or None,
                    completed_after=after,
                    limit=size,
                    offset=offset or None,
                    sort_desc=True,
                    load_input=not is_brief,
                    load_output=not is_brief,
                )
            offset += len(found)
            rows += [
                _row(one) for one in found if attributes.items() <= (one.attributes or {}).items()
            ][:wanted]
            if len(found) < size or len(rows) == limit:
                return rows

    def running(self) -> list[tuple[str, str]]:
        """Return the ids and the executors of all workflows that run, also of schedules."""
        with self._errors("look"):
            found = self._client.list_workflows(
                application_name=self._name, status="PENDING", load_input=False, load_output=False
            )
        return [(one.workflow_id, one.executor_id or "") for one in found]

    def cancel(self, segment_id: str) -> None:
        """Cancel a workflow that has not ended."""
        with self._errors("cancel"):
            self._client.cancel_workflow(segment_id)

    def note(self, segment_id: str, attributes: Mapping[str, Any]) -> None:
        """Add attributes to a workflow."""
        with self._errors("note"):
            self._client.update_workflow_attributes(segment_id, dict(attributes), merge=True)

    def put_back(self, segment_id: str, executor: str) -> bool:
        """Put a workflow back into its queue if this executor has it. Return whether it did."""
        with self._errors("put_back"):
            return bool(self._client._sys_db.reenqueue_for_recovery(segment_id, [executor], QUEUE))

    # -- schedules ---------------------------------------------------------------------------------

    def schedule(self, name: str, cron: str, text: str, timezone: str | None) -> None:
        """Create or replace a schedule. ``text`` is the segment to add.

        Raises:
            OptionsError: the cron expression or the time zone is invalid.
        """
        from dbos._error import DBOSException

        with self._errors("schedule"):
            with contextlib.suppress(DBOSException):
                self._client.delete_schedule(name)
            try:
                self._client.create_schedule(
                    schedule_name=name,
                    workflow_name=SCHEDULED,
                    schedule=cron,
                    context=text,
                    cron_timezone=timezone,
                )
            except DBOSException as error:
                raise OptionsError("cron", f"cannot be used: {error}") from None

    def unschedule(self, name: str) -> None:
        """Delete a schedule."""
        with self._errors("unschedule"):
            self._client.delete_schedule(name)


class Executor:
    """DBOS in a worker. A process has one at a time.

    Args:
        url: as for `Queue`.
        name: as for `Queue`.
        executor: the name of this worker.
        at_once: how many runs this worker has at the same time.
        fleet_at_once: how many the whole fleet has. None for any number.
        tenant_at_once: how many each tenant has. None for any number.
        run: runs a segment and returns its result, both as JSON.
        scheduled: adds the run of a schedule, which has a name and a JSON text, for a time.
    """

    def __init__(
        self,
        url: str,
        name: str,
        executor: str,
        *,
        at_once: int,
        fleet_at_once: int | None,
        tenant_at_once: int | None,
        run: Callable[[str], Awaitable[str]],
        scheduled: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._run = run
        self._scheduled = scheduled
        self._limits: dict[str, Any] = {
            "worker_concurrency": at_once,
            "global_concurrency": fleet_at_once,
            "partition_concurrency": tenant_at_once,
            "polling_interval_sec": _POLL,
        }
        self._config: dict[str, Any] = {
            "name": f"bridle-{name}",
            "system_database_url": url,
            "dbos_system_schema": SCHEMA,
            "serializer": _serializer(),
            "executor_id": executor,
            "application_version": _VERSION,
            "run_migrations": False,
            "sys_db_pool_size": 5,
            "enable_otlp": False,
            "log_level": "CRITICAL",
            "use_listen_notify": False,
            "scheduler_polling_interval_sec": 5.0,
        }
        self._dbos: Any = None

    def start(self) -> None:
        """Connect, and take runs from the queue from now on."""
        from dbos import DBOS

        self._dbos = DBOS(config=self._config)  # type: ignore[arg-type]  # a TypedDict

        @DBOS.workflow(name=RUN, max_recovery_attempts=MAX_STARTS)
        async def run(text: str) -> str:
            work = asyncio.run_coroutine_threadsafe(_coroutine(self._run(text)), self._loop)
            return await asyncio.wrap_future(work)

        @DBOS.workflow(name=SCHEDULED)
        async def scheduled(at: Any, context: Any) -> None:
            work = self._scheduled(str(context), str(at))
            done = asyncio.run_coroutine_threadsafe(_coroutine(work), self._loop)
            await asyncio.wrap_future(done)

        # In memory: a queue in the database would have one `at_once` for all workers.
        self._dbos._registry._register_internal_queue(QUEUE, **self._limits)
        DBOS.launch()

    def stop_taking(self) -> None:
        """Take no more runs from the queue. Those that run go on."""
        if self._dbos is not None:
            for event in self._dbos.background_thread_stop_events:
                event.set()

    @property
    def is_idle(self) -> bool:
        """Return whether the results of all runs that have ended are in the database."""
        return self._dbos is None or not self._dbos._active_workflows_set.activeList()

    def stop(self) -> None:
        """Close everything. A run whose function has not returned is left as it is."""
        from dbos import DBOS

        DBOS.destroy(destroy_registry=True)


async def _coroutine(work: Awaitable[Any]) -> Any:
    return await work


def _serializer() -> Any:
    from dbos._serialization import DBOSPortableJSONSerializer

    return DBOSPortableJSONSerializer()


def _quiet() -> None:
    """Keep DBOS from printing its log: Bridle reports what a user can act on."""
    logging.getLogger("dbos").setLevel(logging.CRITICAL)


@contextlib.contextmanager
def _migrating(url: str) -> Generator[None]:
    """Hold a lock while the tables are created: several processes may start at the same time."""
    if not url.startswith("sqlite"):
        with _postgres_lock(url):
            yield
        return
    import sqlite3

    path = url.removeprefix("sqlite:///")
    create_file(path)
    descriptor = os.open(f"{path}-fleet.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.closing(sqlite3.connect(path, timeout=30)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _postgres_lock(url: str) -> Generator[None]:
    import psycopg
    from sqlalchemy.exc import OperationalError

    try:
        connection = psycopg.connect(url, autocommit=True, connect_timeout=_CONNECT_TIMEOUT)
    except psycopg.Error as error:
        raise OperationalError("connect", None, error) from None
    with contextlib.closing(connection):
        connection.execute("SELECT pg_advisory_lock(%s)", (0x627269646C66,))
        yield
