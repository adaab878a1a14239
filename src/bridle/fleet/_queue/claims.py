"""Claim runs of the queue for a worker: in their order, and never more than the limits allow.

Claims of all workers exclude each other. On SQLite a claim begins with ``BEGIN IMMEDIATE``, which
takes the lock of the file before the first read. On PostgreSQL it takes an advisory lock that ends
with the transaction. DBOS itself reads on SQLite before it locks, so that two workers can take the
last place of a limit.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping
from hashlib import sha256
from threading import Lock
from typing import Any

from msgspec import Struct

from bridle.fleet._decisions import Crashes
from bridle.fleet._fleet_database import milliseconds

_WAIT = 2000
"""Milliseconds that a claim waits for that of another worker, on PostgreSQL."""

_IDLE = 5000
"""Milliseconds after which PostgreSQL ends the claim of a worker that is frozen."""


DUE = 1 << 52
"""Is added to the time in milliseconds at which a delayed run goes into the queue.

DBOS moves delayed runs by the clock of the worker, which may be wrong. It never does so with these
times, and `claim` does it by the clock of the database.
"""

_OVERDUE = 5000
"""Milliseconds for which a run that must be alone waits for a worker without runs. Then a worker
takes it that has others, takes no more, and starts it when they have ended."""

HELD = "held"
"""The attribute of a run that was cancelled while a worker had it. False once that has ended it."""

_ENDING = 30_000
"""Milliseconds for which such a run counts, if its worker does not say that it has ended it."""

_stamping = Lock()
_last = 0


def submission_time() -> int:
    """Return the time in nanoseconds since the epoch. Each call returns a later one."""
    global _last
    with _stamping:
        _last = max(_last + 1, time.time_ns())
        return _last


class Claimant(Struct, frozen=True, kw_only=True):
    """A worker that claims runs, and the limits. None for any number of runs."""

    #: The name of the queue, which is that of the DBOS application, and its version.
    application: str
    version: str
    executor: str
    #: How many runs this worker has at the same time.
    at_once: int
    #: How many the whole fleet has.
    fleet_at_once: int | None
    #: How many each tenant has.
    tenant_at_once: int | None


def claim(
    connection: Any, table: Any, who: Claimant, active: Collection[str], token: str
) -> list[str]:
    """Claim runs in a transaction that has just begun. Return their ids in order.

    Args:
        connection: a connection of SQLAlchemy. The caller commits.
        table: the table of DBOS's workflows.
        who: the worker.
        active: ids of runs that this worker still has, whatever the database says of them.
        token: proves to DBOS that this execution owns the runs.
    """
    columns, now = table.c, milliseconds(connection)
    due = _due(connection, table, who, now)
    has_due = connection.execute(due.limit(1)).first() is not None
    if not has_due and connection.execute(_queued(connection, table, who).limit(1)).first() is None:
        return []  # most looks find nothing, and need no lock
    _lock(connection, who.application)
    if has_due:
        connection.execute(
            table.update()
            .where(columns.workflow_uuid.in_(due), columns.status == "DELAYED")
            .values(status="ENQUEUED", updated_at=now)
        )
    query = _in_flight(
        connection,
        table,
        who,
        "PENDING",
        columns.workflow_uuid,
        columns.executor_id,
        columns.queue_partition_key,
        columns.attributes,
    )
    running = connection.execute(query).fetchall()
    own = {one: crashes_of(notes) for one, owner, _, notes in running if owner == who.executor}
    if any(one.is_suspect for one in own.values()):
        return []  # this run must stay alone
    ended = connection.execute(_ending(table, who, now)).fetchall()
    ending = [tenant for tenant, status in ended if status == "CANCELLED"]
    room = who.at_once - len({*own, *active})
    if who.fleet_at_once is not None:
        room = min(room, who.fleet_at_once - len(running) - len(ending))
    tenants = Counter([*ending, *(tenant for _, _, tenant, _ in running)])
    chosen = _choose(connection, table, who, room, tenants, is_idle=not own and not active)
    claimed: list[str] = []
    for one in chosen:
        changed = connection.execute(
            table.update()
            # Another program may have cancelled the run just now.
            .where(columns.workflow_uuid == one, columns.status == "ENQUEUED")
            .values(
                status="PENDING",
                owner_xid=token,
                executor_id=who.executor,
                started_at_epoch_ms=now,
                updated_at=now,
                recovery_attempts=columns.recovery_attempts + 1,
            )
        )
        if changed.rowcount:
            claimed.append(one)
    return claimed


def _choose(
    connection: Any,
    table: Any,
    who: Claimant,
    room: int,
    running: Counter[str],
    *,
    is_idle: bool,
) -> list[str]:
    """Return the first runs whose tenants have room. ``running`` counts runs by tenant.

    A run that must be alone is chosen alone. If it has waited for long, no other run passes it.
    """
    columns, limit = table.c, who.tenant_at_once
    chosen: list[str] = []
    passed: list[str] = []
    while len(chosen) < room:
        full = [] if limit is None else [one for one, count in running.items() if count >= limit]
        query = _queued(connection, table, who)
        if full:
            query = query.where(columns.queue_partition_key.not_in(full))
        if chosen or passed:
            query = query.where(columns.workflow_uuid.not_in([*chosen, *passed]))
        found = connection.execute(_first(connection, table, query, room - len(chosen))).fetchall()
        if not found:
            break
        for one, tenant, attributes, waited in found:
            if limit is not None and running[tenant] >= limit:
                continue
            if not crashes_of(attributes).is_suspect:
                running[tenant] += 1
                chosen.append(one)
            elif waited >= _OVERDUE or (is_idle and not chosen):
                return chosen or [one]
            else:
                passed.append(one)
    return chosen


def crashes_of(attributes: Mapping[str, Any] | None) -> Crashes:
    """Return the workers that died while they had a run, by the attributes of its segment."""
    return Crashes((attributes or {}).get("crashes", {}))


def _due(connection: Any, table: Any, who: Claimant, now: Any) -> Any:
    """Return the query for the ids of the delayed runs whose time has come."""
    from sqlalchemy import select, text

    columns = table.c
    return select(columns.workflow_uuid).where(
        text("status = 'DELAYED'"),  # as in the condition of the index
        columns.delay_until_epoch_ms.between(DUE, now + DUE),
        columns.queue_name == who.application,
    )


def _first(connection: Any, table: Any, query: Any, count: int) -> Any:
    """Return the query for the first of the runs that ``query`` finds.

    The database may round the time of creation. Then the order counts in which SQLite has stored
    the runs, or the time that the program of the run has written.
    """
    from sqlalchemy import literal_column, select

    columns = table.c
    order = (columns.priority, columns.created_at)  # as in the index
    waited = (milliseconds(connection) - columns.updated_at).label("waited")
    query = query.add_columns(columns.attributes, waited)
    if connection.dialect.name == "sqlite":
        return query.order_by(*order, literal_column("rowid")).limit(count)
    # Without statistics of the table, PostgreSQL would sort the whole queue by the third key.
    submitted = _submitted(columns).label("submitted")
    query = query.add_columns(*order, submitted).order_by(*order)
    some = query.fetch(count, with_ties=True).subquery().c
    ordered = select(some.workflow_uuid, some.queue_partition_key, some.attributes, some.waited)
    return ordered.order_by(some.priority, some.created_at, some.submitted).limit(count)


def _queued(connection: Any, table: Any, who: Claimant) -> Any:
    """Return the query for the ids and tenants of the runs that wait in the queue."""
    columns = table.c
    chosen = (columns.workflow_uuid, columns.queue_partition_key)
    query = _in_flight(connection, table, who, "ENQUEUED", *chosen)
    return query.where(columns.application_version == who.version)


def _ending(table: Any, who: Claimant, now: Any) -> Any:
    """Return the query for the tenants of the cancelled runs that their workers still have.

    Without statistics, PostgreSQL would read all cancelled runs if the status was a condition, and
    all runs if the time had no upper bound.
    """
    from sqlalchemy import select

    columns = table.c
    return select(columns.queue_partition_key, columns.status).where(
        columns.completed_at.between(now - _ENDING, now + _ENDING),
        columns.application_name == who.application,
        columns.attributes[HELD].as_boolean(),
    )


def _in_flight(connection: Any, table: Any, who: Claimant, status: str, *columns: Any) -> Any:
    """Return the query for the runs of the queue that have a status."""
    from sqlalchemy import select, text

    query = select(*columns).where(table.c.queue_name == who.application, table.c.status == status)
    if connection.dialect.name != "sqlite":
        return query
    # SQLite uses an index with a condition only if the query has the same condition.
    return query.where(text("status IN ('ENQUEUED', 'PENDING')"))


def _submitted(columns: Any) -> Any:
    """Return the time that the program of a run has written. See `submission_time`."""
    return columns.attributes["at"].as_numeric(20, 0)


def begin_writing(connection: Any) -> None:
    """Take the lock of an SQLite file before the first read of a transaction."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _lock(connection: Any, application: str) -> None:
    """Exclude the claims of other workers until the transaction ends."""
    from sqlalchemy import text

    begin_writing(connection)
    if connection.dialect.name == "sqlite":
        return
    number = int.from_bytes(sha256(b"bridle claim\0" + application.encode()).digest()[:8], "big")
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_WAIT}")
    connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = {_IDLE}")
    lock = text("SELECT pg_advisory_xact_lock(:number)")
    connection.execute(lock, {"number": number - (1 << 63)})
