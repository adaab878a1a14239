"""The real CLIs understand the spellings of Bridle as those of the official SDK.

`tests/conformance/test_official_options.py` takes some spellings for equal: a flag or a field of
initialize, one flag per item or a list. Here the CLI shows what it made of both.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import claude_agent_sdk as official
import pytest

from bridle import InitMessage, query
from bridle.testing import ScriptedModel, text, tool_use
from bridle.testing.model_request import ModelRequest

if TYPE_CHECKING:
    from tests.real.conftest import Lab

PRESET = {"type": "preset", "preset": "claude_code"}
SCHEMA = {"type": "object", "properties": {"answer": {"type": "number"}}}
ANSWER = tool_use("StructuredOutput", answer=1)
BASH = tool_use("Bash", command="echo hi")
AGENT: dict[str, Any] = {"description": "Reviews code.", "prompt": "Review."}
RULES = {
    "tools": ["Bash", "Read"],
    "allowed_tools": ["Read", "Bash(echo:*)"],
    "disallowed_tools": ["WebFetch", "Bash(rm:*)"],
    "betas": ["context-1m-2025-08-07"],
    "add_dirs": ["/usr", "/var"],
}

SETS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "lists": (RULES, {**RULES, "system_prompt": PRESET}),
    "system prompt": (
        {"system_prompt": "--Be brief.\nAlways."},
        {"system_prompt": "--Be brief.\nAlways."},
    ),
    "schema": (
        {"json_schema": SCHEMA},
        {
            "system_prompt": PRESET,
            "output_format": {"type": "json_schema", "schema": SCHEMA},
        },
    ),
    "no system prompt": ({"system_prompt": ""}, {"system_prompt": None}),
    "more system prompt": (
        {
            "append_system_prompt": "Be brief.",
            "agents": {"reviewer": AGENT},
            "thinking": {"type": "enabled", "budget_tokens": 2048},
        },
        {
            "system_prompt": {**PRESET, "append": "Be brief."},
            "agents": {"reviewer": official.AgentDefinition(**AGENT)},
            "thinking": {"type": "enabled", "budget_tokens": 2048},
        },
    ),
}
"""Sets of options, as Bridle and as the official SDK spell them."""


def told(request: ModelRequest) -> dict[str, object]:
    """Return what the CLI asks of the model, without what differs in every process."""
    system = re.sub(r"cch=\w+;?", "", request.system_text)
    names = ("model", "max_tokens", "thinking", "output_config", "tool_choice")
    tools: Any = request.raw["tools"]
    return {
        "system": system,
        "tools": sorted(tools, key=lambda tool: str(tool["name"])),  # a schema adds one somewhere
        "betas": sorted(request.headers.get("anthropic-beta", "").split(",")),
        **{name: request.raw.get(name) for name in names},
    }


def announced(init: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the CLI says about its configuration, without ids."""
    names = ("agents", "mcp_servers", "permissionMode", "model", "betas", "plugins")
    return {"tools": sorted(init["tools"]), **{name: init.get(name) for name in names}}


async def ours(lab: Lab, model: ScriptedModel, options: dict[str, Any]) -> dict[str, Any]:
    stream = query("Say hi.", lab.cli(model, **options))
    [init] = [m.raw async for m in stream if isinstance(m, InitMessage)]
    return announced(init)


async def theirs(lab: Lab, model: ScriptedModel, options: dict[str, Any]) -> dict[str, Any]:
    given = official.ClaudeAgentOptions(
        cli_path=lab.cli_path,
        cwd=lab.work,
        env=model.env,
        model="claude-sonnet-4-5",
        **options,
    )
    stream = official.query(prompt="Say hi.", options=given)
    messages = [m async for m in stream if isinstance(m, official.SystemMessage)]
    [init] = [m.data for m in messages if m.subtype == "init"]
    return announced(init)


@pytest.mark.longer
@pytest.mark.parametrize("name", SETS)
async def test_the_cli_makes_the_same_of_both_spellings(lab: Lab, name: str) -> None:
    turn = [[ANSWER]] if name == "schema" else [[BASH], [text("hi")]]
    async with asyncio.timeout(120), ScriptedModel(turn * 2) as model:
        inits = [await ours(lab, model, SETS[name][0]), await theirs(lab, model, SETS[name][1])]
        assert inits[0] == inits[1]
        requests = model.requests
        mine, others = requests[: len(turn)], requests[len(turn) :]
        assert told(mine[0]) == told(others[0])
        assert mine[-1].last_tool_result == others[-1].last_tool_result
