"""Hundreds of runs of a fleet, whose workers are killed. ``BRIDLE_SOAK`` is the seed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.histories.fleet import Case, History, judge, play
from tests.real import test_fleet as real
from tests.real.conftest import OLDER, newest
from tests.shell import test_fleet_kills as fake
from tests.shell.test_fleet_postgres import cut_a_worker_off
from tests.support.fleets import model_of
from tests.support.namespaces import namespace
from tests.support.processes import run
from tests.support.proxies import Proxy
from tests.support.servers import PostgresServer

from bridle.testing import ScriptedModel

SEED = os.environ.get("BRIDLE_SOAK", "")

RUNS = int(os.environ.get("BRIDLE_SOAK_RUNS", "5000"))
"""How many runs the longest test of this file submits."""

pytestmark = pytest.mark.skipif(not SEED, reason="takes minutes: `make soak` runs it")


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_500_runs_end_once_while_20_workers_are_killed(
    kind: str, request: pytest.FixtureRequest, places: Path
) -> None:
    database = fake.database_of(kind, request, places)
    # A kill every few seconds: a worker needs some to start, and some to notice a dead one.
    seconds = fake.kill_workers(
        database, places, runs=500, kills=20, seed=int(SEED), pause=4.0, slow=2.0
    )
    print(f"take-overs: {len(seconds)}, the slowest after {max(seconds):.1f} s")
    assert max(seconds) < fake.TAKE_OVER


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_5000_runs_end_once_while_8_workers_are_killed(
    kind: str, request: pytest.FixtureRequest, places: Path
) -> None:
    """The kills are spread over all runs, so that each of them hits runs in progress."""
    database = fake.database_of(kind, request, places)
    seconds = fake.kill_workers(
        database,
        places,
        runs=RUNS,
        kills=8,
        seed=int(SEED),
        is_spread=True,
        slow=0.0,
        timeout=7200,
    )
    assert len(seconds) >= 8, "each killed worker had runs"
    print(f"take-overs: {len(seconds)}, the slowest after {max(seconds):.1f} s")


@pytest.mark.parametrize("age", ["newest", "older"])
def test_20_runs_on_a_real_cli_end_once(places: Path, age: str) -> None:
    path = OLDER if age == "older" else newest()
    if path is None or not path.exists():
        pytest.skip("this CLI is not installed: `make setup` fetches it")
    repeated = real.kill_workers(str(path), places, runs=20, kills=3, seed=int(SEED))
    print("done again:", ", ".join(repeated) or "nothing")


@pytest.mark.parametrize("age", ["newest", "older"])
def test_a_run_on_a_real_cli_that_kills_its_workers_fails_alone(places: Path, age: str) -> None:
    path = OLDER if age == "older" else newest()
    if path is None or not path.exists():
        pytest.skip("this CLI is not installed: `make setup` fetches it")

    async def main() -> History:
        with ScriptedModel(model_of) as model:
            plan = real.plan_of(str(path), places, model)
            case = Case(seed=int(SEED), runs=5, at_once=3, poison=1)
            return await play(case, plan.database, places, plan.options)

    assert judge(run(main, timeout=900)) == []


def test_a_worker_in_a_network_of_its_own_is_cut_off(
    postgres_server: PostgresServer, request: pytest.FixtureRequest, places: Path
) -> None:
    database = fake.database_of("postgres", request, places)
    with namespace() as network, Proxy(postgres_server.port, network.address) as proxy:
        here = f"127.0.0.1:{postgres_server.port}/"
        cut_a_worker_off(
            database,
            database.replace(here, f"{network.address}:{proxy.port}/"),
            places,
            lambda _: network.cut(),
            prefix=network.prefix,
            restore=network.restore,
        )
