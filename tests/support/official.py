"""The official SDK, on the real CLI with a scripted model and on a small CLI."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import claude_agent_sdk as official
import pytest
from tests.support.line_cli import line_cli

from bridle.testing import Block, Script, ScriptedModel, text

LEAVES_TRANSPORTS = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
"""The official SDK leaves pipes open when a session fails. See `place`."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory. What the SDK left open is collected before the next test."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    gc.collect()


@contextlib.asynccontextmanager
async def connected(script: Script, **options: Any) -> AsyncIterator[tuple[Any, Any]]:
    """A client on the real CLI, and the scripted model."""
    async with ScriptedModel(script) as model:
        given = official.ClaudeAgentOptions(env=model.env, **{"setting_sources": [], **options})
        async with official.ClaudeSDKClient(given) as client:
            yield client, model


async def ask(client: Any, prompt: str = "go") -> list[Any]:
    """Send a prompt, and return the messages up to the first result."""
    await client.query(prompt)
    return [message async for message in client.receive_response()]


async def call_tool(call: Block, **options: Any) -> str | None:
    """Let the model call a tool, and return the result that the model reads."""
    async with connected([[call], [text("done")]], **options) as (client, model):
        await ask(client)
        result: str | None = model.requests[1].last_tool_result
        return result


async def ask_small_cli(
    place: Path, behaviour: str, prompt: Any = "go", **options: Any
) -> list[Any]:
    """Send a prompt to a small CLI with `query`, and return the messages."""
    given = official.ClaudeAgentOptions(cli_path=line_cli(place, behaviour), **options)
    return [message async for message in official.query(prompt=prompt, options=given)]
