"""A fleet on PostgreSQL: the server restarts, and a worker is cut off from it."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.shell.test_fleet_kills import database_of
from tests.support.fleets import FleetPlan, check_all, submit_all, working
from tests.support.proxies import Proxy
from tests.support.servers import PostgresServer
from tests.support.stores import run

from bridle.testing import FakeCli

pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")

CUT_OFF = 60.0
"""Seconds from the cut to the take-over."""


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path


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
                async with asyncio.timeout(120):
                    while len(plan.appended) < 4:
                        await asyncio.sleep(0.05)
                postgres_server.stop()
                postgres_server.start()
                await check_all(plan, runs, timeout=180)
                assert workers.stop() == [0, 0]
                assert "Traceback" not in workers.errors()

    run(main, timeout=600)


def test_a_worker_that_is_cut_off_kills_its_cli_before_its_run_is_taken_over(
    postgres_server: PostgresServer, request: pytest.FixtureRequest, places: Path
) -> None:
    database = database_of("postgres", request, places)

    async def main() -> None:
        with FakeCli.auto(transcripts=True) as cli, Proxy(postgres_server.port) as proxy:
            options = {"cli_path": cli.path, "cwd": str(places)}
            port, other = f":{postgres_server.port}/", f":{proxy.port}/"
            (places / "cut").mkdir()
            cut = FleetPlan(
                directory=str(places / "cut"),
                database=database.replace(port, other),
                options=options,
                slow=600.0,
            )
            plan = FleetPlan(directory=str(places), database=database, options=options, slow=0.1)
            async with plan.fleet() as fleet, working(cut, 1) as first:
                runs = await submit_all(fleet, 1)
                pid = await cli_pid(cli)
                async with working(plan, 1) as second:
                    async with asyncio.timeout(120):
                        while not any("has started" in one["text"] for one in plan.log):
                            await asyncio.sleep(0.1)
                    await journaled(database)
                    proxy.cut()
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
                # The worker that is cut off can be stopped.
                assert first.stop() == [0]
                # The model was told of the call, and did not repeat it.
                assert plan.appended == cut.appended == []

    run(main, timeout=600)


async def cli_pid(cli: FakeCli) -> int:
    """Wait for the process id of the first CLI that got a prompt."""
    async with asyncio.timeout(120):
        while True:
            for found in cli.runs:
                lines: list[Any] = [one.members for one in found]
                if any(one.get("type") == "user" for one in lines):
                    return int(next(one["pid"] for one in lines if "argv" in one))
            await asyncio.sleep(0.05)


async def wait_dead(pid: int) -> float:
    """Return when a process has ended."""
    async with asyncio.timeout(CUT_OFF):
        while os.path.exists(f"/proc/{pid}"):
            await asyncio.sleep(0.02)
    return time.time()


async def journaled(database: str) -> None:
    """Wait until the journal has the tool call."""
    async with asyncio.timeout(120):
        while True:
            with psycopg.connect(database) as connection:
                found = connection.execute(
                    "SELECT count(*) FROM bridle_entries WHERE subkey = 'journal'"
                    " AND body LIKE '%tool_call%'"
                ).fetchone()
            if found is not None and found[0]:
                return
            await asyncio.sleep(0.1)
