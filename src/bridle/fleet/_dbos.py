"""The only module that uses DBOS: the queue of runs, for programs that submit and for workers.

`Queue` reads and writes runs and runs nothing. `Executor` runs the workflows of one worker. Their
methods block.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import fcntl
import importlib
import logging
import math
import os
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from typing import Any, TypeVar
from uuid import uuid4

import msgspec
from msgspec import Struct

from bridle._core.fleet_runs import Segment, SegmentResult
from bridle._stores.drivers import load_driver
from bridle._stores.sqlite import create_file
from bridle.errors import OptionsError, StoreError, UsageError
from bridle.fleet._claims import Claimant, claim
from bridle.fleet._costs import COST_UNKNOWN, noted_cost
from bridle.fleet._log import SeldomLog, explain_dbos, log

SCHEMA = "bridle_fleet"
"""The PostgreSQL schema of DBOS's tables."""

RUN = "bridle_run"
SCHEDULED = "bridle_scheduled"
"""Names of the workflow functions. They are in the database."""

MAX_STARTS = 50
"""How often a run is started before it counts as failed. Each take-over starts it again."""

_POLL = 0.5
"""Seconds between two looks of a worker into the queue."""

_FIRST = 1 << 30
"""The number that DBOS has for priority 0. DBOS starts lower numbers first."""

_LIMITS = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",  # milliseconds
}
"""Parameters of PostgreSQL connections, so that a call fails soon if the network loses packets."""

_PAGE = 200

_MIGRATING = 60.0
"""Seconds that a program waits for another one that creates the tables."""

_CLOSING = 60.0
"""Seconds that a start of DBOS waits for the end of the last one."""


_T = TypeVar("_T")


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
    #: None if it was not read, or cannot be decoded.
    segment: Segment | None
    result: SegmentResult | None
    #: The name of the exception with which the workflow failed.
    error: str | None = None


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _decoded(text: object, type_: type[_T]) -> _T | None:
    """Decode a text of a row. One row with invalid data must not hide the others."""
    if not isinstance(text, str):
        return None
    try:
        return msgspec.json.decode(text, type=type_)
    except msgspec.DecodeError:
        return None


def _row(one: Any) -> Row:
    given: dict[str, Any] = one.input or {}
    arguments: Any = given.get("args")
    error = one.error
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
        segment=_decoded(arguments[0], Segment) if arguments else None,
        result=_decoded(one.output, SegmentResult),
        # The name of an exception is safe to show. Its text may contain data of the user.
        error=None if error is None else getattr(error, "name", None) or type(error).__name__,
    )


def _attributes(segment: Segment) -> dict[str, Any]:
    """Return the attributes by which segments are found."""
    found = {
        "run": segment.run_id,
        "key": segment.key,
        "tenant": segment.tenant,
        "at": segment.submitted_at,
    }
    return {name: value for name, value in found.items() if value is not None}


def _table() -> Any:
    """Return the table of DBOS's workflows."""
    from dbos._schemas.system_database import SystemSchema

    return SystemSchema.workflow_status


