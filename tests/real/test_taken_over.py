"""On the real CLIs: a session that was away undoes nothing, and a received turn is not lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.real.test_stores import history
from tests.support.limits import SetLimits
from tests.support.processes import until
from tests.support.store_failures import Machine
from tests.support.stores import until_stored

import bridle
from bridle import SdkWarning, SessionInUseError
from bridle.sessions import MemoryStore, SessionKey, SqliteStore
from bridle.testing import ScriptedModel, text

pytestmark = pytest.mark.longer

if TYPE_CHECKING:
    from tests.real.conftest import Lab

LEASE = 3000.0


class Lasting(MemoryStore):
    ends_with_program = False  # it has spool files


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("has_prompt", [False, True])
async def test_a_session_that_was_away_does_not_hide_what_another_machine_added(
    lab: Lab,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    set_limits: SetLimits,
    *,
    has_prompt: bool,
) -> None:
    """What its CLI saves at its end would make the CLI resume the older branch."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    late = 0.0
    set_limits(lease=LEASE, lease_clock=lambda: time.monotonic() + late)
    answers = ("a one", "b one", "b two", "c one")
    store = Lasting(clock=lambda: time.time() + late)
    warnings: list[SdkWarning] = []
    async with ScriptedModel([[text(f"answer {one}")] for one in answers]) as model:
        here, elsewhere = Machine(lab, model, "a"), Machine(lab, model, "b")
        agent = bridle.Agent(**here.options, store=store, on_warning=warnings.append)
        async with agent.session() as session:
            assert (await (await session.send_user_message("prompt a one"))).ok
            assert session.id is not None
            key = SessionKey(session.id)
            await until_stored(store, key, "answer a one")
            late = LEASE + 1.0
            chosen: dict[str, Any] = {"resume_session_id": session.id}
            async with bridle.Agent(**elsewhere.options, store=store).session(**chosen) as b:
                for one in ("b one", "b two"):
                    assert (await (await b.send_user_message(f"prompt {one}"))).ok
            if has_prompt:
                with pytest.raises((SessionInUseError, bridle.ControlError)):
                    await (await session.send_user_message("prompt a two"))
                await until(lambda: not session.alive)
        if has_prompt:
            assert isinstance(session._engine.error, SessionInUseError)
        files = [*(tmp_path / "state").rglob("spool/*.jsonl")]
        assert files
        details = " ".join(one.detail for one in warnings if one.kind == "store_failed")
        assert all(str(file) in details for file in files)
        await bridle.run("prompt c one", **elsewhere.options, **chosen, store=store)
        said = history(model, "prompt c one")
    for one in ("prompt a one", "prompt b one", "answer b one", "prompt b two"):
        assert one in said
    assert "prompt a two" not in str(await store.load(key))


PROGRAM = """
import asyncio, json, os, signal, sys
import bridle
from bridle.sessions import SqliteStore

async def main(path, options):
    agent = bridle.Agent(store=SqliteStore(path), **options)
    session = await agent.session()
    for text in ("first prompt", "second prompt"):
        await (await session.send_user_message(text))
    print(session.id, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
"""


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("number", range(3))
async def test_a_turn_that_the_program_received_before_it_was_killed_is_resumed(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "store.db"
    with ScriptedModel([[text(f"answer {one}")] for one in range(3)]) as model:
        options = Machine(lab, model, "a").options
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(path), json.dumps(options)],
            capture_output=True,
            text=True,
            env=os.environ,
            timeout=100,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        warnings: list[SdkWarning] = []
        store = SqliteStore(path)
        agent = bridle.Agent(store=store, on_warning=warnings.append, **options)
        session_id = done.stdout.strip()
        outcome = await agent.run("third prompt", resume_session_id=session_id, wait=20)
        assert outcome.text == "answer 2"
        said = history(model, "third prompt")
        for part in ("first prompt", "answer 0", "second prompt", "answer 1"):
            assert part in said
        stored = str(await store.load(SessionKey(session_id)))
        assert "answer 1" in stored
        assert [one for one in warnings if one.kind == "store_failed"] == []
        await store.aclose()
