"""A program, its recoveries and their CLIs are killed at random moments, on the real CLIs.

The model is in this process and outlives the program.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.histories.recovery import LEASE, NAME, Memory, Plan, check, play
from tests.support.limits import SetLimits

from bridle.testing import ModelRequest, Reply, ScriptedModel, text, tool_use

if TYPE_CHECKING:
    from tests.real.conftest import Lab

SESSIONS = 2
"""Sessions of each program. All of them are killed at the same moment."""


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    set_limits(lease=LEASE)
    return tmp_path


def model_of(request: ModelRequest) -> Reply:
    """Make the calls that are missing, one after the other."""
    memory = Memory()
    for message in request.messages:
        memory.message(message.get("role"), message.get("content"))
    calls = [tool_use(NAME, line=line) for line in memory.to_do]
    return Reply(blocks=(calls[0],) if calls else (text("Done."),))


@pytest.mark.longer
@pytest.mark.parametrize("recoveries", [0, 2])
def test_a_killed_program_is_recovered(lab: Lab, places: Path, recoveries: int) -> None:
    kill_and_recover(lab.cli_path, places, recoveries, recoveries)


def kill_and_recover(cli_path: str, places: Path, seed: int, recoveries: int) -> tuple[int, int]:
    """Play a round, and check its histories. Return how many kills and histories there were."""
    work = places / "work"
    work.mkdir(exist_ok=True)
    with ScriptedModel(model_of) as model:
        config = str(places / "config")
        options = {
            "cli_path": cli_path,
            "env": {**model.env, "HOME": str(places), "CLAUDE_CONFIG_DIR": config},
            "cwd": str(work),
            "inherit_env": ["PATH"],
            "model": "claude-sonnet-4-5",
        }
        plan = Plan(
            seed=seed, sessions=SESSIONS, directory=str(places), options=options, is_fake=False
        )
        played = play(plan, recoveries)
    check(played.histories)
    return played.kills, len(played.histories)
