"""Workers of a fleet are killed at random moments, and their runs are taken over."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from uuid import uuid4

import pytest
from tests.support.fleets import FleetPlan, Workers, another_line, check_all, submit_all, working
from tests.support.processes import run, until

from bridle.fleet._decisions import RELEASE
from bridle.testing import FakeCli

pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")

TAKE_OVER = 5.0
"""Seconds from the kill of a worker to the take-over of its runs."""


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path


def database_of(kind: str, request: pytest.FixtureRequest, places: Path) -> str:
    """Return the url of a new database."""
    if kind == "sqlite":
        return f"sqlite:///{places / 'runs.db'}"
    import psycopg

    server = request.getfixturevalue("postgres_server")
    name = f"fleet_{uuid4().hex}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    url: str = server.url
    return url.removesuffix("/postgres") + f"/{name}"


def kill_workers(
    database: str,
    places: Path,
    *,
    runs: int,
    kills: int,
    seed: int,
    pause: float = 1.0,
    slow: float = 0.3,
    timeout: float = 600.0,
    is_spread: bool = False,
) -> list[float]:
    """Run a fleet with four workers, and kill some. Return the seconds of the take-overs.

    Args:
        pause: seconds between two kills, at most.
        slow: seconds that the tool of the runs takes, at most.
        timeout: seconds after which the runs must have ended.
        is_spread: whether the kills are spread over all runs, also while they are submitted.
    """
    chance = random.Random(seed)
    found: list[float] = []

    async def kill_evenly(plan: FleetPlan, workers: Workers) -> None:
        path = plan.home / "appended"

        async def appended(count: int) -> None:
            await until(lambda: path.exists() and path.read_bytes().count(b"\n") >= count, timeout)

        for number in range(kills):
            await appended(runs * (number + 1) // (kills + 1))
            await asyncio.to_thread(workers.kill, chance)

    async def main() -> None:
        with FakeCli.auto(transcripts=True) as cli:
            plan = FleetPlan(
                directory=str(places),
                database=database,
                options={"cli_path": cli.path, "cwd": str(places)},
                slow=slow,
            )
            async with plan.fleet() as fleet, working(plan, 4) as workers:
                await settled(database)
                spread = asyncio.create_task(kill_evenly(plan, workers)) if is_spread else None
                submitted = await submit_all(fleet, runs)
                if spread is not None:
                    await spread
                for _ in range(0 if is_spread else kills):
                    # Some runs do not append, so that this may wait in vain at the end.
                    with contextlib.suppress(TimeoutError):
                        await another_line(plan, runs, 5.0)
                    await asyncio.sleep(chance.uniform(pause / 2, pause))
                    workers.kill(chance)
                await check_all(plan, submitted, timeout=max(180.0, timeout / 2))
                found.extend(workers.take_overs())
                assert workers.stop() == [0, 0, 0, 0]
                assert "Traceback" not in workers.errors()

    run(main, timeout=timeout)
    return found


async def settled(database: str) -> None:
    """Wait until a PostgreSQL server has run for some time: before, no worker takes runs over."""
    if database.startswith("sqlite"):
        return
    import psycopg

    query = "SELECT extract(epoch FROM now() - pg_postmaster_start_time())::float8"
    with psycopg.connect(database, autocommit=True) as connection:
        await until(lambda: (connection.execute(query.encode()).fetchone() or (0.0,))[0] >= RELEASE)


@pytest.mark.longer
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_runs_of_killed_workers_end_once(
    kind: str, request: pytest.FixtureRequest, places: Path
) -> None:
    database = database_of(kind, request, places)
    seconds = kill_workers(database, places, runs=50, kills=3, seed=1)
    assert seconds, "a killed worker had runs"
