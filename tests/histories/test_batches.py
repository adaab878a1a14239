"""A store keeps the batches that it has acknowledged, whatever happens to the programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.histories.batches import SESSIONS, Batch, History, judge, play
from tests.support.stores import DATABASES, open_place


def sound() -> History:
    """Return a history without a fault: the last batch of each program had no answer."""
    sent = [
        Batch(session, life, number, 2)
        for session in range(SESSIONS)
        for life in range(2)
        for number in range(3)
    ]
    # Of the batches without an answer, the store has every second one.
    stored = [
        [uuid for one in sent if one.session == session for uuid in one.uuids if kept(one)]
        for session in range(SESSIONS)
    ]
    return History(sent, {one for one in sent if one.number < 2}, stored)


def kept(batch: Batch) -> bool:
    return batch.number < 2 or batch.session % 2 == 1


def test_a_sound_history_has_no_fault() -> None:
    assert judge(sound()) == []


def test_without_a_lease_programs_may_append_at_the_same_time() -> None:
    history = sound()
    first, later = history.stored[0][:4], history.stored[0][4:]
    history.stored[0] = later[:2] + first + later[2:]
    assert judge(history) == []


def a_batch_is_lost(history: History) -> None:
    del history.stored[0][2:4]


def a_batch_is_torn(history: History) -> None:
    del history.stored[1][5:6]


def another_batch_is_between(history: History) -> None:
    entries = history.stored[0]
    entries[1], entries[2] = entries[2], entries[1]


def a_batch_is_stored_twice(history: History) -> None:
    history.stored[0] += history.stored[0][:2]


def batches_change_places(history: History) -> None:
    entries = history.stored[0]
    entries[0:4] = entries[2:4] + entries[0:2]


def a_batch_comes_after_the_lease_was_lost(history: History) -> None:
    entries = history.stored[1]
    entries[4:8] = entries[6:8] + entries[4:6]


def an_entry_comes_from_nowhere(history: History) -> None:
    history.stored[2].append("9-9-9")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (a_batch_is_lost, "batch 0-1 was acknowledged and is lost"),
        (a_batch_is_torn, "batch 0-2 is torn"),
        (another_batch_is_between, "batch 0-0 is torn"),
        (a_batch_is_stored_twice, "batch 0-0 is stored twice"),
        (batches_change_places, "batch 0-0 is out of order"),
        (a_batch_comes_after_the_lease_was_lost, "batch 0-2 is out of order"),
        (an_entry_comes_from_nowhere, "9-9-9 was never sent"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_the_judge_notices(change: Callable[[History], None], fault: str) -> None:
    history = sound()
    change(history)
    assert any(fault in one for one in judge(history)), judge(history)


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("kind", DATABASES)
def test_acknowledged_batches_stay_when_their_programs_are_killed(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = open_place(kind, request, tmp_path)
    history = play(place, tmp_path / "round", 1, batches=60, kills=3)
    assert judge(history) == []
    assert len(history.acknowledged) >= 60
