"""The private names of DBOS that the fleet uses. No other module uses one.

`pyproject.toml` pins DBOS to the versions that have them, and a test checks that each of them is
still there. Engines, connections and tables of SQLAlchemy are of the type Any, as in DBOS.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any


def table_of_workflows() -> Any:
    """Return the table of workflows."""
    from dbos._schemas.system_database import SystemSchema

    return SystemSchema.workflow_status


def table_of_schedules() -> Any:
    """Return the table of schedules."""
    from dbos._schemas.system_database import SystemSchema

    return SystemSchema.workflow_schedules


def json_serializer() -> Any:
    """Return the serializer for arguments and results: JSON."""
    from dbos._serialization import DBOSPortableJSONSerializer

    return DBOSPortableJSONSerializer()


def base_error() -> type[Exception]:
    """Return the class of all errors of DBOS."""
    from dbos._error import DBOSException

    return DBOSException


def id_in_use_error() -> type[Exception]:
    """Return the class of the error for a workflow whose id was used with other arguments."""
    from dbos._error import DBOSWorkflowIDInUseError

    return DBOSWorkflowIDInUseError


def engine_of(dbos: Any) -> Any:
    """Return the SQLAlchemy engine of a `DBOS` or a `DBOSClient`."""
    return dbos._sys_db.engine


def close_returned(dbos: Any) -> None:
    """From now on, close each connection that a thread gives back. Call it before the end.

    SQLAlchemy closes idle connections when it disposes of an engine. It leaves those that are in
    use, and those that a thread of DBOS opens at its end, to the garbage collector.
    """
    from sqlalchemy import event

    def close(_: object, record: Any) -> None:
        record.invalidate()

    event.listen(engine_of(dbos).pool, "checkin", close)


def put_back(client: Any, workflow: str, executor: str, queue: str) -> bool:
    """Put a workflow back into its queue if this executor has it. Return whether it did."""
    return bool(client._sys_db.reenqueue_for_recovery(workflow, [executor], queue))


def has_instance() -> bool:
    """Return whether this process has a `DBOS`."""
    return importlib.import_module("dbos._dbos")._dbos_global_instance is not None


def statuses(dbos: Any, workflows: Sequence[str]) -> Any:
    """Return the rows of workflows that were claimed, for `execute`."""
    return dbos._sys_db.get_workflow_statuses(workflows) if workflows else ()


def execute(dbos: Any, status: Any, token: Any) -> None:
    """Start a workflow that was claimed with this token."""
    from dbos._core import execute_dequeued_workflow

    execute_dequeued_workflow(dbos, status, token)


def active(dbos: Any) -> Iterable[str]:
    """Return the ids of the workflows that run, or whose results are being written."""
    found: Iterable[str] = dbos._active_workflows_set.activeList()
    return found


def stop_background(dbos: Any) -> None:
    """Have the threads of DBOS that look for work end. Workflows that run go on."""
    for event in dbos.background_thread_stop_events:
        event.set()
