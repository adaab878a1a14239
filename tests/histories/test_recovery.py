"""Histories of recoveries keep their promises, and the judge notices each one that is broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.histories.recovery import LEASE, History, Left, Memory, Plan, check, judge, play
from tests.support.limits import SetLimits
from tests.support.stored import assistant, call, result, user

from bridle import Outcome, OutcomeReason
from bridle.sessions._journal import (
    JournalEntry,
    PromptEntry,
    ReceivedEntry,
    ToolCallEntry,
    ToolResultEntry,
)
from bridle.sessions._recovery_texts import KNOWN, UNKNOWN
from bridle.sessions._transcripts.transcript import entries_of_objects
from bridle.testing import FakeCli
from bridle.testing.fake_cli import FLAVOURS

SESSIONS = 3
"""Sessions of each program. All of them are killed at the same moment."""


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    set_limits(lease=LEASE)
    return tmp_path


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("recoveries", [3, 1, 0, 2])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_each_call_acts_once_and_each_prompt_has_one_outcome(
    places: Path, flavour: str, recoveries: int
) -> None:
    kill_and_recover(places, recoveries + 10 * FLAVOURS.index(flavour), flavour, recoveries)


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_same_holds_if_clis_crash_before_their_programs(places: Path, flavour: str) -> None:
    kill_and_recover(places, FLAVOURS.index(flavour), flavour, 2, crashes=0.25)


def kill_and_recover(
    places: Path, seed: int, flavour: str, recoveries: int, crashes: float = 0.0
) -> tuple[int, int]:
    """Play a round, and check its histories. Return how many kills and histories there were."""
    with FakeCli.auto(flavour=flavour, transcripts=True, lifetime=900) as cli:
        plan = Plan(
            seed=seed,
            sessions=SESSIONS,
            directory=str(places),
            options={"cli_path": cli.path, "cwd": str(places)},
            crashes=crashes,
        )
        played = play(plan, recoveries)
    check(played.histories)
    return played.kills, len(played.histories)


# ---------------------------------------------------------------- the judge

ASKED = "This is s0p0.\nTASK x"
NAMED = f'{UNKNOWN}\n- mcp__tools__append {{"line":"x"}}\n\nContinue.'


def prompt(uuid: str, content: str, **more: Any) -> PromptEntry:
    return PromptEntry(uuid=f"j-{uuid}", at=0, prompt_uuid=uuid, content=content, cwd="/", **more)


def called(id: str, prompt: str) -> ToolCallEntry:
    return ToolCallEntry(
        uuid=f"j-{id}",
        at=0,
        tool_use_id=id,
        tool_name="mcp__tools__append",
        tool_input={"line": "x"},
        prompt_uuid=prompt,
        idempotency_key="k",
    )


def sound() -> History:
    """Return a history without a fault: a call is cut off, repeated, and then done."""
    journal: list[JournalEntry] = [prompt("p", ASKED), called("t1", "p")]
    again: list[JournalEntry] = [prompt("c", NAMED, continues="p"), called("t2", "c")]
    again += [ToolResultEntry(uuid="r", at=0, tool_use_id="t2")]
    received = ReceivedEntry(uuid="e", at=0, prompt_uuid="p")
    made = {**call("t1"), "input": {"line": "x"}}
    asked = entries_of_objects([user("p", None, ASKED), assistant("a", "p", made)])
    return History(
        session="s",
        story=[],
        log=[{"session": "s", "sent": "p"}],
        left=[Left(journal, asked, 1), Left([*journal, *again, received], asked, 2)],
        effects=[{"line": "x", "key": "k", "id": id} for id in ("t1", "t2")],
        outcomes=[Outcome(reason=OutcomeReason.COMPLETED, uuid="p")],
        more=[],
    )


def test_a_sound_history_has_no_fault() -> None:
    assert judge(sound()) == []


def changed(number: int, *entries: JournalEntry) -> History:
    """The history with other entries in a journal."""
    history = sound()
    history.left[number] = structs.replace(history.left[number], journal=list(entries))
    return history


def test_the_judge_notices_outcomes_that_are_missing_wrong_or_repeated() -> None:
    assert "the recovery returned []" in judge(structs.replace(sound(), outcomes=[]))[0]
    failed = Outcome[Any](reason=OutcomeReason.STOPPED, uuid="p")
    assert "ended as stopped" in judge(structs.replace(sound(), outcomes=[failed]))[0]
    assert "another one returned" in judge(structs.replace(sound(), more=[failed]))[0]
    log = [*sound().log, {"session": "s", "sent": "q"}]
    assert "['q'] were lost" in judge(structs.replace(sound(), log=log))[0]
    log = [{"session": "s", "outcome": "p"}, *sound().log]
    assert "count as open" in judge(structs.replace(sound(), log=log))[0]


def test_the_judge_notices_prompts_that_are_sent_again_or_name_the_wrong_calls() -> None:
    entries = sound().left[1].journal
    resent = structs.replace(prompt("p", ASKED, continues="p"), uuid="j-again")
    again = judge(changed(1, entries[0], entries[1], resent))
    assert any("sent again" in one for one in again)
    unnamed = [structs.replace(one, content="Go on.") if one.uuid == "j-c" else one
               for one in entries]  # fmt: skip
    assert any("were uncertain" in one for one in judge(changed(1, *unnamed)))
    done = ToolResultEntry(uuid="r1", at=0, tool_use_id="t1")
    assert any("ran again" in one for one in judge(changed(0, *entries[:2], done)))


def test_the_judge_notices_a_call_that_runs_twice_without_a_kill() -> None:
    history = sound()
    history.effects.append({"line": "x", "key": "k", "id": "t3"})
    history.left[1] = structs.replace(history.left[1], effects=3)
    assert "more than once: ['k']" in judge(history)[0]


def test_the_judge_notices_calls_with_two_keys_or_none() -> None:
    two = [{**fact, "key": fact["id"]} for fact in sound().effects]
    assert "whose keys are" in judge(structs.replace(sound(), effects=two))[0]
    assert "whose keys are None" in judge(structs.replace(sound(), effects=[]))[0]


@pytest.mark.parametrize("is_in_result", [True, False], ids=["2.1.327", "2.1.197"])
def test_the_model_reads_a_prompt_that_the_cli_sends_with_a_tool_result(is_in_result: bool) -> None:
    told: Any = {"type": "text", "text": "<system-reminder>\nThe user sent:\nTASK b\n\nGo on."}
    content: list[Any] = [{"type": "text", "text": "appended a"}]
    done: Any = {"type": "tool_result", "content": [*content, told] if is_in_result else content}
    memory = Memory()
    memory.message("user", "TASK a")
    memory.message("user", [done] if is_in_result else [done, told])
    assert memory.to_do == ["b"]


def test_the_model_makes_the_calls_that_are_missing_or_uncertain() -> None:
    memory = Memory()
    memory.message("user", "TASK a\nTASK b\nTASK b\nTASK c")
    memory.message("user", result("appended a"))
    memory.message("user", [{"type": "tool_result", "content": "appended b"}])
    assert memory.to_do == ["b", "c"]
    named = '- mcp__tools__append {{"line":"{}"}}'.format
    notice = f"{UNKNOWN}\n{named('b')}\n\n{KNOWN}\n{named('c')}\n"
    memory.message("user", [{"type": "text", "text": notice}])
    assert memory.to_do == ["b"]
    memory.message("user", notice.replace('"b"', '"a"'))
    assert memory.to_do == ["a", "b"]
    memory.result("appended b")
    assert memory.to_do == ["a"]
