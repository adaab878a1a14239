"""The report of `make mutate`: what counts as killed, and a run that is continued."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

import mutate

CORE = mutate.MUTATED
DIFF = "--- a\n+++ b\n@@ -1 +1 @@\n-    limit = 1\n+    limit = 2\n"


def session_with(path: Path, outcomes: Sequence[str | None]) -> None:
    """Write a session as cosmic-ray does; None stands for a mutant that was not tried yet."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "create table mutation_specs (job_id, module_path, operator_name, occurrence,"
            " start_pos_row, start_pos_col)"
        )
        database.execute("create table work_items (job_id)")
        database.execute("create table work_results (job_id, test_outcome, diff)")
        for number, outcome in enumerate(outcomes):
            job = f"job {number}"
            row = (job, f"{CORE}/one.py", "core/NumberReplacer", number, number + 1, 0)
            database.execute("insert into mutation_specs values (?, ?, ?, ?, ?, ?)", row)
            database.execute("insert into work_items values (?)", (job,))
            if outcome is not None:
                result = (job, outcome, DIFF)
                database.execute("insert into work_results values (?, ?, ?)", result)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one module in its core, and ten possible mutants of it."""
    for name in (CORE, "tests", "tools"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / CORE / "one.py").write_text("limit = 1\n")
    (tmp_path / "tools/equivalent_mutants.toml").write_text("equivalent = []\n")
    monkeypatch.setattr(mutate, "REPOSITORY", tmp_path)

    def copy_repository(directory: Path) -> None:
        (directory / CORE).mkdir(parents=True)
        (directory / CORE / "one.py").write_text("limit = 1\n")
        session_with(directory / "session.sqlite", [None] * 10)

    monkeypatch.setattr(mutate, "copy_repository", copy_repository)
    return tmp_path


def test_only_mutants_that_were_tried_count(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session_with(checkout / "session.sqlite", ["KILLED"] * 9 + ["SURVIVED", None, None])
    assert mutate.report([checkout], 12) == 0
    told = capsys.readouterr().out
    assert f"survived: {CORE}/one.py:10 NumberReplacer\n  - limit = 1\n  + limit = 2\n" in told
    assert "10 of 12 were tried" in told
    assert "9 of 10 mutants killed: 90.0%" in told


def test_too_many_survivors_fail_the_run(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session_with(checkout / "session.sqlite", ["KILLED"] * 8 + ["SURVIVED"] * 2)
    assert mutate.report([checkout], 10) == 1
    assert "8 of 10 mutants killed: 80.0%" in capsys.readouterr().out


def test_an_equivalent_mutant_does_not_count_and_its_reason_is_printed(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "tools/equivalent_mutants.toml").write_text(
        '[[equivalent]]\nline = "limit = 1"\nbecomes = "limit = 2"\nreason = "it is the same"\n'
    )
    session_with(checkout / "session.sqlite", ["KILLED", "SURVIVED"])
    assert mutate.report([checkout], 2) == 0
    told = capsys.readouterr().out
    assert f"equivalent: {CORE}/one.py:2: it is the same" in told
    assert "1 of 1 mutants killed: 100.0%" in told


def jobs_of(copy: Path) -> list[str]:
    with closing(sqlite3.connect(copy / "session.sqlite")) as database:
        return [job for (job,) in database.execute("select job_id from work_items")]


def test_the_sample_is_shared_among_the_copies_and_depends_on_the_seed(checkout: Path) -> None:
    work = checkout / "work"
    copies = mutate.prepare(work, sample=6, seed=1, jobs=2)
    assert sorted(map(len, map(jobs_of, copies))) == [3, 3]
    first = {job for copy in copies for job in jobs_of(copy)}
    [other] = mutate.prepare(work, sample=6, seed=2, jobs=1)
    assert len(first) == 6
    assert set(jobs_of(other)) != first


def test_a_run_continues_unless_the_code_has_changed(checkout: Path) -> None:
    work = checkout / "work"
    [copy] = mutate.prepare(work, sample=2, seed=1, jobs=1)
    (copy / CORE / "one.py").write_text("limit = 2\n")  # a mutant that was left in place
    (copy / "result").touch()
    assert mutate.prepare(work, sample=2, seed=1, jobs=1) == [copy]
    assert (copy / "result").exists()
    assert (copy / CORE / "one.py").read_text() == "limit = 1\n"
    (checkout / CORE / "one.py").write_text("limit = 3\n")
    mutate.prepare(work, sample=2, seed=1, jobs=1)
    assert not (copy / "result").exists()


def test_no_mutant_is_tried_if_the_tests_fail_without_one(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutate, "trial_command", lambda: ["sh", "-c", "echo no such file; exit 1"])
    with pytest.raises(SystemExit, match="no such file"):
        mutate.measure(checkout)
