"""Many histories of resumed conversations and of approved calls. ``BRIDLE_SOAK`` is the seed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.histories.begun_calls import LEASE, STORES
from tests.histories.resumed import play_and_judge
from tests.histories.test_begun_calls import approve_and_kill
from tests.support.limits import SetLimits

from bridle.testing.fake_cli import FLAVOURS

SEED = os.environ.get("BRIDLE_SOAK", "")

pytestmark = pytest.mark.skipif(not SEED, reason="takes minutes: `make soak` runs it")


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(
    "how", [{}, {"stores": ("kept", "empty", "older")}, {"machines": ("a", "b")}], ids=str
)
def test_20_histories_of_a_resumed_conversation(
    tmp_path: Path, flavour: str, how: dict[str, Any]
) -> None:
    for number in range(20):
        seed = int(SEED) * 1000 + number
        play_and_judge(tmp_path / str(number), seed, flavour, **how)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("store", STORES)
def test_40_histories_of_an_approved_call(
    tmp_path: Path, store: str, flavour: str, monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits
) -> None:
    set_limits(lease=LEASE)
    histories = number = 0
    while histories < 40:
        place = tmp_path / str(number)
        place.mkdir()
        monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(place / "config"))
        _, more = approve_and_kill(place, int(SEED) * 1000 + number, store, flavour)
        histories, number = histories + more, number + 1
