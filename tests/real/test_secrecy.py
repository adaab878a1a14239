"""Secrets planted in a session on the real CLI: none is in what it leaves behind."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.markers import MARKERS, leaks
from tests.support.processes import run

from bridle import Allow, BidirOptions, PreToolUseContext, StartError, start_session
from bridle.testing import ScriptedModel, text, tool_use
from bridle.testing.recording import Recorder, read_recording
from bridle.testing.replaying import replay

if TYPE_CHECKING:
    from tests.real.conftest import Lab

SERVERS = {
    "local": {
        "command": sys.executable,
        "args": ["-IS", "-c", ""],
        "env": {"ANY": MARKERS["server_variable"]},
    },
    "remote": {
        "type": "http",
        "url": "http://127.0.0.1:9/mcp",
        "headers": {"Authorization": f"Bearer {MARKERS['server_header']}"},
    },
}
COMMAND = (
    "echo $FROM_SETTINGS $FROM_OPTIONS $SOME_SERVICE_TOKEN; "
    f"printf $FROM_OPTIONS | base64; env | grep FROM_; echo DB_PASSWORD={MARKERS['tool_output']}"
)


@pytest.mark.longer
@pytest.mark.requirement("S108")
def test_what_a_session_leaves_behind_holds_no_secret(
    lab: Lab, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recordings, logs, warnings and the text of options; and the recording still plays."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SOME_SERVICE_TOKEN", MARKERS["process_variable"])
    path = tmp_path / "session.ndjson"
    left: list[str] = []
    seen: list[str] = []

    def look(context: PreToolUseContext) -> None:
        seen.append(str(context.tool_input))

    async def main() -> str:
        told = f"The key is {MARKERS['cli_variable']}, as {MARKERS['settings_variable']} is."
        login = f"true --password {MARKERS['hook_input']}"
        script = [[tool_use("Bash", command=f"{COMMAND}; {login}")], [text(told)]]
        async with ScriptedModel(script) as model:
            options = lab.cli(
                model,
                env={
                    **model.env,
                    "ANTHROPIC_API_KEY": MARKERS["api_key"],
                    "FROM_OPTIONS": MARKERS["cli_variable"],
                },
                settings={"env": {"FROM_SETTINGS": MARKERS["settings_variable"]}},
                mcp_config={"mcpServers": SERVERS},
                include_partial_messages=True,
            )
            sdk = lab.sdk.replace(
                inherit_env=["PATH", "SOME_SERVICE_TOKEN"],
                recorder=Recorder(path),
                on_warning=lambda warning: left.append(repr(warning)),
            )
            bidir = BidirOptions(on_pre_tool_use=look, on_can_use_tool=lambda _: Allow())
            left.extend(map(repr, (options, sdk, bidir)))
            async with start_session(options, sdk, bidir) as session:
                turn = await session.send_user_message(f"Use Bearer {MARKERS['prompt']} for it.")
                outcome = await turn
                assert MARKERS["cli_variable"] in str(model.requests[1].last_tool_result)
                status = await session.control("mcp_status")
                assert "local" in json.dumps(status)
                left.append(repr(session))
            return outcome.text

    answer = run(main)
    assert MARKERS["settings_variable"] in answer
    assert MARKERS["hook_input"] in seen[0]
    assert leaks(path.read_text("utf-8")) == []
    assert leaks(caplog.text) == []
    assert leaks("\n".join(left)) == []
    (outcome,) = replay(path).outcomes.values()
    assert (outcome.ok, outcome.text) == (True, "The key is ***, as *** is.")
    assert read_recording(path).gap == ""


async def test_what_a_failed_start_tells_holds_no_secret(
    lab: Lab, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "session.ndjson"
    async with ScriptedModel([]) as model:
        extra = [f"--no-such-flag={MARKERS['extra_argument']}"]
        sdk = lab.sdk.replace(recorder=Recorder(path))
        with pytest.raises(StartError) as caught:
            await start_session(lab.cli(model, extra_args=extra), sdk)
        error = caught.value
    assert "--no-such-flag" in error.stderr_tail
    assert leaks(f"{error} {error!r} {error.process!r} {error.stderr_tail} {caplog.text}") == []
    assert leaks(path.read_text("utf-8")) == []
