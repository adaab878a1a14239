"""Append to the system prompt of Claude Code."""

# model: [[text("Oui.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, query


async def main():
    options = ClaudeAgentOptions(
        system_prompt={"type": "preset", "preset": "claude_code", "append": "Speak French."}
    )
    async for message in query(prompt="Yes?", options=options):
        print(type(message).__name__)


anyio.run(main)
