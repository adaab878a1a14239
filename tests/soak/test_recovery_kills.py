"""A thousand kills of programs and of their recoveries. ``BRIDLE_SOAK`` is the seed.

``BRIDLE_KILLS`` is another number of kills on the fake CLI. A tenth of them is made on each real
CLI.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.histories import test_recovery as fake
from tests.histories.recovery import LEASE
from tests.real import test_recovery_kills as real
from tests.real.conftest import OLDER, newest
from tests.support.limits import SetLimits

from bridle.testing.fake_cli import FLAVOURS

SEED = os.environ.get("BRIDLE_SOAK", "")
KILLS = int(os.environ.get("BRIDLE_KILLS", "1000"))
PARTS = 4
"""Tests that share the kills, so that they run at the same time."""

pytestmark = pytest.mark.skipif(not SEED, reason="takes minutes: `make soak` runs it")


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    set_limits(lease=LEASE)
    return tmp_path


def play_until(
    kills: int,
    play: Callable[[Path, int, int], tuple[int, int]],
    part: int,
    places: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Play rounds with up to three killed recoveries until there were so many kills."""
    made = histories = number = 0
    while made < kills:
        seed = int(SEED) * 100_000 + part * 10_000 + number
        place = places / str(seed)
        place.mkdir()
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(place / "config"))
        some, more = play(place, seed, number % 4)
        made, histories, number = made + some, histories + more, number + 1
        print(f"seed {seed}: {made} kills, {histories} histories", flush=True)


@pytest.mark.parametrize("part", range(PARTS))
def test_programs_on_the_fake_cli(places: Path, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def play(place: Path, seed: int, recoveries: int) -> tuple[int, int]:
        flavour = FLAVOURS[seed // 4 % len(FLAVOURS)]
        # In every second part, CLIs also crash while their programs live on.
        return fake.kill_and_recover(place, seed, flavour, recoveries, 0.25 * (part % 2))

    play_until(KILLS // PARTS, play, part, places, monkeypatch)


@pytest.mark.parametrize("age", ["newest", "older"])
def test_programs_on_a_real_cli(places: Path, age: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = OLDER if age == "older" else newest()
    if path is None or not path.exists():
        pytest.skip("this CLI is not installed: `make setup` fetches it")

    def play(place: Path, seed: int, recoveries: int) -> tuple[int, int]:
        return real.kill_and_recover(str(path), place, seed, recoveries)

    play_until(KILLS // 10, play, PARTS, places, monkeypatch)
