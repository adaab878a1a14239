"""Pools whose processes are borrowed and returned a thousand times. Only when asked for.

``BRIDLE_SOAK=1`` asks for it, as ``make soak`` does.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.pools import Processes, chat, cycle

from bridle import Agent
from bridle._shell.locate import candidates
from bridle.testing import ScriptedModel, text

OLDER = Path(__file__).parents[2] / ".clis" / "2.1.197" / "claude"

pytestmark = pytest.mark.skipif(
    not os.environ.get("BRIDLE_SOAK"), reason="takes minutes: `make soak` runs it"
)


def real(age: str) -> str:
    """Return the path of a real CLI."""
    wheels = [Path(place.path) for place in candidates() if place.origin == "claude-agent-sdk"]
    path = OLDER if age == "older" else next((one for one in wheels if one.exists()), None)
    if path is None or not path.exists():
        pytest.skip("this CLI is not installed: `make setup` fetches it")
    return str(path)


@pytest.mark.parametrize("flavour", ["2.1.326", "2.1.197"])
def test_a_thousand_uses_on_the_fake_cli_leave_nothing(tmp_path: Path, flavour: str) -> None:
    cycle(tmp_path, uses=1000, flavour=flavour)


@pytest.mark.parametrize("age", ["newest", "older"])
def test_fifty_uses_on_a_real_cli_leave_nothing(tmp_path: Path, age: str) -> None:
    cycle(tmp_path, uses=50, cli=real(age))


@pytest.mark.parametrize("age", ["newest", "older"])
def test_twenty_users_chat_on_four_processes_of_a_real_cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: str
) -> None:
    """No conversation ever has two processes, and each model request is about one user."""
    path, rounds = real(age), 3
    processes = Processes(monkeypatch)

    async def main() -> None:
        async with ScriptedModel([[text("Yes.")]] * (20 * rounds)) as model:
            agent: Agent[Any] = Agent(
                cli_path=path, env=model.env, inherit_env=["PATH"], cwd=str(tmp_path), tools=[]
            )
            async with agent.pool(size=4) as pool:
                ids = await chat(pool, 20, rounds)
            assert all(len(one) == 1 for one in ids.values())
            assert len(set.union(*ids.values())) == 20
            assert len(model.requests) == 20 * rounds
            for request in model.requests:
                said = re.findall(r"user-\d+ says \d\.", json.dumps(request.messages))
                user, _, last = said[-1].partition(" says ")
                assert said == [f"{user} says {number}." for number in range(int(last[0]) + 1)]

    asyncio.run(main())
    assert (processes.of_one, processes.in_all) == (1, 4)
