"""The queue of runs in the tables of DBOS, for programs that submit and for workers.

`Queue` reads and writes runs and runs nothing. Its methods block.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import sqlite3
import threading
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec

from bridle._spi import load_driver
from bridle.errors import OptionsError, StoreError
from bridle.fleet._costs import COST_UNKNOWN, noted_cost
from bridle.fleet._decisions import Crashes, Segment
from bridle.fleet._fleet_database import (
    DatabaseDeleted,
    DatabaseFile,
    add_subsec,
    bounded,
    explain,
    migrating,
    milliseconds,
)
from bridle.fleet._queue.claims import DUE, HELD, Claimant, begin_writing, claim, crashes_of
from bridle.fleet._queue.dbos_internals import (
    base_error,
    close_returned,
    engine_of,
    id_in_use_error,
    json_serializer,
    put_back,
    table_of_workflows,
)
from bridle.fleet._queue.dbos_log import explain_dbos
from bridle.fleet._queue.rows import Row, attributes_of, created_at, head_in, row_of, segment_of
from bridle.fleet._queue.schedules import rename_schedules, stored_name

SCHEMA = "bridle_fleet"
"""The PostgreSQL schema of DBOS's tables."""

RUN = "bridle_run"
SCHEDULED = "bridle_scheduled"
"""Names of the workflow functions. They are in the database."""

_FIRST = 1 << 30
"""The number that DBOS has for priority 0. DBOS starts lower numbers first."""

_PAGE = 200

