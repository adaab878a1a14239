"""45,000 acknowledged batches, and 102 killed programs. ``BRIDLE_SOAK`` is the seed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.histories.batches import judge, play
from tests.support.stores import DATABASES, open_place

SEED = os.environ.get("BRIDLE_SOAK", "")

pytestmark = pytest.mark.skipif(not SEED, reason="takes most of an hour: `make soak` runs it")


@pytest.mark.parametrize("kind", DATABASES)
def test_acknowledged_batches_stay_when_their_programs_are_killed(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = open_place(kind, request, tmp_path)
    history = play(place, tmp_path / "round", int(SEED), batches=15_000, kills=34)
    assert judge(history) == []
    lost = len(history.sent) - len(history.acknowledged)
    print(kind, len(history.acknowledged), "acknowledged batches,", lost, "without an answer")