class Queue:
    """The runs of a fleet in a database. Any program may have one, at any time.

    Args:
        url: the database, as SQLAlchemy names it.
        name: the name of the fleet.
    """

    def __init__(self, url: str, name: str) -> None:
        self.url = bounded(url)
        self._fleet = name
        #: The name of the queue and of the DBOS application.
        self.name = f"bridle-{name}"
        #: The version of the application. Versions of two fleets must differ. It is constant, so
        #: that a deployment continues old runs.
        self.version = f"{self.name}-1"
        self._is_sqlite = url.startswith("sqlite")
        self._opened: Any = None
        self._opening = threading.Lock()

    @property
    def _client(self) -> Any:
        """Connect if there is no connection. Create or update the tables before."""
        with self._opening:
            if self._opened is None:
                self._opened = self._connect()
            return self._opened

    def open(self) -> None:
        """Connect, as each other method does too.

        Raises:
            StoreError: the database cannot be reached.
        """
        assert self._client is not None, "there is a client after connecting"

    def _connect(self) -> Any:
        dbos = load_driver("Fleet", "dbos", "fleet")
        explain_dbos()
        with self._errors("open"), _migrating(self.url):
            dbos.DBOS.migrate(self.url, schema=SCHEMA)
        with self._errors("open"):
            client = dbos.DBOSClient(
                system_database_url=self.url,
                dbos_system_schema=SCHEMA,
                serializer=_serializer(),
                application_name=self.name,
                retry_connection_errors=False,
            )
        # DBOS logs errors of SQLAlchemy, which show prompts otherwise.
        client._sys_db.engine.hide_parameters = True
        return client

    def close(self) -> None:
        """Close the connections. The next call opens new ones."""
        with self._opening:
            client, self._opened = self._opened, None
        if client is not None:
            client.destroy()

    @contextlib.contextmanager
    def _errors(self, operation: str) -> Generator[None]:
        """Turn errors of the database into `StoreError`, without the url and without values."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except OSError as error:
            reason = error.strerror or type(error).__name__
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
        options: dict[str, Any] = {
            "workflow_name": RUN,
            "queue_name": self.name,
            "workflow_id": segment.id,
            "app_version": self.version,
            "priority": _FIRST - segment.priority,
            "queue_partition_key": segment.tenant or "",
            "attributes": _attributes(segment),
        }
        if delay is not None and delay > 0:
            options["delay_seconds"] = delay
        with self._errors("submit"):
            self._client.enqueue(options, msgspec.json.encode(segment).decode())

    def rows(self, ids: Sequence[str]) -> dict[str, Row]:
        """Return the workflows with these ids."""
        with self._errors("read"):
            found = self._client.list_workflows(workflow_ids=list(ids), application_name=self.name)
        return {one.workflow_id: _row(one) for one in found}

    def segments(
        self,
        status: str | Sequence[str] | None,
        attributes: Mapping[str, Any],
        *,
        before: tuple[float, int] | None = None,
        limit: int = _PAGE,
    ) -> tuple[list[Row], tuple[float, int] | None]:
        """Return a page of segments, the newest first, and where the next page begins.

        A place is the time of creation of the last segment that was read, and how many segments of
        that millisecond were read. It stays right while other segments are added or change.
        """
        end, skipped = (None, 0) if before is None else before
        # SQLite has no filter by attributes, so that rows are left out here.
        size = _PAGE if self._is_sqlite and attributes else min(limit, _PAGE)
        with self._errors("list"):
            found = self._client.list_workflows(
                name=RUN,
                application_name=self.name,
                status=status if status is None or isinstance(status, str) else [*status],
                attributes=None if self._is_sqlite else dict(attributes) or None,
                # DBOS rounds down to milliseconds.
                end_time=None if end is None else _iso(end + 0.0005),
                limit=size,
                offset=skipped or None,
                sort_desc=True,
            )
        rows = [_row(one) for one in found]
        following = None
        if len(rows) == size:
            last = rows[-1].created_at
            same = sum(row.created_at == last for row in rows)
            following = (last, same + skipped if last == end else same)
        wanted = attributes.items()
        return [row for row in rows if wanted <= row.attributes.items()], following

    def costs(self, tenant: str | None, after: float) -> dict[str, tuple[float, float]]:
        """Return the segments of a tenant that ended after a time: when, and US dollars.

        An unknown cost is infinite.
        """
        from sqlalchemy import select

        columns = _table().c
        query = select(columns.workflow_uuid, columns.completed_at, columns.attributes).where(
            columns.completed_at >= int(after * 1000),
            columns.application_name == self.name,
            columns.queue_partition_key == (tenant or ""),
        )
        with self._errors("read"), self._client._sys_db.engine.begin() as connection:
            found = connection.execute(query).fetchall()
        costs: dict[str, tuple[float, float]] = {}
        for one, at, attributes in found:
            notes: dict[str, Any] = attributes or {}
            if cost := math.inf if notes.get(COST_UNKNOWN) else noted_cost(notes):
                costs[one] = (at / 1000, cost)
        return costs

    def running(self) -> list[tuple[str, str]]:
        """Return the ids and the executors of all workflows that run, also of schedules."""
        with self._errors("look"):
            found = self._client.list_workflows(
                application_name=self.name, status="PENDING", load_input=False, load_output=False
            )
        return [(one.workflow_id, one.executor_id or "") for one in found]

    def claim(self, who: Claimant, active: Collection[str]) -> tuple[list[str], str]:
        """Claim runs for a worker. Return their ids in order, and the token that proves it."""
        token = str(uuid4())
        with self._errors("claim"), self._client._sys_db.engine.begin() as connection:
            return claim(connection, _table(), who, active, token), token

    def cancel(self, segment_id: str) -> None:
        """Cancel a workflow that has not ended."""
        with self._errors("cancel"):
            self._client.cancel_workflow(segment_id)

    def note(self, segment: Segment, executor: str, notes: Mapping[str, Any]) -> None:
        """Add attributes to a segment that this executor has, also if it was cancelled."""
        table = _table()
        self._change(
            table.update()
            .where(table.c.workflow_uuid == segment.id, table.c.executor_id == executor)
            .where(table.c.status.in_(["PENDING", "CANCELLED"]))
            .values(attributes={**_attributes(segment), **notes})
        )

    def put_back(self, segment_id: str, executor: str) -> bool:
        """Put a workflow back into its queue if this executor has it. Return whether it did."""
        with self._errors("put_back"):
            database = self._client._sys_db
            return bool(database.reenqueue_for_recovery(segment_id, [executor], self.name))

    def postpone(
        self, segment: Segment, executor: str, seconds: float, notes: Mapping[str, Any]
    ) -> bool:
        """Put a segment off if this executor has it, and add attributes. Return whether it did.

        This does not count as a start.
        """
        table = _table()
        return self._change(
            table.update()
            .where(table.c.workflow_uuid == segment.id, table.c.executor_id == executor)
            .where(table.c.status == "PENDING")
            .values(
                status="DELAYED",
                attributes={**_attributes(segment), **notes},
                delay_until_epoch_ms=int((time.time() + seconds) * 1000),
                owner_xid=None,
                started_at_epoch_ms=None,
                recovery_attempts=table.c.recovery_attempts - 1,
            )
        )

    def _change(self, statement: Any) -> bool:
        """Execute a statement. Return whether it has changed a row."""
        with self._errors("write"), self._client._sys_db.engine.begin() as connection:
            return bool(connection.execute(statement).rowcount)

    # -- schedules ---------------------------------------------------------------------------------

    def schedule(self, name: str, cron: str, text: str, timezone: str | None) -> None:
        """Create or replace a schedule. ``text`` is the segment to add.

        Raises:
            OptionsError: the cron expression or the time zone is invalid.
        """
        from dbos._error import DBOSException

        # Schedules of all fleets are in one table, by name.
        schedule = {
            "schedule_name": f"{self._fleet}/{name}",
            "workflow_name": SCHEDULED,
            "schedule": cron,
            "context": text,
            "cron_timezone": timezone,
        }
        with self._errors("schedule"):
            try:
                self._client.apply_schedules([schedule])
            except DBOSException as error:
                raise OptionsError("cron", f"cannot be used: {error}") from None

    def unschedule(self, name: str) -> None:
        """Delete a schedule."""
        with self._errors("unschedule"):
            self._client.delete_schedule(f"{self._fleet}/{name}")


_instance = threading.Lock()
"""Held from the start of an executor to the end of its stop: DBOS has one instance per process."""


class Executor:
    """DBOS in a worker. A process has one at a time.

    Args:
        queue: the queue, which claims the runs.
        executor: the name of this worker.
        at_once: how many runs this worker has at the same time.
        fleet_at_once: how many the whole fleet has. None for any number.
        tenant_at_once: how many each tenant has. None for any number.
        run: runs a segment and returns its result, both as JSON.
        scheduled: adds the run of a schedule, which has a name and a JSON text, for a time.
    """

    def __init__(
        self,
        queue: Queue,
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
        self._queue = queue
        self._claimant = Claimant(
            application=queue.name,
            version=queue.version,
            executor=executor,
            at_once=at_once,
            fleet_at_once=fleet_at_once,
            tenant_at_once=tenant_at_once,
        )
        self._taking: threading.Thread | None = None
        self._no_more = threading.Event()
        self._config: dict[str, Any] = {
            "name": queue.name,
            "system_database_url": queue.url,
            "dbos_system_schema": SCHEMA,
            "serializer": _serializer(),
            "executor_id": executor,
            "application_version": queue.version,
            "run_migrations": False,
            "sys_db_pool_size": 5,
            "db_engine_kwargs": {"hide_parameters": True},
            "enable_otlp": False,
            "log_level": None,
            "use_listen_notify": False,
            "scheduler_polling_interval_sec": 5.0,
        }
        self._dbos: Any = None
        # `stop` waits for `start`.
        self._changing = threading.Lock()
        self._has_instance = False
        self._is_stopped = False

    def start(self) -> None:
        """Connect, and take runs from the queue from now on.

        Wait until the executor before has stopped. Do nothing if this one is stopped by then.

        Raises:
            UsageError: this program uses DBOS itself.
            StoreError: DBOS cannot start.
        """
        with self._changing:
            if not _instance.acquire(timeout=_CLOSING):
                raise StoreError("Fleet", "work", "DBOS of the last term has not closed yet")
            self._has_instance = True
            if not self._is_stopped:
                self._launch()

    def _launch(self) -> None:
        from dbos import DBOS

        if importlib.import_module("dbos._dbos")._dbos_global_instance is not None:
            self._has_instance = False
            _instance.release()
            what = "This process has a DBOS instance, and a process can have only one."
            raise UsageError(what, fix="Run `bridle work` in a process of its own.")
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

        DBOS.launch()
        # DBOS knows nothing of the queue: Bridle claims the runs, and DBOS runs them.
        self._taking = threading.Thread(target=self._take, name="bridle-fleet-claim", daemon=True)
        self._taking.start()

    def _take(self) -> None:
        """Claim runs again and again, and start them."""
        from dbos._core import execute_dequeued_workflow

        seldom = SeldomLog()
        while not self._no_more.wait(_POLL):
            try:
                ids, token = self._queue.claim(self._claimant, self.active)
                found: Any = self._dbos._sys_db.get_workflow_statuses(ids) if ids else ()
            except Exception as error:
                # Runs that were claimed go back into the queue after some seconds.
                what = f"The worker cannot take runs: {type(error).__name__}"
                if isinstance(error, StoreError):
                    what = str(error)
                seldom.log(logging.WARNING, f"{what} The worker tries again.")
                continue
            for status in found:
                try:
                    execute_dequeued_workflow(self._dbos, status, token)
                except Exception as error:  # such as: started too often
                    what = type(error).__name__
                    log.error("run %s cannot start: %s", status["workflow_uuid"], what)

    def stop_taking(self) -> None:
        """Take no more runs from the queue. Those that run go on."""
        self._no_more.set()
        if self._dbos is not None:
            for event in self._dbos.background_thread_stop_events:
                event.set()

    @property
    def active(self) -> set[str]:
        """Return the ids of the runs that are in progress, or whose results are being written."""
        return set() if self._dbos is None else {*self._dbos._active_workflows_set.activeList()}

    def stop(self) -> None:
        """Close everything, after `start` has returned. This may take a minute.

        A run whose function has not returned is left as it is.
        """
        from dbos import DBOS

        self._is_stopped = True
        with self._changing:
            if not self._has_instance:
                return
            self._no_more.set()
            if self._taking is not None:
                self._taking.join()
            try:
                DBOS.destroy(destroy_registry=True)
            finally:
                self._has_instance = False
                _instance.release()


async def _coroutine(work: Awaitable[Any]) -> Any:
    return await work


def _serializer() -> Any:
    from dbos._serialization import DBOSPortableJSONSerializer

    return DBOSPortableJSONSerializer()


def _iso(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat()


def bounded(url: str) -> str:
    """Return the url of a PostgreSQL database with limits of time. The user may set others."""
    if url.startswith("sqlite"):
        return url
    from sqlalchemy import make_url

    made = make_url(url)
    missing = {name: value for name, value in _LIMITS.items() if name not in made.query}
    return made.update_query_dict(missing).render_as_string(hide_password=False)


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
        connection = psycopg.connect(url, autocommit=True)
    except psycopg.Error as error:
        raise OperationalError("connect", None, error) from None
    with contextlib.closing(connection):
        try:
            _take_migration_lock(connection)
        except psycopg.Error as error:
            raise OperationalError("lock", None, error) from None
        yield


def _take_migration_lock(connection: Any) -> None:
    """Ask for the lock again and again.

    DBOS creates indexes concurrently, which waits for all statements of other sessions. So a
    statement that waits for the lock would wait for ever.
    """
    from psycopg.errors import LockNotAvailable

    end = time.monotonic() + _MIGRATING
    query = "SELECT pg_try_advisory_lock(%s)"
    while not connection.execute(query, (0x627269646C66,)).fetchone()[0]:
        if time.monotonic() > end:
            raise LockNotAvailable
        time.sleep(0.1)
