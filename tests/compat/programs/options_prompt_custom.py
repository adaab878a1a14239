"""Give the system prompt as a record."""

# model: [[text("Short.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, query
from claude_agent_sdk.types import SystemPromptCustom


async def main():
    prompt = SystemPromptCustom(type="custom", prompt="Answer in one word.", snapshot=True)
    async for message in query(prompt="Hi", options=ClaudeAgentOptions(system_prompt=prompt)):
        print(type(message).__name__)


anyio.run(main)
