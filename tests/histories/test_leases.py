"""A program that was frozen or cut off does not undo what another one has done meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.histories.leases import LEASE, History, judge, play, report
from tests.support.stores import DATABASES, open_place

WARNING = "An entry of the conversation is in the spool file /spool/one."


def sent(text: str, *, ok: bool = True) -> dict[str, Any]:
    return {"at": 1.0, "acknowledged": text, "ok": ok, "reason": "completed"}


def sound() -> History:
    """Return a history without a fault: `a` came back too late, and its last turn is spooled."""
    failed = {"at": 2.0, "failed": "The session is in use by another process."}
    return History(
        session="s",
        story=["freeze a"],
        facts={
            "a": [sent("a1"), sent("a2"), failed, {"at": 2.0, "warning": WARNING}],
            "b": [sent("b1"), sent("b2", ok=False)],
            "c": [sent("c1")],
        },
        shown=[
            ("b has closed", ["a1", "b1"]),
            ("a and b have ended", ["a1", "b1"]),
            ("c has ended", ["a1", "b1", "c1"]),
        ],
        spooled={"a": "SAY a2", "b": "", "c": ""},
        killed=[],
    )


def test_a_sound_history_has_no_fault() -> None:
    assert judge(sound()) == []


def test_a_program_that_was_killed_names_nothing() -> None:
    history = sound()
    history.killed = ["a"]
    history.facts["a"] = [sent("a1"), sent("a2")]
    assert judge(history) == []


def test_a_session_that_ended_while_the_store_was_away_names_its_file() -> None:
    history = sound()
    warning = "2 entries are not in the store, but in /spool/one."
    history.facts["a"][2:] = [{"at": 2.0, "warning": warning}]
    assert judge(history) == []


def turns_vanish(history: History) -> None:
    """The store shows the branch of `a` only: the fault that led to these histories."""
    history.shown[1:] = [(when, ["a1", "a2"]) for when, _ in history.shown[1:]]


def a_turn_is_shown_for_a_while(history: History) -> None:
    history.shown[1] = ("a and b have ended", ["a1", "a2", "b1"])


def a_session_goes_on_without_a_word(history: History) -> None:
    history.facts["a"] = [fact for fact in history.facts["a"] if "failed" not in fact]


def a_session_fails_for_another_reason(history: History) -> None:
    history.facts["a"][2] = {"at": 2.0, "failed": "The CLI exited."}


def no_file_is_named(history: History) -> None:
    history.facts["a"].pop()


def the_spool_lacks_a_turn(history: History) -> None:
    history.spooled["a"] = ""


def a_turn_of_the_other_is_lost(history: History) -> None:
    history.shown = [(when, [one for one in texts if one != "b1"]) for when, texts in history.shown]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (turns_vanish, "b1 was shown when b has closed, and not when"),
        (a_turn_is_shown_for_a_while, "a2 was shown when a and b have ended, and not when c"),
        (a_session_goes_on_without_a_word, "a: ['a2'] are not shown, and the session did not fail"),
        (a_session_fails_for_another_reason, "the session did not fail"),
        (no_file_is_named, "a: ['a2'] are not shown, and no warning names their file"),
        (the_spool_lacks_a_turn, "a: ['a2'] are neither shown nor in a spool file"),
        (a_turn_of_the_other_is_lost, "b: ['b1'] are not shown, and the session did not fail"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_the_judge_notices(change: Callable[[History], None], fault: str) -> None:
    history = sound()
    change(history)
    assert any(fault in one for one in judge(history)), judge(history)


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", DATABASES)
def test_what_was_acknowledged_stays(
    kind: str, seed: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    assert play_and_judge(kind, seed, request, tmp_path)


def play_and_judge(
    kind: str,
    seed: int,
    request: pytest.FixtureRequest,
    directory: Path,
    lease: float = LEASE,
) -> list[History]:
    """Play a round, and check each of its histories."""
    place = open_place(kind, request, directory)
    histories = play(place, directory / f"round-{seed}", seed, lease)
    wrong = [report(problems, history) for history in histories if (problems := judge(history))]
    assert not wrong, "\n\n".join(wrong)
    return histories
