"""A program and its CLIs are killed at random moments, then recovered, on the real CLIs.

The model is in this process and outlives the program. Its requests show what it is told.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.kills import LEASE, Plan, check, kill_program, recover_all
from tests.support.processes import run

from bridle.testing import ModelRequest, Reply, ScriptedModel, text, tool_use

if TYPE_CHECKING:
    from tests.real.conftest import Lab

SESSIONS = 2
"""Sessions of each program. All of them are killed at the same moment."""

_CALL = re.compile(r'CALL mcp__tools__append (\{"line": "\w+"\})')


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("bridle._shell.leases.LEASE", LEASE)
    return tmp_path


def model_of(request: ModelRequest) -> Reply:
    """Call the tool once for each line of the last prompt, one after the other."""
    prompt, results = "", 0
    for message in request.messages:
        said = json.dumps(message.get("content"), ensure_ascii=False)
        if message.get("role") == "user":
            if "tool_result" in said:
                results += 1
            if "CALL " in said or "SAY " in said or "Continue with the task" in said:
                prompt, results = said.replace('\\"', '"'), 0
    calls = [json.loads(one) for one in _CALL.findall(prompt)]
    if results < len(calls):
        return Reply(blocks=(tool_use("mcp__tools__append", **calls[results]),))
    return Reply(blocks=(text("Done."),))


@pytest.mark.parametrize("seed", range(2))
def test_a_killed_program_is_recovered(lab: Lab, places: Path, seed: int) -> None:
    kill_and_recover(lab.cli_path, places, seed)


def kill_and_recover(cli_path: str, places: Path, seed: int, sessions: int = SESSIONS) -> list[str]:
    """Kill a program and recover its sessions. Return what was done again."""
    chance = random.Random(seed)
    work = places / "work"
    work.mkdir(exist_ok=True)
    done: list[str] = []

    with ScriptedModel(model_of) as model:
        config = places / "config"
        options = {
            "cli_path": cli_path,
            "env": {**model.env, "HOME": str(places), "CLAUDE_CONFIG_DIR": str(config)},
            "cwd": str(work),
            "inherit_env": ["PATH"],
            "model": "claude-sonnet-4-5",
        }
        plan = Plan(seed=seed, sessions=sessions, directory=str(places), options=options)
        killed = kill_program(plan, chance.uniform(0, 3), cli_first=chance.random() < 0.5)
        before = len(model.requests)

        def first_request(session_id: str) -> str:
            """The conversation in the first request after the kill."""
            for request in model.requests[before:]:
                if session_id in json.dumps([request.headers, request.raw.get("metadata")]):
                    return json.dumps(request.messages).replace('\\"', '"')
            return ""

        async def main() -> None:
            for one in await recover_all(killed, config, first_request):
                done.extend(check(killed, one))

        run(main)
    return done
