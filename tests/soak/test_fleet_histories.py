"""200 histories of a fleet, none of which breaks a promise. ``BRIDLE_SOAK`` is the seed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.histories.fleet import History, case_of, judge, play
from tests.shell.test_fleet_kills import database_of, settled
from tests.support.processes import run

pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")

SEED = os.environ.get("BRIDLE_SOAK", "")
HISTORIES = int(os.environ.get("BRIDLE_SOAK_HISTORIES", "200"))
"""How many histories, half of them on each kind of database."""

pytestmark = pytest.mark.skipif(not SEED, reason="takes most of an hour: `make soak` runs it")


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("number", range(HISTORIES // 2))
def test_no_history_breaks_a_promise(
    kind: str, number: int, request: pytest.FixtureRequest, places: Path
) -> None:
    database = database_of(kind, request, places)
    case = case_of(int(SEED) * 100_000 + number)

    async def main() -> History:
        await settled(database)
        return await play(case, database, places)

    assert judge(run(main, timeout=900)) == [], case
