"""Show the thinking of the model."""

# model: [[thinking("Two and two."), text("Four.")]]

import anyio
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ThinkingBlock,
    ThinkingConfigEnabled,
    query,
)


async def main():
    thinking = ThinkingConfigEnabled(type="enabled", budget_tokens=2048)
    options = ClaudeAgentOptions(thinking=thinking, model="claude-sonnet-4-5")
    async for message in query(prompt="What is 2 + 2?", options=options):
        if isinstance(message, AssistantMessage):
            for block in message.content:
                if isinstance(block, ThinkingBlock):
                    print("thinks:", block.thinking, bool(block.signature))
                else:
                    print("says:", block.text)


anyio.run(main)
