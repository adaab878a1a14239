"""200 histories of leases on each kind of store. ``BRIDLE_SOAK`` is the seed."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from tests.histories.leases import LEASE, SESSIONS
from tests.histories.test_leases import play_and_judge
from tests.support.stores import DATABASES

SEED = os.environ.get("BRIDLE_SOAK", "")
HISTORIES = int(os.environ.get("BRIDLE_SOAK_HISTORIES", "200"))
"""How many histories on each kind of store."""

LEASE_SECONDS = float(os.environ.get("BRIDLE_SOAK_LEASE", LEASE))
"""Seconds of a lease. A busy machine needs more: nothing can be shown if no lease is kept."""

pytestmark = pytest.mark.skipif(not SEED, reason="takes most of an hour: `make soak` runs it")


@pytest.mark.parametrize("kind", DATABASES)
@pytest.mark.parametrize("number", range(-(-HISTORIES // SESSIONS)))
def test_what_was_acknowledged_stays(
    kind: str, number: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    histories = play_and_judge(kind, int(SEED) * 10_000 + number, request, tmp_path, LEASE_SECONDS)
    found = Counter[str]()
    for history in histories:
        found["histories"] += 1
        found["failed after a lapse"] += any("failed" in fact for fact in history.facts["a"])
        found["taken over"] += any("acknowledged" in fact for fact in history.facts["b"])
        found["acknowledged turns"] += sum(
            bool(fact.get("ok")) for facts in history.facts.values() for fact in facts
        )
    print(kind, histories[0].story[0], dict(found))
