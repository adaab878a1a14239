"""A program is killed on the real CLIs, and the next one continues its conversation at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.killed import running, store_at
from tests.support.processes import run

from bridle import Agent, SessionInUseError
from bridle.testing import ScriptedModel, text

if TYPE_CHECKING:
    from tests.real.conftest import Lab


@pytest.mark.longer
@pytest.mark.parametrize("key", [None, "user-7"])
def test_the_next_prompt_after_a_kill_does_not_wait_for_the_lease(
    lab: Lab, key: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    url, work = str(tmp_path / "sessions.db"), tmp_path / "work"
    work.mkdir(exist_ok=True)

    async def main() -> None:
        with ScriptedModel([[text("One.")], [text("Two.")]]) as model:
            options: dict[str, Any] = {
                "cli_path": lab.cli_path,
                "env": {**model.env, "HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": str(tmp_path)},
                "cwd": str(work),
                "inherit_env": ["PATH"],
                "model": "claude-sonnet-4-5",
            }
            store = store_at(url)
            agent = Agent(store=store, **options)
            with running(url, key, **options) as (session_id, process):
                with pytest.raises(SessionInUseError):
                    await agent.run("Go on.", resume_session_id=session_id)
                process.kill()
                process.wait()
                if key is None:
                    outcome = await agent.run("Go on.", resume_session_id=session_id)
                else:
                    async with agent.pool(size=1) as pool, pool.session(key=key) as session:
                        outcome = await (await session.send_user_message("Go on."))
            assert (outcome.text, outcome.session_id) == ("Two.", session_id)
            assert "One." in str(model.requests[-1].messages)
            await store.aclose()

    run(main, timeout=300)
