"""The options really reach the real CLIs: what `launch` plans is what they understand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from bridle import InitMessage, start_session
from bridle.testing import ScriptedModel, text

pytestmark = pytest.mark.longer

if TYPE_CHECKING:
    from tests.real.conftest import Lab


@pytest.mark.requirement("S066")
async def test_the_clis_know_the_flags_we_give_them(lab: Lab) -> None:
    """R127, R128, R129: nearly every option at once, and what the CLI made of them."""
    plugin = lab.work / "plugin" / ".claude-plugin"
    plugin.mkdir(parents=True)
    (plugin / "plugin.json").write_text('{"name": "ours", "version": "1.0.0"}')
    options: dict[str, Any] = {
        "fallback_model": "claude-haiku-4-5",
        "max_turns": 9,
        "max_budget_usd": 5.0,
        "tools": ["Read", "Bash"],
        "allowed_tools": ["Read", "Bash(git log:*)"],
        "disallowed_tools": ["WebFetch"],
        "permission_mode": "acceptEdits",
        "setting_sources": [],
        "add_dirs": [str(lab.work)],
        "plugins": [str(plugin.parent)],
        "betas": ["context-1m-2025-08-07"],
        "agents": [{"name": "helper", "description": "helps", "prompt": "Help."}],
        "max_thinking_tokens": 2048,
        "include_partial_messages": True,
        "include_hook_events": True,
        "strict_mcp_config": True,
        "mcp_config": {"mcpServers": {}},
        "settings": {"cleanupPeriodDays": 3},
        "no_session_persistence": True,
    }
    async with (
        asyncio.timeout(60),
        ScriptedModel([[text("hi")]]) as model,
        start_session(lab.cli(model, **options), lab.sdk) as session,
    ):
        messages = session.messages()
        turn = await session.send_user_message("hello")
        assert (await turn).ok
        init = await anext(m async for m in messages if isinstance(m, InitMessage))
        assert sorted(init.tools) == ["Bash", "Read"]
        assert init.permission_mode == "acceptEdits"
        assert "helper" in init.agents
        assert session.id == init.session_id
        thinking: Any = model.requests[0].raw["thinking"]
        assert thinking["budget_tokens"] == 2048


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("count", [0, 3, 4])
@pytest.mark.requirement("S096")
async def test_any_number_of_agents_reaches_the_cli(lab: Lab, count: int) -> None:
    """R439, C14."""
    names = [f"helper-{number}" for number in range(count)]
    agents = [{"name": name, "description": "helps", "prompt": "Help."} for name in names]
    async with (
        asyncio.timeout(60),
        ScriptedModel([[text("hi")]]) as model,
        start_session(lab.cli(model, agents=agents), lab.sdk) as session,
    ):
        messages = session.messages()
        assert (await (await session.send_user_message("hello"))).ok
        init = await anext(m async for m in messages if isinstance(m, InitMessage))
        assert [agent for agent in init.agents if agent.startswith("helper-")] == names
