"""``bridle runs`` and ``bridle work``: the runs of a fleet on the command line."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import run

from bridle import Agent
from bridle.cli import main
from bridle.outcomes import OutcomeReason
from bridle.testing import FakeCli

pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")

import bridle.fleet._queue.rows
from bridle.cli.runs import table
from bridle.fleet import Fleet, RunInfo, RunStatus

APP = """
import os
from bridle import Agent
from bridle.fleet import Fleet
fleet = Fleet(Agent(cli_path=os.environ["APP_CLI"], cwd="."), "sqlite:///runs.db")
other = 3
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path


def test_the_table_has_a_line_for_each_run() -> None:
    infos = [
        RunInfo(
            id="0123456789",
            session_id="s1",
            status=RunStatus.COMPLETED,
            prompt="Sort.\nNow.",
            submitted_at=1000.0,
            starts=2,
            cost_usd=0.5,
            worker="host-1-abcd",
            reason=OutcomeReason.COMPLETED,
        ),
        RunInfo(
            id="abcdefghij",
            session_id="s2",
            status=RunStatus.QUEUED,
            prompt="x",
            key="pr-1",
            submitted_at=1e3,
        ),
    ]
    head, first, second, counts = table(infos, 1000.0 + 7200)
    assert head.split() == ["RUN", "STATUS", "AGE", "STARTS", "USD", "WORKER", "PROMPT"]
    assert first.split() == [
        "01234567",
        "completed",
        "2h",
        "2",
        "0.5000",
        "host-1-abcd",
        *["Sort.", "Now."],
    ]
    assert second.split() == ["abcdefgh", "queued", "2h", "0", "pr-1"]
    assert counts == "completed: 1  queued: 1"
    assert table([], 0.0) == ["There are no runs."]


def test_runs_are_listed_shown_and_cancelled(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{home}/runs.db"

    async def submit() -> str:
        async with Fleet(Agent(), url) as fleet:
            await fleet.submit("Sort.", key="one")
            return (await fleet.submit("Count.", tenant="acme", delay=60)).id

    run_id = run(submit)

    def said(*words: str, code: int = 0) -> str:
        assert main(["runs", *words, "--database", url]) == code
        found = capsys.readouterr()
        return found.out + found.err

    assert "queued" in said()
    assert "delayed" in said("list", "--tenant", "acme")
    assert "There are no runs." in said("--status", "failed")
    (line,) = said("--json", "--tenant", "acme").splitlines()
    assert json.loads(line)["id"] == run_id
    assert "status:    queued" in said("show", "one")
    assert "tenant:    acme" in said("show", run_id[:8])
    for word in (run_id[:8], run_id):
        refused = said("cancel", word, "--tenant", "globex", code=2)
        assert "names no run of the tenant 'globex'" in refused
    assert "names no run" in said("show", "%%%%", code=2)
    assert "tenant:    acme" in said("show", run_id, "--tenant", "acme")
    assert "is cancelled" in said("cancel", run_id)
    assert "does not wait" in said("approve", "one", "--call", "toolu_1", code=1)
    assert "does not wait" in said("approve", "one", "--call", "x", "--deny", "no", code=1)
    assert "--call" in said("approve", "one", "--deny", "no", code=2)
    assert "--call" in said("approve", "one", code=2)
    assert "--call" in said("approve", "one", "--input", "{}", code=2)
    assert "names no run" in said("show", "nothing", code=2)
    assert "must be one run" in said("show", code=2)
    assert "must be one of" in said("sort", code=2)
    assert "is not JSON" in said("approve", "one", "--input", "{", code=2)


def test_the_start_of_an_id_is_looked_up_without_reading_other_runs(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{home}/runs.db"

    async def submit() -> str:
        async with Fleet(Agent(), url) as fleet:
            runs = [await fleet.submit("x") for _ in range(20)]
            return runs[0].id

    run_id = run(submit)
    read: list[str] = []
    original = bridle.fleet._queue.rows.row_of

    def row_of(one: Any, *arguments: Any, **options: Any) -> Any:
        read.append(one.workflow_id)
        return original(one, *arguments, **options)

    monkeypatch.setattr("bridle.fleet._queue.dbos_queue.row_of", row_of)
    assert main(["runs", "show", run_id[:8], "--database", url]) == 0
    assert run_id in capsys.readouterr().out
    assert set(read) == {run_id}


def test_a_fleet_is_named_by_its_module(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "runs_app.py").write_text(APP)
    monkeypatch.setenv("APP_CLI", "/bin/true")
    monkeypatch.syspath_prepend(str(home))
    assert main(["runs", "--fleet", "runs_app:fleet"]) == 0
    assert "There are no runs." in capsys.readouterr().out
    monkeypatch.setenv("BRIDLE_FLEET", "runs_app:fleet")
    assert main(["runs"]) == 0
    for given in ("runs_app", "missing_app:fleet", "runs_app:other", "runs_app:none"):
        assert main(["runs", "--fleet", given]) == 2
    monkeypatch.delenv("BRIDLE_FLEET")
    assert main(["runs"]) == 2
    assert "BRIDLE_FLEET" in capsys.readouterr().err


def test_a_worker_ends_on_sigterm(home: Path) -> None:
    (home / "app.py").write_text(APP)

    async def work() -> None:
        with FakeCli.auto(transcripts=True) as cli:
            worker = subprocess.Popen(
                [sys.executable, "-m", "bridle", "work", "app:fleet", "--at-once", "2"],
                env=os.environ | {"APP_CLI": cli.path},
                stderr=subprocess.PIPE,
                cwd=home,
            )
            try:
                async with Fleet(Agent(), f"sqlite:///{home}/runs.db") as fleet:
                    one = await fleet.submit("SAY Fine.")
                    assert (await one.outcome(timeout=120)).text == "Fine."
                worker.send_signal(signal.SIGTERM)
                _, said = await asyncio.to_thread(worker.communicate, None, 60)
            finally:
                worker.kill()
            assert worker.returncode == 0
            assert b"has started" in said
            assert b"has ended" in said
            assert b"Traceback" not in said

    run(work, timeout=300)
