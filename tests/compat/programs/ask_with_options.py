"""Set the system prompt, the model and a limit, and print every message's class."""

# model: [[text("Arr, four.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, query


async def main():
    options = ClaudeAgentOptions(
        system_prompt="Answer as a pirate would.", model="claude-sonnet-4-5", max_turns=1
    )
    async for message in query(prompt="What is 2 + 2?", options=options):
        print(type(message).__name__, getattr(message, "subtype", ""))


anyio.run(main)
