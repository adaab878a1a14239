"""An approved call that was cut off does not run again when it is approved once more."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.limits import SetLimits

from bridle import Agent, Allow, Defer, Deny, OutcomeReason, ToolContext, tool
from bridle.errors import CallMayHaveRun
from bridle.sessions import MemoryStore
from bridle.testing import ModelRequest, Reply, ScriptedModel, text, tool_use

pytestmark = pytest.mark.longer

if TYPE_CHECKING:
    from tests.real.conftest import Lab


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    set_limits(lease=1.0)


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("has_store", [False, True])
@pytest.mark.parametrize("name", ["Bash", "mcp__tools__pay"])
async def test_an_approved_call_that_was_cut_off_does_not_run_again(
    lab: Lab, has_store: bool, name: str
) -> None:
    log = lab.work / "log"

    @tool
    async def pay(context: ToolContext) -> str:
        """Pay."""
        log.write_text((log.read_text() if log.exists() else "") + "x\n")
        os.kill(context.session.pid, 9)
        await asyncio.sleep(60)
        return "paid"

    def model_of(request: ModelRequest) -> Reply:
        if len(request.messages) > 1 or "go" not in str(request.messages[-1]):
            return Reply(blocks=(text("done"),))
        kill = {"command": "echo x >> log; kill -9 $PPID; sleep 60", "description": "d"}
        return Reply(blocks=(tool_use(name, **(kill if name == "Bash" else {})),))

    with ScriptedModel(model_of) as model:
        given: dict[str, Any] = {
            "cli_path": lab.cli_path,
            "env": model.env,
            "cwd": str(lab.work),
            "model": "claude-sonnet-4-5",
            "inherit_env": ["PATH"],
            "store": MemoryStore() if has_store else None,
            "tools": [pay],
        }
        agent = Agent(**given)
        deferred = await agent.replace(on_pre_tool_use=lambda _: Defer()).run("go")
        pending = deferred.pending
        assert pending is not None
        outcome = await agent.resume(pending, Allow())
        assert (outcome.reason, outcome.pending) == (OutcomeReason.CLI_EXITED, None)
        with pytest.raises(CallMayHaveRun):
            await agent.resume(pending, Allow())
        if has_store:
            (outcome,) = await agent.recover(pending.session_id)
        else:
            outcome = await agent.resume(pending, Deny("it may have run"))
        assert (outcome.ok, outcome.text) == (True, "done"), outcome
        assert log.read_text() == "x\n"
