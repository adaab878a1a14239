"""Hundreds of killed sessions are recovered. ``BRIDLE_SOAK`` is the seed; see `test_soak`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.real import test_recovery_kills as real
from tests.real.conftest import OLDER, newest
from tests.shell import test_recovery_kills as fake
from tests.support.kills import LEASE

SEED = os.environ.get("BRIDLE_SOAK", "")

pytestmark = pytest.mark.skipif(not SEED, reason="takes minutes: `make soak` runs it")


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setattr("bridle._shell.leases.LEASE", LEASE)
    return tmp_path


@pytest.mark.parametrize("number", range(200 // fake.SESSIONS))
def test_a_program_on_the_fake_cli_is_recovered(places: Path, number: int) -> None:
    repeated = fake.kill_and_recover(places, int(SEED) * 1000 + number)
    print("done again:", ", ".join(repeated) or "nothing")


@pytest.mark.parametrize("age", ["newest", "older"])
@pytest.mark.parametrize("number", range(40 // real.SESSIONS))
def test_a_program_on_a_real_cli_is_recovered(places: Path, age: str, number: int) -> None:
    path = OLDER if age == "older" else newest()
    if path is None or not path.exists():
        pytest.skip("this CLI is not installed: `make setup` fetches it")
    repeated = real.kill_and_recover(str(path), places, int(SEED) * 1000 + number)
    print("done again:", ", ".join(repeated) or "nothing")
