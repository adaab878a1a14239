"""Answers that a program has received stay in the conversation, also if it dies right after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.histories.resumed import History, Program, judge, play_and_judge

from bridle.testing.fake_cli import FLAVOURS


# A history fails in seed 4 if a resume does not read the file of the CLI, and in seed 3 if a turn
# that ends does not hurry its entries.
@pytest.mark.longer(after=2)
@pytest.mark.parametrize("seed", [4, 3, 0, 1, 2, 5])
def test_on_the_same_machine_nothing_is_lost(tmp_path: Path, seed: int) -> None:
    play_and_judge(tmp_path / "round", seed, FLAVOURS[seed % len(FLAVOURS)])


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("seed", range(3))
def test_a_store_that_has_lost_entries_gets_them_back(tmp_path: Path, seed: int) -> None:
    play_and_judge(tmp_path / "round", seed, stores=("empty", "older"))


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("seed", [4, 0, 1])  # in seed 4, an answer is lost
def test_on_another_machine_a_warning_says_what_is_lost(tmp_path: Path, seed: int) -> None:
    play_and_judge(tmp_path / "round", seed, machines=("a", "b"))


# ---------------------------------------------------------------- the judge


def answer(text: str, **changes: Any) -> dict[str, Any]:
    return {"received": text, "uuid": f"u-{text}", "session": "s", "ok": True, **changes}


def sound() -> History:
    """Return a history without a fault: the second machine warns of what it lacks."""
    first = Program("a", "run", "kept", [answer("one"), answer("two")], "")
    other = Program("b", "run", "kept", [answer("three")], "The prompts are u-two")
    last = Program("b", "run", "kept", [answer("four")], "")
    return History("s", [first, other, last], ["one", "three", "four"])


def test_a_sound_history_has_no_fault() -> None:
    assert judge(sound()) == []


def test_the_judge_notices_what_is_lost_or_in_disorder() -> None:
    history = sound()
    history.programs[1].warnings = ""
    assert "no warning says" in judge(history)[0]
    shown = ["one", "two", "three"]
    assert "on the same machine" in judge(structs.replace(sound(), shown=shown))[0]
    shown = ["three", "one", "four"]
    assert "in place of" in judge(structs.replace(sound(), shown=shown))[0]


def test_the_judge_lists_the_answers_that_a_store_can_lose() -> None:
    first = Program("a", "run", "kept", [answer("one"), answer("two")], "")
    last = Program("a", "run", "empty", [], "")
    assert "two" in judge(History("s", [structs.replace(first, door="session"), last], ["one"]))[0]
    assert judge(History("s", [first, last], ["one"])) == []
    assert "one" in judge(History("s", [first, last], ["two"]))[0]
    kept = structs.replace(last, store="kept")
    assert "two" in judge(History("s", [first, kept], ["one"]))[0]


def test_the_judge_notices_turns_that_failed_or_went_elsewhere() -> None:
    history = sound()
    history.programs[2].received = [answer("four", ok=False), answer("five", session="t")]
    history.shown.append("five")
    failed, elsewhere = judge(history)
    assert "failed" in failed
    assert "another conversation" in elsewhere
