"""The database of a fleet: its file is deleted, its disk is full, and what it cannot store."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import shutil
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Struct
from tests.shell.test_fleet import WAIT, Place, place, working
from tests.shell.test_fleet_kills import database_of
from tests.support.fleets import reach
from tests.support.processes import until

from bridle import OptionsError
from bridle.content import TextBlock
from bridle.errors import StoreError
from bridle.fleet import Fleet, RunStatus
from bridle.fleet._fleet_database import explain

pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")

__all__ = ["place"]


def delete(place: Place) -> None:
    for path in place.path.glob("runs.db*"):
        path.unlink()


# ---------------------------------------------------------------- the clock


async def test_an_older_sqlite_dates_runs_also_on_newer_pythons(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Python 3.12 and newer, DBOS uses a function of SQLite 3.42."""
    newer = SimpleNamespace(version_info=(3, 12))
    monkeypatch.setattr("dbos._migration.sys", newer)
    monkeypatch.setattr("dbos._sys_db.sys", newer)
    before = time.time()
    async with place.fleet() as fleet, working(fleet):
        submitted = await fleet.submit("SAY Fine.")
        assert (await submitted.outcome(WAIT)).text == "Fine."
        assert before - 1 < (await submitted.info()).submitted_at < time.time() + 1


# ---------------------------------------------------------------- the file


async def test_a_prompt_is_not_acknowledged_if_the_database_file_was_deleted(place: Place) -> None:
    async with place.fleet() as fleet:
        first = await fleet.submit("SAY First.", key="one")
        delete(place)
        for key in (None, "one", "two"):
            with pytest.raises(StoreError, match="the database file was deleted") as raised:
                await fleet.submit("SAY Lost.", key=key)
            assert str(place.path / "runs.db") in str(raised.value)
            assert "Restore the file" in str(raised.value)
        for call in (first.info, first.cancel, first.status):
            with pytest.raises(StoreError, match="deleted"):
                await call()
        assert not (place.path / "runs.db").exists()
    # A program that starts again begins with a new file.
    async with place.fleet() as fleet:
        await fleet.submit("SAY Second.")
        assert len([one async for one in fleet.runs()]) == 1


