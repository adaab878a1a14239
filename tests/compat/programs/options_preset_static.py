"""Keep the parts that change from day to day out of the system prompt."""

# model: [[text("Fine.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, query
from claude_agent_sdk.types import SystemPromptPreset


async def main():
    preset = SystemPromptPreset(
        type="preset", preset="claude_code", exclude_dynamic_sections=True, snapshot=False
    )
    async for message in query(prompt="Hi", options=ClaudeAgentOptions(system_prompt=preset)):
        print(type(message).__name__)


anyio.run(main)
