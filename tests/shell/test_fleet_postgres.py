"""A fleet on PostgreSQL: the server restarts, and a worker is cut off from it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.shell.test_fleet_kills import database_of, settled
from tests.support.fleets import FleetPlan, check_all, submit_all, working
from tests.support.processes import run, until
from tests.support.proxies import Proxy
from tests.support.servers import PostgresServer

from bridle import Agent
from bridle.fleet import Fleet
from bridle.testing import FakeCli

pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")

CUT_OFF = 60.0
"""Seconds from the cut to the take-over."""


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path


@pytest.mark.longer
def test_a_restart_of_the_server_loses_no_run(
    postgres_server: PostgresServer, request: pytest.FixtureRequest, places: Path
) -> None:
    database = database_of("postgres", request, places)

    async def main() -> None:
        with FakeCli.auto(transcripts=True) as cli:
            plan = FleetPlan(
                directory=str(places),
                database=database,
                options={"cli_path": cli.path, "cwd": str(places)},
                at_once=3,
            )
            async with plan.fleet() as fleet, working(plan, 2) as workers:
                runs = await submit_all(fleet, 16)
                await until(lambda: len(plan.appended) >= 4, 120)
                postgres_server.stop()
                postgres_server.start()
                await check_all(plan, runs, timeout=180)
                assert workers.stop() == [0, 0]
                assert "Traceback" not in workers.errors()

    run(main, timeout=600)


@pytest.mark.longer
@pytest.mark.parametrize("ending", ["by the timeout of the server", "by an administrator"])
def test_a_worker_that_is_cut_off_kills_its_cli_before_its_run_is_taken_over(
    postgres_server: PostgresServer, request: pytest.FixtureRequest, places: Path, ending: str
) -> None:
    """The worker does not hear of it if the server ends the session of its lock."""
    database = database_of("postgres", request, places)

    with Proxy(postgres_server.port) as proxy:
        url = database.replace(f":{postgres_server.port}/", f":{proxy.port}/")

        def cut(pid: int) -> None:
            proxy.cut()
            if ending == "by an administrator":
                end_session(database, pid)

        cut_a_worker_off(database, url, places, cut)


def cut_a_worker_off(
    database: str,
    url: str,
    places: Path,
    cut: Callable[[int], None],
    *,
    prefix: Sequence[str] = (),
    restore: Callable[[], None] | None = None,
) -> None:
    """Cut a worker off in the middle of a run, while another worker is there.

    Args:
        database: the url of the database.
        url: the url that the worker uses that is cut off.
        cut: cuts it off. Gets its process id.
        prefix: words before the command of this worker.
        restore: ends the cut. Then the worker must go on with other runs.
    """

    async def main() -> None:
        with FakeCli.auto(transcripts=True) as cli:
            options = {"cli_path": cli.path, "cwd": str(places)}
            (places / "cut").mkdir()
            lonely = FleetPlan(
                directory=str(places / "cut"),
                database=url,
                options=options,
                slow=600.0,
                prefix=[*prefix],
            )
            plan = FleetPlan(directory=str(places), database=database, options=options, slow=0.1)
            async with plan.fleet() as fleet, working(lonely, 1) as first:
                runs = await submit_all(fleet, 1)
                pid = await cli_pid(cli)
                async with working(plan, 1) as second:
                    await until(lambda: any("has started" in one["text"] for one in plan.log), 120)
                    await journaled(database)
                    await settled(database)
                    cut(lonely.log[0]["pid"])
                    cut_at = time.time()
                    dead_at = await wait_dead(pid)
                    (one,) = runs.values()
                    assert (await one.outcome(timeout=180)).ok
                    assert (await one.info()).starts == 2
                    taken_at = next(
                        float(one["at"]) for one in plan.log if "took run" in one["text"]
                    )
                    assert dead_at < taken_at < cut_at + CUT_OFF
                    assert second.stop() == [0]
                if restore is not None:
                    restore()
                    more = [await fleet.submit("SAY Fine.") for _ in range(3)]
                    for later in more:
                        assert (await later.outcome(timeout=180)).ok
                # The worker that is cut off can be stopped.
                assert first.stop() == [0]
                # The model was told of the call, and did not repeat it.
                assert plan.appended == lonely.appended == []

    run(main, timeout=900)


def end_session(database: str, pid: int) -> None:
    """End the session that has the lock of a worker."""
    with psycopg.connect(database, autocommit=True) as connection:
        query = (
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE application_name = %s AND datname = current_database()"
        )
        ended = connection.execute(query, (f"bridle worker {pid}",)).fetchone()
    assert ended == (1,)


async def test_several_programs_create_the_tables_at_the_same_time(
    request: pytest.FixtureRequest, places: Path
) -> None:
    """DBOS creates indexes concurrently, which waits for statements of other sessions."""
    database = database_of("postgres", request, places)
    fleets = [Fleet(Agent(), database) for _ in range(4)]
    async with asyncio.timeout(60):
        await asyncio.gather(*(one.submit("x") for one in fleets))
    assert len([one async for one in fleets[0].runs()]) == 4
    for one in fleets:
        await one.aclose()


@pytest.mark.longer
def test_a_server_with_stricter_transactions_fails_no_run(
    request: pytest.FixtureRequest, places: Path
) -> None:
    """Each transaction of a fleet is right by itself, and must not fail because of others."""
    database = database_of("postgres", request, places)
    with psycopg.connect(database, autocommit=True) as connection:
        name = database.rpartition("/")[2]
        level = "default_transaction_isolation = 'serializable'"
        connection.execute(f"ALTER DATABASE {name} SET {level}".encode())

    async def main() -> None:
        with FakeCli.auto(transcripts=True) as cli:
            plan = FleetPlan(
                directory=str(places),
                database=database,
                options={"cli_path": cli.path, "cwd": str(places)},
            )
            async with plan.fleet() as fleet, working(plan, 2) as workers:
                runs = await submit_all(fleet, 12)
                await check_all(plan, runs, timeout=180)
                assert workers.stop() == [0, 0]
            with fleet._queue._client._sys_db.engine.begin() as connection:
                found = connection.exec_driver_sql("SHOW transaction_isolation").scalar()
            assert found == "read committed"
            assert "SerializationFailure" not in str(plan.log)
            await fleet.aclose()

    run(main, timeout=600)


async def test_calls_end_if_the_network_loses_packets(
    request: pytest.FixtureRequest, places: Path
) -> None:
    database = database_of("postgres", request, places)
    fleet = Fleet(Agent(), database + "?keepalives_count=7")
    await fleet.submit("x")
    pool = fleet._queue._client._sys_db.engine.raw_connection()
    given = pool.driver_connection.info.get_parameters()
    pool.close()
    assert given["tcp_user_timeout"] == "10000"
    assert given["connect_timeout"] == "5"
    assert given["keepalives_count"] == "7", "the url of the user wins"
    await fleet.aclose()


async def test_a_list_is_filtered_by_the_server(
    request: pytest.FixtureRequest, places: Path
) -> None:
    database = database_of("postgres", request, places)
    async with Fleet(Agent(), database) as fleet:
        runs = [await fleet.submit("x", tenant=f"t{one % 2}") for one in range(8)]
        await runs[3].cancel()
        odd = [one.id async for one in fleet.runs(tenant="t1", limit=3)]
        assert odd == [runs[7].id, runs[5].id, runs[3].id]
        found = [one.id async for one in fleet.runs(tenant="t1", status="cancelled")]
        assert found == [runs[3].id]
        assert len([one async for one in fleet.runs()]) == 8


async def cli_pid(cli: FakeCli) -> int:
    """Wait for the process id of the first CLI that got a prompt."""

    def look() -> int | None:
        for found in cli.runs:
            lines: list[Any] = [one.members for one in found]
            if any(one.get("type") == "user" for one in lines):
                return int(next(one["pid"] for one in lines if "argv" in one))
        return None

    pid: int = await until(look, 120)
    return pid


async def wait_dead(pid: int) -> float:
    """Return when a process has ended."""
    await until(lambda: not os.path.exists(f"/proc/{pid}"), CUT_OFF)
    return time.time()


async def journaled(database: str) -> None:
    """Wait until the journal has the tool call."""

    def has_call() -> bool:
        with psycopg.connect(database) as connection:
            found = connection.execute(
                "SELECT count(*) FROM bridle_entries WHERE subkey = 'journal'"
                " AND body LIKE '%tool_call%'"
            ).fetchone()
        return found is not None and bool(found[0])

    await until(has_call, 120)