async def test_a_prompt_is_not_acknowledged_if_the_file_is_deleted_meanwhile(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place.fleet() as fleet:
        await fleet.submit("SAY First.")
        client: Any = fleet._queue._client
        enqueue = client.enqueue_in_transaction

        def late(*arguments: Any) -> Any:
            added = enqueue(*arguments)
            delete(place)
            return added

        monkeypatch.setattr(client, "enqueue_in_transaction", late)
        with pytest.raises(StoreError, match="the database file was deleted"):
            await fleet.submit("SAY Lost.")


async def test_a_fleet_goes_on_with_a_file_that_was_restored(place: Place) -> None:
    """Also if it is a copy: then it is another file."""
    path = place.path / "runs.db"
    async with place.fleet() as fleet:
        first = await fleet.submit("SAY First.")
        await fleet.aclose()
        shutil.copy(path, place.path / "backup")
        assert await first.status() is RunStatus.QUEUED
        delete(place)
        with pytest.raises(StoreError):
            await first.status()
        os.rename(place.path / "backup", path)
        assert await first.status() is RunStatus.QUEUED
        second = await fleet.submit("SAY Second.")
        async with working(fleet):
            assert (await first.outcome(WAIT)).ok
            assert (await second.outcome(WAIT)).ok


async def test_a_worker_does_not_create_a_deleted_database_again(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bridle.fleet")
    path = place.path / "runs.db"
    worker, submitter = place.fleet(), place.fleet()
    one = await submitter.submit("SLOW")
    async with working(worker, drain=0.1):
        await reach(one, RunStatus.RUNNING)
        backup = place.path / "backup"
        # The content of the write-ahead log belongs to the database.
        await asyncio.to_thread(checkpoint, path)
        shutil.copy(path, backup)
        delete(place)
        await until(lambda: "the database file was deleted" in caplog.text)
        await until(lambda: "has lost its lock" in caplog.text)
        await asyncio.sleep(2.0)  # enough for DBOS to connect again
        assert not path.exists()
        with pytest.raises(StoreError, match="deleted"):
            await submitter.submit("SAY Lost.")
        os.rename(backup, path)
        second = await submitter.submit("SAY Fine.")
        assert (await second.outcome(WAIT)).ok
        await one.cancel()
    await submitter.aclose()


def checkpoint(path: Path) -> None:
    connection = sqlite3.connect(path, timeout=30)
    connection.execute("PRAGMA wal_checkpoint(FULL)")
    connection.close()


# ---------------------------------------------------------------- the disk


async def test_a_full_disk_is_named_and_nothing_is_acknowledged(place: Place) -> None:
    async with place.fleet() as fleet:
        await fleet.submit("SAY First.")
        engine: Any = fleet._queue._client._sys_db.engine
        engine.dispose()
        from sqlalchemy import event

        def fill(connection: Any, _: object) -> None:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages}")

        event.listen(engine, "connect", fill)
        for key in (None, "k"):
            with pytest.raises(StoreError, match="the disk is full") as raised:
                await fleet.submit("x" * 1_000_000, key=key)
            assert "Free space" in str(raised.value)
            assert "xxx" not in str(raised.value)
        event.remove(engine, "connect", fill)
        engine.dispose()
        assert len([one async for one in fleet.runs()]) == 1
        await fleet.submit("x" * 1_000_000, key="k")


def error_of(module: str, name: str) -> Any:
    """Return an error of a driver, wrapped as SQLAlchemy does."""
    import psycopg.errors
    from sqlalchemy.exc import OperationalError

    if module == "psycopg":
        return OperationalError("INSERT secret", {"a": "secret"}, getattr(psycopg.errors, name)())
    return OperationalError("INSERT secret", {"a": "secret"}, sqlite3.OperationalError(name))


@pytest.mark.parametrize(
    ("error", "reason", "fix"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full", "Free space"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "the disk is full", "Free space"),
        (OSError(errno.EACCES, "Permission denied"), "reported Permission denied", "reachable"),
        (error_of("psycopg", "DiskFull"), "the disk is full", "Free space"),
        (error_of("psycopg", "ConnectionFailure"), "reported ConnectionFailure", "reachable"),
        (error_of("sqlite3", "no such table: x"), "reported no such table: x", "reachable"),
    ],
    ids=["space", "quota", "rights", "postgres-full", "postgres-gone", "sqlite-table"],
)
def test_an_error_of_the_database_is_explained(error: Exception, reason: str, fix: str) -> None:
    found = explain(error)
    assert reason in found[0]
    assert fix in found[1]
    assert "secret" not in str(found)


async def test_errors_of_sqlite_outside_of_statements_are_store_errors(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(sqlite3, "connect", fail)
    with pytest.raises(StoreError, match="unable to open database file"):
        await place.fleet().submit("SAY Fine.")


# ---------------------------------------------------------------- values


class Page(Struct):
    number: int


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    "options",
    [
        {"metadata": {"x": NAN}},
        {"metadata": {"x": [{"y": -INFINITE}]}},
        {"metadata": {"x": 2**53}},
        {"metadata": {"x": [-(2**53)]}},
        {"metadata": {"x": 10**400}},
        {"metadata": {"x": Page(2**60)}},
        {"metadata": {"1": "a", 1: "b"}},
        {"prompt": [{"type": "text", "text": "Hi", "cache": NAN}]},
        {"prompt": [{"type": "text", "text": "Hi", "id": 2**60}]},
    ],
    ids=lambda value: str(value)[:80],
)
async def test_values_that_json_readers_change_are_refused(
    place: Place, options: dict[str, Any]
) -> None:
    async with place.fleet() as fleet:
        [field] = options
        given: dict[str, Any] = {"prompt": "SAY Fine.", **options}
        with pytest.raises(OptionsError) as raised:
            await fleet.submit(**given)
        assert raised.value.field == field
        with pytest.raises(OptionsError):
            await fleet.schedule("nightly", "0 3 * * *", **given)
        assert [one async for one in fleet.runs()] == []


@pytest.mark.parametrize(
    "options",
    [
        {"metadata": []},
        {"metadata": 0},
        {"metadata": [("a", 1)]},
        {"metadata": Page(3)},
        {"delay": True},
        {"delay": -5},
        {"delay": -0.001},
        {"delay": NAN},
        {"delay": "5"},
        {"tenant": "a" * 256},
    ],
    ids=lambda value: str(value)[:80],
)
async def test_invalid_settings_of_a_run_are_refused(place: Place, options: dict[str, Any]) -> None:
    async with place.fleet() as fleet:
        [field] = options
        with pytest.raises(OptionsError) as raised:
            await fleet.submit("SAY Fine.", **options)
        assert raised.value.field == field
        assert [one async for one in fleet.runs()] == []


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_the_longest_names_are_stored(
    kind: str, request: pytest.FixtureRequest, place: Place
) -> None:
    database = database_of(kind, request, place.path)
    # PostgreSQL compresses other texts.
    letters = random.Random(1)
    tenant, name = ("".join(chr(letters.randrange(2**16, 2**17)) for _ in range(255)),) * 2
    async with Fleet(place.agent(), database) as fleet:
        one = await fleet.submit("SAY Fine.", key=name * 40, tenant=tenant)
        assert (await one.info()).tenant == tenant
        assert [found.id async for found in fleet.runs(tenant=tenant)] == [one.id]
        await fleet.schedule(name, "0 3 * * *", "SAY Fine.", tenant=tenant)
        with pytest.raises(OptionsError) as raised:
            await fleet.schedule(f"{name}x", "0 3 * * *", "SAY Fine.", tenant=tenant)
        assert raised.value.field == "name"
        assert len(fleet._queue._client.list_schedules()) == 1
        await fleet.unschedule(name, tenant=tenant)
        assert fleet._queue._client.list_schedules() == []


async def test_values_that_json_keeps_are_stored(place: Place) -> None:
    metadata = {
        "integers": [2**53 - 1, -(2**53) + 1, 0, True],
        "numbers": [1e300, -0.5],
        "page": Page(3),
        "at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    stored = {**metadata, "page": {"number": 3}, "at": "2026-01-01T00:00:00Z"}
    async with place.fleet() as fleet:
        for prompt in ("SAY Fine.", [TextBlock("SAY Fine.")], [{"type": "text", "text": "Hi"}]):
            one = await fleet.submit(prompt, metadata=metadata)
            assert (await one.info()).metadata == stored
