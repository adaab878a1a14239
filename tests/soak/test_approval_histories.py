"""Hundreds of histories of decisions. ``BRIDLE_SOAK`` is the seed."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from tests.histories.approvals import Ended, Round, check, play
from tests.real.conftest import OLDER, newest
from tests.shell.test_fleet_kills import database_of, settled
from tests.support.processes import run

SEED = os.environ.get("BRIDLE_SOAK", "")

pytestmark = pytest.mark.skipif(not SEED, reason="takes minutes: `make soak` runs it")

pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")

HISTORIES = int(os.environ.get("BRIDLE_SOAK_HISTORIES", "500"))
"""How many histories of a fleet on each kind of database."""

STEP = 50
"""Conversations of a round."""


def play_all(
    directory: Path, door: str, cases: int, *, store: str = "files", cli_path: str | None = None
) -> None:
    total: Counter[str] = Counter()
    for start in range(0, cases, STEP):
        seed = 1000 * int(SEED) + start
        some = min(STEP, cases - start)
        at_once = 8 if cli_path is None else 3
        round = Round(
            seed=seed, door=door, cases=some, store=store, cli_path=cli_path, at_once=at_once
        )
        total += check(play(round, directory / str(start)))
    print(door, store, dict(total))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("number", range(HISTORIES // STEP))
def test_50_histories_of_a_fleet_whose_workers_are_killed(
    kind: str, number: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    database = database_of(kind, request, tmp_path)

    async def wait() -> None:
        await settled(database)

    run(wait)
    round = Round(seed=1000 * int(SEED) + number, door="fleet", cases=STEP, kills=3)
    histories = play(round, tmp_path / "round", database)
    cut_off = sum(end.is_cut_off for one in histories for end in one.of(Ended))
    print(dict(check(histories)), "in the middle of a call:", cut_off)


@pytest.mark.parametrize("store", ["files", "sqlite", "plain"])
def test_100_histories_of_conversations(tmp_path: Path, store: str) -> None:
    play_all(tmp_path, "resume", 100, store=store)


def test_100_histories_of_a_pool(tmp_path: Path) -> None:
    play_all(tmp_path, "pool", 100, store="sqlite")


@pytest.mark.parametrize("door", ["fleet", "resume", "pool"])
@pytest.mark.parametrize("cli_path", [newest(), OLDER], ids=["newest", "2.1.197"])
def test_10_histories_on_a_real_cli(tmp_path: Path, door: str, cli_path: Path | None) -> None:
    assert cli_path is not None
    store = "sqlite" if door == "pool" else "files"
    play_all(tmp_path, door, 10, store=store, cli_path=str(cli_path))
