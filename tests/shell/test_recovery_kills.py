"""A program and its CLIs are killed at random moments, then recovered, on the fake CLI."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.support.kills import LEASE, Plan, check, kill_program, recover_all, wait_gone
from tests.support.processes import run

from bridle.testing import FakeCli

SESSIONS = 5
"""Sessions of each program. All of them are killed at the same moment."""


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setattr("bridle._shell.leases.LEASE", LEASE)
    return tmp_path


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_program_is_recovered(places: Path, seed: int) -> None:
    kill_and_recover(places, seed)


@pytest.mark.parametrize("seed", range(2))
def test_a_killed_recovery_is_recovered(places: Path, seed: int) -> None:
    kill_and_recover(places, seed, recoveries=2)


def kill_and_recover(
    places: Path, seed: int, sessions: int = SESSIONS, recoveries: int = 0
) -> list[str]:
    """Kill a program, and some recoveries, and recover. Return what was done again."""
    chance = random.Random(seed)
    with FakeCli.auto(transcripts=True) as cli:
        plan = Plan(
            seed=seed,
            sessions=sessions,
            directory=str(places),
            options={"cli_path": cli.path, "cwd": str(places)},
        )
        killed = kill_program(plan, chance.uniform(0, 1.2), cli_first=chance.random() < 0.5)
        for _ in range(recoveries):
            plan = structs.replace(plan, recovers=killed.sessions)
            killed = kill_program(plan, chance.uniform(0, 1.2), cli_first=False)
            (places / "recoveries").unlink()
            facts: list[Any] = [one.members for found in cli.runs for one in found]
            for pid in [one["pid"] for one in facts if "argv" in one]:
                wait_gone(pid)
        before = len(cli.runs)

        def first_prompt(session_id: str) -> str:
            """The first prompt that a recovery has sent."""
            for found in cli.runs[before:]:
                lines: list[Any] = [one.members for one in found]
                if any(session_id in str(one.get("argv")) for one in lines):
                    told = [one for one in lines if one.get("type") == "user" and "uuid" in one]
                    return "" if not told else str(told[0]["message"]["content"])
            return ""

        done: list[str] = []

        async def main() -> None:
            for one in await recover_all(killed, places / "config", first_prompt):
                done.extend(check(killed, one))

        run(main)
        return done
