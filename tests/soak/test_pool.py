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
from tests.support.pools import Lab, Processes, chat, cycle

from bridle import Agent, UserMessage
from bridle._process.locate import candidates
from bridle.agent import Pool
from bridle.sessions import MemoryStore, read_messages
from bridle.testing import ScriptedModel, text

CALLERS = int(os.environ.get("BRIDLE_SOAK_CALLERS", "1000"))

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


def test_a_thousand_callers_at_once_never_share_a_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of 250 users calls four times, all at the same moment, on four processes."""
    lab = Lab(tmp_path, "2.1.326")
    processes = Processes(monkeypatch)
    said: dict[str, list[str]] = {}
    ids: dict[str, set[str | None]] = {}

    async def call(pool: Pool[Any], key: str, number: int) -> None:
        async with pool.session(key=key, timeout=None) as session:
            text = f"{key} calls {number}."
            outcome = await (await session.send_user_message(f"SAY {text}"))
            assert (outcome.ok, outcome.text) == (True, text)
            said.setdefault(key, []).append(f"SAY {text}")
            ids.setdefault(key, set()).add(outcome.session_id)

    async def main() -> None:
        agent = lab.agent(store=MemoryStore())
        async with agent.pool(size=4) as pool:
            callers = [(f"user-{number % 250}", number) for number in range(CALLERS)]
            await asyncio.gather(*(call(pool, *one) for one in callers))
            assert (pool.metrics.waiting, pool.metrics.timeouts) == (0, 0)
        assert all(len(one) == 1 for one in ids.values()), "a key means one conversation"
        assert len(set.union(*ids.values())) == len(ids), "and no other key means it"
        for key, (session_id,) in ids.items():
            messages = await read_messages(str(session_id), store=agent.options.sdk.store)
            prompts = [one.text for one in messages if isinstance(one, UserMessage)]
            assert prompts == said[key]

    asyncio.run(main())
    assert sum(map(len, said.values())) == CALLERS
    assert (processes.of_one, processes.in_all) == (1, 4)


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
