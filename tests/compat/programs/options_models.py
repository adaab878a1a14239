"""Choose models, effort and betas."""

# model: [[text("Yes.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, SystemMessage, query


async def main():
    options = ClaudeAgentOptions(
        model="claude-opus-4-5",
        fallback_model="claude-sonnet-4-5",
        effort="low",
        betas=["context-1m-2025-08-07"],
        thinking={"type": "disabled"},
    )
    async for message in query(prompt="Hi", options=options):
        if isinstance(message, SystemMessage):
            print(message.data.get("model"))


anyio.run(main)