_KEY = "json_extract(attributes, '$.key')"
_KEY_INDEX = f"CREATE INDEX IF NOT EXISTS bridle_fleet_key ON workflow_status ({_KEY})"
"""The index of SQLite by keys. PostgreSQL has one of all attributes."""


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
        #: The file of an SQLite database.
        self.file = DatabaseFile(url)
        self._opened: Any = None
        self._opening = threading.Lock()

    @property
    def _client(self) -> Any:
        """Connect if there is no connection. Create or update the tables before."""
        with self._opening:
            if self.file.is_replaced():
                self._disconnect()
            if self._opened is None:
                self._opened = self._connect()
            return self._opened

    def open(self) -> None:
        """Connect, as each other method does too.

        Raises:
            StoreError: the database cannot be reached.
        """
        with self._errors("open"):
            assert self._client is not None, "there is a client after connecting"

    def _connect(self) -> Any:
        dbos = load_driver("Fleet", "dbos", "fleet")
        explain_dbos()
        with migrating(self.url):
            dbos.DBOS.migrate(self.url, schema=SCHEMA)
            client = dbos.DBOSClient(
                system_database_url=self.url,
                dbos_system_schema=SCHEMA,
                serializer=json_serializer(),
                application_name=self.name,
                retry_connection_errors=False,
            )
            self.file.remember()
            self.prepare(engine_of(client))
            self._migrate(engine_of(client))
        return client

    def _migrate(self, engine: Any) -> None:
        """Add an index, and change what older versions have stored."""
        table = table_of_workflows()
        until = table.c.delay_until_epoch_ms
        with engine.begin() as connection:
            if self._is_sqlite:
                connection.exec_driver_sql(_KEY_INDEX)
            old = [table.c.status == "DELAYED", until < DUE, table.c.queue_name == self.name]
            if connection.execute(table.select().where(*old).limit(1)).first() is not None:
                change = table.update().where(*old)
                connection.execute(change.values(delay_until_epoch_ms=until + DUE))
        rename_schedules(engine, self._fleet, self.name)

    def prepare(self, engine: Any) -> None:
        """Prepare an engine of DBOS."""
        # DBOS logs errors of SQLAlchemy, which show prompts otherwise.
        engine.hide_parameters = True
        self.file.watch(engine)
        if self._is_sqlite:
            add_subsec(engine)
        else:
            # DBOS does not repeat transactions that fail because the server's default is stricter.
            engine.update_execution_options(isolation_level="READ COMMITTED")

    def close(self, *, forget: bool = False) -> None:
        """Close the connections. The next call opens new ones, to the same file or a new one."""
        with self._opening:
            self._disconnect()
            if forget:
                self.file.forget()

    def _disconnect(self) -> None:
        client, self._opened = self._opened, None
        if client is not None:
            close_returned(client)
            client.destroy()

    @contextlib.contextmanager
    def _errors(self, operation: str) -> Generator[None]:
        """Turn errors of the database into `StoreError`, without the url and without values."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
            self.file.check()  # what was written to a file that is gone is not there
            return
        except (OSError, sqlite3.Error, SQLAlchemyError, DatabaseDeleted) as error:
            reason, fix = explain(error)
        raise StoreError("Fleet", operation, reason, fix=fix)

    @contextlib.contextmanager
    def _transaction(self, operation: str, *, writes: bool = False) -> Generator[Any]:
        """Begin a transaction and commit it. If it writes, it has the lock of an SQLite file."""
        with self._errors(operation), engine_of(self._client).begin() as connection:
            if writes:
                begin_writing(connection)
            yield connection

    # -- runs --------------------------------------------------------------------------------------

    def add(self, segment: Segment) -> None:
        """Put a segment into the queue, unless there is one with its id."""
        with self._errors("submit"):
            self._client.enqueue(self._enqueued(segment), msgspec.json.encode(segment).decode())

    def submit(self, segment: Segment, ids: tuple[str, str]) -> tuple[str, Segment | None]:
        """Put the first segment of a run into the queue, unless there is a run with its key.

        Args:
            segment: the segment. Its id is chosen here.
            ids: the ids that the run with its key may have.

        Returns:
            The id of the run that has the key, and the first segment of a run that had it before.
        """
        while True:
            found = self.rows(ids)
            for row in found.values():
                if row.attributes.get("tenant") == segment.tenant:
                    return row.id, row.segment
            # Programs of older versions find the run of a key without a tenant in this way.
            is_first = segment.tenant is None and ids[0] not in found
            segment = msgspec.structs.replace(segment, run_id=ids[0 if is_first else 1])
            with contextlib.suppress(id_in_use_error()):
                self.insert(segment)
                return segment.id, None

    def insert(self, segment: Segment) -> None:
        """Put the first segment of a run into the queue. It may have a delay.

        Raises:
            DBOSWorkflowIDInUseError: there is a workflow with its id.
        """
        options = self._enqueued(segment)
        options["workflow_id_reuse_policy"] = "reject"
        start = segment.start or {}
        if start:
            options["delay_seconds"] = 0.0
        columns = table_of_workflows().c
        with self._transaction("submit") as connection:
            text = msgspec.json.encode(segment).decode()
            self._client.enqueue_in_transaction(connection, options, text)
            if not start:
                return
            at: Any = int(start.get("at", 0.0) * 1000)
            if "delay" in start:
                at = milliseconds(connection) + int(start["delay"] * 1000)
            connection.execute(
                table_of_workflows()
                .update()
                .where(columns.workflow_uuid == segment.id)
                .values(delay_until_epoch_ms=at + DUE)
            )

    def _enqueued(self, segment: Segment) -> dict[str, Any]:
        """Return the options of DBOS for a segment."""
        return {
            "workflow_name": RUN,
            "queue_name": self.name,
            "workflow_id": segment.id,
            "app_version": self.version,
            "priority": _FIRST - segment.priority,
            "queue_partition_key": segment.tenant or "",
            "attributes": attributes_of(segment),
        }

    def ids_with(self, key: str) -> list[str]:
        """Return the ids of the runs that have a key, of all tenants."""
        from sqlalchemy import select, text, type_coerce
        from sqlalchemy.dialects.postgresql import JSONB

        columns = table_of_workflows().c
        query = select(columns.workflow_uuid).where(columns.application_name == self.name)
        if self._is_sqlite:
            query = query.where(text(f"{_KEY} = :key").bindparams(key=key))
        else:
            query = query.where(type_coerce(columns.attributes, JSONB).contains({"key": key}))
        with self._transaction("read") as connection:
            found = connection.execute(query).fetchall()
        return [one for (one,) in found if "/" not in one]

    def ids_from(self, start: str) -> list[str]:
        """Return the ids of the runs whose ids begin with a text."""
        with self._errors("read"):
            found = self._client.list_workflows(
                name=RUN,
                application_name=self.name,
                workflow_id_prefix=start,  # a pattern, in which % and _ have a meaning
                load_input=False,
                load_output=False,
            )
        ids = [one.workflow_id for one in found]
        return [one for one in ids if one.startswith(start) and "/" not in one]

    def rows(self, ids: Sequence[str], *, heads: bool = False) -> dict[str, Row]:
        """Return the workflows with these ids. With ``heads``, long prompts are cut."""
        with self._errors("read"):
            found = self._client.list_workflows(
                workflow_ids=list(ids), application_name=self.name, load_input=not heads
            )
            rows = self._headed(found) if heads else [row_of(one, segment_of(one)) for one in found]
        return {row.id: row for row in rows}

    def _headed(self, found: Sequence[Any]) -> list[Row]:
        """Return the rows of workflows that were read without their segments.

        Segments are read only if they have no head, so that long prompts are not.
        """
        heads = {
            one.workflow_id: head for one in found if (head := head_in(one.attributes)) is not None
        }
        missing = [one.workflow_id for one in found if one.workflow_id not in heads]
        whole: dict[str, Segment | None] = {}
        for start in range(0, len(missing), _PAGE):
            read = self._client.list_workflows(
                workflow_ids=missing[start : start + _PAGE],
                application_name=self.name,
                load_output=False,
            )
            whole |= {one.workflow_id: segment_of(one) for one in read}
        return [
            row_of(one, heads[one.workflow_id], is_cut=True)
            if one.workflow_id in heads
            else row_of(one, whole.get(one.workflow_id))
            for one in found
        ]

    def states(self, ids: Sequence[str]) -> dict[str, tuple[str, str | None]]:
        """Return the status and the executor of the workflows with these ids."""
        with self._errors("read"):
            found = self._client.list_workflows(
                workflow_ids=list(ids),
                application_name=self.name,
                load_input=False,
                load_output=False,
            )
        return {one.workflow_id: (one.status, one.executor_id) for one in found}

    def segments(
        self,
        status: str | Sequence[str] | None,
        attributes: Mapping[str, Any],
        *,
        before: tuple[float, int] | None = None,
        limit: int = _PAGE,
    ) -> tuple[list[Row], tuple[float, int] | None]:
        """Return a page of segments, the newest first, and where the next page begins.

        Long prompts are cut.

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
                load_input=False,
            )
            wanted = attributes.items()
            rows = self._headed([one for one in found if wanted <= (one.attributes or {}).items()])
        following = None
        if len(found) == size:
            times = [created_at(one) for one in found]
            same = times.count(times[-1])
            following = (times[-1], same + skipped if times[-1] == end else same)
        return rows, following

    def costs(self, tenant: str | None, after: float) -> dict[str, tuple[float, float]]:
        """Return the segments of a tenant that ended after a time: when, and US dollars.

        An unknown cost is infinite.
        """
        from sqlalchemy import select

        columns = table_of_workflows().c
        query = select(columns.workflow_uuid, columns.completed_at, columns.attributes).where(
            columns.completed_at >= int(after * 1000),
            columns.application_name == self.name,
            columns.queue_partition_key == (tenant or ""),
        )
        with self._transaction("read") as connection:
            found = connection.execute(query).fetchall()
        costs: dict[str, tuple[float, float]] = {}
        for one, at, attributes in found:
            notes: dict[str, Any] = attributes or {}
            if cost := math.inf if notes.get(COST_UNKNOWN) else noted_cost(notes):
                costs[one] = (at / 1000, cost)
        return costs

    def now(self) -> float:
        """Return the time of the database in seconds since the epoch."""
        from sqlalchemy import select

        with self._transaction("read") as connection:
            return float(connection.execute(select(milliseconds(connection))).scalar()) / 1000

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
        with self._transaction("claim") as connection:
            return claim(connection, table_of_workflows(), who, active, token), token

    def cancel(self, segment_id: str) -> None:
        """Cancel a workflow that has not ended. It counts until its worker has ended it."""
        from sqlalchemy import select

        table = table_of_workflows()
        same = table.c.workflow_uuid == segment_id
        query = select(table.c.status, table.c.attributes).where(same).with_for_update()
        # One transaction: a worker that claims the run meanwhile must not be overlooked.
        with self._transaction("cancel", writes=True) as connection:
            found = connection.execute(query).first()
            if found is not None and found.status in ("ENQUEUED", "DELAYED", "PENDING"):
                values = _cancelled(milliseconds(connection))
                if found.status == "PENDING":
                    values["attributes"] = {**(found.attributes or {}), HELD: True}
                connection.execute(table.update().where(same).values(**values))

    def let_go(self, segment_id: str, executor: str) -> None:
        """Take note that this executor has ended a workflow that was cancelled."""
        columns = table_of_workflows().c
        self._change(
            [
                columns.workflow_uuid == segment_id,
                columns.executor_id == executor,
                columns.status == "CANCELLED",
            ],
            lambda old, _, __: {"attributes": {**old, HELD: False}},
        )

    def note(self, segment: Segment, executor: str, notes: Mapping[str, Any]) -> None:
        """Add attributes to a segment that this executor has, also if it was cancelled."""
        columns = table_of_workflows().c
        self._change(
            [
                columns.workflow_uuid == segment.id,
                columns.executor_id == executor,
                columns.status.in_(["PENDING", "CANCELLED"]),
            ],
            lambda old, _, __: {
                "attributes": {
                    **attributes_of(segment),
                    **({HELD: old[HELD]} if HELD in old else {}),
                    **_crashes(old),
                    **notes,
                }
            },
        )

    def put_back(self, segment_id: str, executor: str) -> bool:
        """Put a workflow back into its queue if this executor has it. Return whether it did."""
        with self._errors("put_back"):
            return put_back(self._client, segment_id, executor, self.name)

    def postpone(
        self, segment: Segment, executor: str, seconds: float, notes: Mapping[str, Any]
    ) -> bool:
        """Put a segment off if this executor has it, and add attributes. Return whether it did.

        This does not count as a start.
        """
        columns = table_of_workflows().c
        changed = self._change(
            [
                columns.workflow_uuid == segment.id,
                columns.executor_id == executor,
                columns.status == "PENDING",
            ],
            lambda old, now, _: {
                **_freed(now, seconds),
                "attributes": {**attributes_of(segment), **_crashes(old), **notes},
                "recovery_attempts": columns.recovery_attempts - 1,
            },
        )
        return bool(changed)

    def take_over(self, executor: str) -> dict[str, Crashes]:
        """Put the runs of an executor that is dead back into the queue.

        Return their ids, each with the workers that have died while they had the run.
        """
        columns = table_of_workflows().c
        crashes: dict[str, Crashes] = {}

        def change(old: dict[str, Any], now: Any, count: int) -> dict[str, Any]:
            found = crashes_of(old).and_of(executor, count)
            attributes = {**old, "crashes": found.workers}
            if found.backoff:
                attributes["delayed"] = found.text
            crashes[old["run"]] = found
            return {**_freed(now, found.backoff), "attributes": attributes}

        self._change(
            [
                columns.application_name == self.name,
                columns.name == RUN,
                columns.executor_id == executor,
                columns.status == "PENDING",
            ],
            change,
        )
        for one, owner in self.running():  # workflows of schedules
            if owner == executor:
                self.put_back(one, executor)
        return crashes

    def acquit(self, executor: str, ids: Collection[str]) -> None:
        """Take note that an executor has not died, although others have taken its runs over."""
        for one in ids:
            self.put_back(one, executor)
        columns = table_of_workflows().c
        self._change(
            [
                columns.workflow_uuid.in_(ids),
                columns.status.in_(["ENQUEUED", "DELAYED", "PENDING"]),
            ],
            lambda old, _, __: {"attributes": {**old, **_crashes(old, but=executor)}},
        )

    def _change(
        self,
        where: Sequence[Any],
        change: Callable[[dict[str, Any], Any, int], dict[str, Any]],
    ) -> int:
        """Change rows. Return how many.

        ``change`` gets the attributes of a row, the time of the database and the number of rows.
        """
        from sqlalchemy import select

        table = table_of_workflows()
        query = select(table.c.workflow_uuid, table.c.attributes).where(*where).with_for_update()
        with self._transaction("write", writes=True) as connection:
            now = milliseconds(connection)
            found = connection.execute(query).fetchall()
            for one, attributes in found:
                values = change(attributes or {}, now, len(found))
                same = table.c.workflow_uuid == one
                connection.execute(table.update().where(same).values(**values))
        return len(found)

    # -- schedules ---------------------------------------------------------------------------------

    def schedule(self, name: str, cron: str, segment: Segment, timezone: str | None) -> None:
        """Create or replace a schedule of the tenant of a segment, which is to be added.

        Raises:
            OptionsError: the cron expression or the time zone is invalid.
        """
        schedule = {
            "schedule_name": stored_name(self._fleet, name, segment.tenant),
            "workflow_name": SCHEDULED,
            "schedule": cron,
            "context": msgspec.json.encode(segment).decode(),
            "cron_timezone": timezone,
        }
        with self._errors("schedule"):
            try:
                self._client.apply_schedules([schedule])
            except base_error() as error:
                raise OptionsError("cron", f"cannot be used: {error}") from None

    def unschedule(self, name: str, tenant: str | None) -> None:
        """Delete a schedule."""
        with self._errors("unschedule"):
            self._client.delete_schedule(stored_name(self._fleet, name, tenant))


def _crashes(old: Mapping[str, Any], but: str = "") -> dict[str, Any]:
    """Return the attributes that say which workers have died."""
    return {"crashes": crashes_of(old).without(but).workers} if "crashes" in old else {}


def _freed(now: Any, seconds: float) -> dict[str, Any]:
    """Return the values of a row that goes into the queue again after some seconds."""
    return {
        "status": "DELAYED" if seconds else "ENQUEUED",
        "delay_until_epoch_ms": now + int(seconds * 1000) + DUE if seconds else None,
        "owner_xid": None,
        "started_at_epoch_ms": None,
        "updated_at": now,
    }


def _cancelled(now: Any) -> dict[str, Any]:
    """Return the values of a row that is cancelled, as DBOS writes them."""
    none = ("owner_xid", "queue_name", "deduplication_id", "started_at_epoch_ms")
    return {"status": "CANCELLED", "updated_at": now, "completed_at": now, **dict.fromkeys(none)}


def _iso(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat()
