"""What a session is told stays between it and the CLI: nothing of it is on the command line."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.processes import LIMIT, until

from bridle import AgentConfig, BidirOptions, Session, StartError, start_session
from bridle.testing import Block, ModelRequest, ScriptedModel, text, tool_use

if TYPE_CHECKING:
    from tests.real.conftest import Lab

SHORT = 4096
"""Bytes a command line may have, whatever the options hold."""

SYSTEM_PROMPT = "SYSTEM-PROMPT begins. " + "All work and no play. " * 9_500 + "It ends: CURTAIN."
AGENTS = [
    AgentConfig(
        name=f"agent-{number}",
        description=f"AGENT-DESCRIPTION {number}",
        prompt=f"AGENT-PROMPT {number} " + "and so on " * 50,
    )
    for number in range(50)
]
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string", "description": "SCHEMA-TEXT"}},
    "required": ["answer"],
}
SECRETS = [
    b"PROMPT",
    b"CURTAIN",
    b"AGENT-",
    b"SCHEMA-TEXT",
    b"MCP-ENV-VALUE",
    b"MCP-HEADER-VALUE",
    b"SETTINGS-VALUE",
]

# Writes down what it finds in its environment, and is no server beyond that.
LISTENER = "import os, sys; open(sys.argv[1], 'w').write(os.environ['TOKEN'])"


def command_line(session: Session) -> bytes:
    """What everybody on the machine can read of the session."""
    return Path(f"/proc/{session.pid}/cmdline").read_bytes()


def model_says(request: ModelRequest) -> list[Block]:
    """Looks into the environment of a command, then answers as the schema says."""
    results = len(request.tool_results)
    if results == 0:
        return [tool_use("Bash", command="echo value=$VALUE")]
    return [tool_use("StructuredOutput", answer="42")] if results == 1 else [text("done")]


async def test_a_large_and_secret_session_works_and_shows_nothing_to_others(
    lab: Lab, tmp_path: Path
) -> None:
    heard = tmp_path / "heard.txt"
    servers = {
        "local": {
            "command": sys.executable,
            "args": ["-IS", "-c", LISTENER, str(heard)],
            "env": {"TOKEN": "MCP-ENV-VALUE"},
        },
        "remote": {
            "type": "http",
            "url": "http://127.0.0.1:9/mcp",
            "headers": {"Authorization": "Bearer MCP-HEADER-VALUE"},
        },
    }
    options = {
        "system_prompt": SYSTEM_PROMPT,
        "agents": AGENTS,
        "json_schema": SCHEMA,
        "mcp_config": {"mcpServers": servers},
        "settings": {"env": {"VALUE": "SETTINGS-VALUE"}},
        "allowed_tools": ["Bash"],
    }
    assert len(SYSTEM_PROMPT) > 200 * 1024
    async with (
        ScriptedModel(model_says) as model,
        start_session(lab.cli(model, **options), lab.sdk) as session,
    ):
        visible = command_line(session)
        turn = await session.send_user_message("the PROMPT itself")
        visible += command_line(session)
        assert [secret for secret in SECRETS if secret in visible] == []
        assert len(command_line(session)) < SHORT

        files = private_files(session)
        assert len(files) == 2
        for file in files:
            assert file.stat().st_mode & 0o777 == 0o600
            assert file.parent.stat().st_mode & 0o777 == 0o700

        outcome = await turn
        assert outcome.ok
        assert outcome.structured_output == {"answer": "42"}
        assert SYSTEM_PROMPT in model.requests[0].system_text
        assert "AGENT-DESCRIPTION 49" in str(model.requests[0].raw)
        assert model.requests[1].last_tool_result == "value=SETTINGS-VALUE"
        await until(lambda: heard.exists() and heard.read_text("utf-8") == "MCP-ENV-VALUE")
    assert [path for file in files for path in (file, file.parent) if path.exists()] == []


def private_files(session: Session) -> list[Path]:
    """The files the command line names."""
    values = [argument.partition(b"=")[2] for argument in command_line(session).split(b"\0")]
    paths = [Path(value.decode()) for value in values if value.endswith(b".json")]
    return [path for path in paths if path.is_file()]


@pytest.mark.longer
async def test_a_first_prompt_travels_like_every_other(lab: Lab) -> None:
    async with (
        ScriptedModel([[text("hello")]]) as model,
        start_session(lab.cli(model), lab.sdk, BidirOptions(), prompt="MY-PROMPT") as session,
    ):
        request = await model.wait_for_request()
        assert request.last_user_text == "MY-PROMPT"
        assert b"MY-PROMPT" not in command_line(session)
        async with asyncio.timeout(LIMIT):
            pieces = session.text_stream()
            assert await anext(pieces) == "hello"


async def test_what_an_error_shows_of_the_command_line_is_harmless(lab: Lab) -> None:
    options = {"extra_args": ["--no-such-flag", "EXTRA-VALUE"], "settings": {"model": "x"}}
    async with ScriptedModel([]) as model:
        with pytest.raises(StartError) as caught:
            await start_session(lab.cli(model, **options), lab.sdk)
        assert "--no-such-flag=..." in caught.value.argv
        assert "--settings=..." in caught.value.argv
