"""A thousand kills of CLIs whose runs `retry` continues. ``BRIDLE_SOAK`` is the seed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.histories.retries import STORES
from tests.histories.test_retries import kill_and_retry

from bridle.testing.fake_cli import FLAVOURS

SEED = os.environ.get("BRIDLE_SOAK", "")
KILLS = int(os.environ.get("BRIDLE_KILLS", "1000"))

pytestmark = pytest.mark.skipif(not SEED, reason="takes minutes: `make soak` runs it")


@pytest.mark.parametrize("store", STORES)
def test_no_run_acts_twice_however_often_its_cli_is_killed(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = number = 0
    while kills < KILLS // len(STORES):
        place = tmp_path / str(number)
        place.mkdir()
        monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(place / "config"))
        flavour = FLAVOURS[number % len(FLAVOURS)]
        kills += kill_and_retry(place, int(SEED) * 100_000 + number, store, flavour)
        number += 1
    print(store, number, "rounds,", kills, "kills")
