"""The private names of DBOS that the fleet uses: each is in the DBOS that is installed."""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bridle.fleet._fleet_database import adding_subsec
from bridle.fleet._queue import dbos_internals as internals

dbos = pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")


class Launched(NamedTuple):
    """A DBOS and a client on one database."""

    instance: Any
    client: Any


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    url = f"sqlite:///{tmp_path_factory.mktemp('dbos') / 'runs.db'}"
    config = {
        "name": "internals",
        "system_database_url": url,
        "run_admin_server": False,
        "serializer": internals.json_serializer(),
    }
    with adding_subsec():
        instance = dbos.DBOS(config=config)
        dbos.DBOS.launch()
        client = dbos.DBOSClient(system_database_url=url)
    yield Launched(instance, client)
    client.destroy()
    dbos.DBOS.destroy(destroy_registry=True)


def closes_late(launched: Launched) -> bool:
    """Whether a connection that a thread gives back after the end of its client is closed."""
    url = internals.engine_of(launched.client).url.render_as_string()
    client = dbos.DBOSClient(system_database_url=url)
    engine = internals.engine_of(client)
    before = engine.raw_connection()
    internals.close_returned(client)
    client.destroy()
    after = engine.raw_connection()
    for one in (before, after):
        connection = one.driver_connection
        one.close()
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")
    return True


def looks_for_function(launched: Launched) -> bool:
    """Whether DBOS reads the row of a workflow and looks for its function, which is missing."""
    inputs = internals.json_serializer().serialize({"args": [], "kwargs": {}})
    row = {"workflow_uuid": "none", "name": "none", "inputs": inputs, "serialization": None}
    with pytest.raises(internals.base_error(), match="not a registered workflow"):
        internals.execute(launched.instance, row, "token")
    return True


def stops(launched: Launched) -> bool:
    internals.stop_background(launched.instance)
    events = launched.instance.background_thread_stop_events
    return bool(events) and all(event.is_set() for event in events)


NAMES: dict[str, tuple[Callable[[Launched], object], object]] = {
    "table_of_workflows": (lambda _: "status" in internals.table_of_workflows().c, True),
    "table_of_schedules": (lambda _: "context" in internals.table_of_schedules().c, True),
    "json_serializer": (
        lambda _: internals.json_serializer().serialize({"a": [1]}),
        '{"a":[1]}',
    ),
    "base_error": (lambda _: issubclass(internals.base_error(), Exception), True),
    "id_in_use_error": (
        lambda _: issubclass(internals.id_in_use_error(), internals.base_error()),
        True,
    ),
    "engine_of": (
        lambda one: [internals.engine_of(each).dialect.name for each in one],
        ["sqlite", "sqlite"],
    ),
    "close_returned": (closes_late, True),
    "put_back": (lambda one: internals.put_back(one.client, "none", "none", "none"), False),
    "has_instance": (lambda _: internals.has_instance(), True),
    "statuses": (lambda one: list(internals.statuses(one.instance, ["none"])), []),
    "active": (lambda one: list(internals.active(one.instance)), []),
    "execute": (looks_for_function, True),
    "stop_background": (stops, True),
}
"""By function: its use, and the result with an empty database."""


@pytest.mark.parametrize("name", NAMES)
def test_dbos_still_has_what_the_fleet_uses(name: str, launched: Launched) -> None:
    use, expected = NAMES[name]
    assert use(launched) == expected


def test_every_function_is_tried() -> None:
    functions = inspect.getmembers(internals, inspect.isfunction)
    assert {name for name, _ in functions} == NAMES.keys()


def test_only_one_module_uses_private_names_of_dbos(repository: Path) -> None:
    own = Path(internals.__file__)
    fleet = repository / "src" / "bridle" / "fleet"
    private = ("dbos._", "_sys_db", "_active_workflows_set", "background_thread_stop_events")
    found = [
        path.relative_to(fleet).as_posix()
        for path in fleet.rglob("*.py")
        if path != own and any(name in path.read_text("utf-8") for name in private)
    ]
    assert found == []
