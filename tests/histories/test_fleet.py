"""Histories of a fleet keep its promises, and the judge notices each one that is broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs
from tests.histories.fleet import (
    DAY,
    GIVE_UP,
    SHARED,
    Call,
    Case,
    Change,
    End,
    History,
    Submission,
    judge,
    play,
)
from tests.shell.test_fleet_kills import database_of, settled
from tests.support.processes import run

pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path


# ---------------------------------------------------------------- the judge


def sound() -> History:
    """Return a history without a fault: two tenants, a take-over and a delayed run."""
    submissions = [
        Submission(line="acme-0", tenant="acme", key="k", run_id="a0"),
        Submission(line="globex-1", tenant="globex", key="k", run_id="g1"),
        Submission(line="acme-0", tenant="acme", key="k", run_id="a0", before="acme-0"),
        Submission(line="other", tenant="acme", key="k", before="acme-0"),
        Submission(line="acme-2", tenant="acme", key=None, run_id="a2"),
        Submission(line="acme-late-3", tenant="acme", key=None, run_id="a3", delay=DAY),
    ]
    steps = [
        ("a0", None, "ENQUEUED"),
        ("g1", None, "ENQUEUED"),
        ("a2", None, "ENQUEUED"),
        ("a3", None, "DELAYED"),
        ("a0", "ENQUEUED", "PENDING"),
        ("g1", "ENQUEUED", "PENDING"),
        ("a0", "PENDING", "ENQUEUED"),
        ("a0", "ENQUEUED", "PENDING"),
        ("a0", "PENDING", "SUCCESS"),
        ("g1", "PENDING", "SUCCESS"),
        ("a2", "ENQUEUED", "PENDING"),
        ("a2", "PENDING", "SUCCESS"),
    ]
    changes = [
        Change(number=place, run_id=name, old=old, new=new, worker="w", at=10.0 * place)
        for place, (name, old, new) in enumerate(steps)
    ]
    calls = [
        Call("start", 1, "acme-0"),
        Call("effect", 1, "acme-0", "K"),
        Call("start", 2, "globex-1"),
        Call("died", 1),
        Call("start", 2, "acme-0"),
        Call("effect", 2, "acme-0", "K"),
        Call("end", 2, "acme-0"),
        Call("effect", 2, "globex-1", "L"),
        Call("end", 2, "globex-1"),
        Call("start", 2, "acme-2"),
        Call("effect", 2, "acme-2", "M"),
        Call("end", 2, "acme-2"),
    ]
    ends = [
        End(one, status, f'CALL {{"line": "{line}"}}', line.split("-")[0], "", 1, 0.2)
        for one, line, status in (
            ("a0", "acme-0", "completed"),
            ("g1", "globex-1", "completed"),
            ("a2", "acme-2", "completed"),
            ("a3", "acme-late-3", "delayed"),
        )
    ]
    return History(at_once=1, submissions=submissions, changes=changes, calls=calls, ends=ends)


def test_a_sound_history_is_accepted() -> None:
    assert judge(sound()) == []


def another_tenant_gets_the_run(history: History) -> None:
    history.submissions[1].run_id = "a0"


def another_prompt_is_accepted(history: History) -> None:
    history.submissions[3].run_id = "a0"


def the_same_prompt_is_refused(history: History) -> None:
    history.submissions[2].run_id = None


def the_same_key_is_another_run(history: History) -> None:
    history.submissions[2].run_id = "a2"


def an_acknowledged_run_is_missing(history: History) -> None:
    history.changes = [one for one in history.changes if one.run_id != "a2"]


def a_run_never_ends(history: History) -> None:
    history.ends[2].status = "running"


def a_run_fails(history: History) -> None:
    history.ends[2].status = "failed"


def a_run_has_two_outcomes(history: History) -> None:
    history.changes.append(structs.replace(history.changes[-1], number=99))


def a_side_effect_is_repeated(history: History) -> None:
    history.calls.append(Call("effect", 2, "acme-2", "M"))


def a_repeated_call_has_another_key(history: History) -> None:
    history.calls[5].key = "K2"


def a_side_effect_is_missing(history: History) -> None:
    history.calls = [one for one in history.calls if one.line != "acme-2"]


def the_database_has_too_many_runs(history: History) -> None:
    history.changes.insert(6, history.changes.pop(10))


def the_tools_have_too_many_runs(history: History) -> None:
    history.calls.insert(5, history.calls.pop(9))


def the_fleet_has_too_many_runs(history: History) -> None:
    history.fleet_at_once = 1


def a_later_run_goes_first(history: History) -> None:
    changes = history.changes
    changes[4], changes[10] = (structs.replace(one, at=500.0) for one in (changes[10], changes[4]))


def a_delayed_run_starts(history: History) -> None:
    history.changes.append(Change(99, "a3", "DELAYED", "ENQUEUED", "w", 200.0))
    history.changes.append(Change(100, "a3", "ENQUEUED", "PENDING", "w", 201.0))


def a_tenant_overspends(history: History) -> None:
    history.usd = 0.1


def poisoned(history: History) -> None:
    """Make a run of the history one that kills its workers, and is given up."""
    history.submissions[1].line = "globex-poison-1"
    for call in history.calls:
        call.line = call.line.replace("globex", "globex-poison")
    end = history.ends[1]
    end.prompt = 'CALL {"line": "globex-poison-1"}'
    end.status, end.detail = "failed", "5 workers died while this run was the only one"


def a_poison_run_fails_without_a_reason(history: History) -> None:
    poisoned(history)
    history.ends[1].detail = "stopped"


def a_poison_run_is_not_given_up(history: History) -> None:
    poisoned(history)
    starts = SHARED + GIVE_UP + 1
    history.changes += [Change(99, "g1", "ENQUEUED", "PENDING", "w", 900.0)] * starts


def a_neighbour_is_started_for_a_poison_run(history: History) -> None:
    poisoned(history)
    history.changes += [Change(99, "a2", "ENQUEUED", "PENDING", "w", 900.0)] * (SHARED + 1)


def test_a_sound_history_with_a_poison_run_is_accepted() -> None:
    history = sound()
    poisoned(history)
    assert judge(history) == []


@pytest.mark.parametrize(
    ("fault", "promise"),
    [
        (another_tenant_gets_the_run, "keys"),
        (another_prompt_is_accepted, "keys"),
        (the_same_prompt_is_refused, "keys"),
        (the_same_key_is_another_run, "keys"),
        (an_acknowledged_run_is_missing, "lost"),
        (a_run_never_ends, "lost"),
        (a_run_fails, "outcomes"),
        (a_run_has_two_outcomes, "outcomes"),
        (a_side_effect_is_repeated, "effects"),
        (a_repeated_call_has_another_key, "effects"),
        (a_side_effect_is_missing, "effects"),
        (the_database_has_too_many_runs, "at_once"),
        (the_tools_have_too_many_runs, "at_once"),
        (the_fleet_has_too_many_runs, "at_once"),
        (a_later_run_goes_first, "order"),
        (a_delayed_run_starts, "delays"),
        (a_tenant_overspends, "dollars"),
        (a_poison_run_fails_without_a_reason, "outcomes"),
        (a_poison_run_is_not_given_up, "poison"),
        (a_neighbour_is_started_for_a_poison_run, "poison"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_broken_promise_is_noticed(fault: Callable[[History], None], promise: str) -> None:
    history = sound()
    fault(history)
    assert promise in {one.partition(":")[0] for one in judge(history)}


# ---------------------------------------------------------------- real histories


CLOCKS = Case(seed=2, runs=7, usd=0.0004, kills=1, skews=(2 * DAY, 0.0, -2 * DAY))
POISON = Case(seed=3, runs=5, at_once=3, poison=1)


@pytest.mark.longer(after=1)
@pytest.mark.parametrize(
    ("kind", "case"),
    [
        pytest.param("sqlite", CLOCKS, id="clocks-sqlite"),
        pytest.param("postgres", CLOCKS, id="clocks-postgres"),
        pytest.param("sqlite", POISON, id="poison-sqlite"),
    ],
)
def test_a_history_breaks_no_promise(
    kind: str, case: Case, request: pytest.FixtureRequest, places: Path
) -> None:
    database = database_of(kind, request, places)

    async def main() -> History:
        await settled(database)
        return await play(case, database, places)

    assert judge(run(main, timeout=600)) == []
