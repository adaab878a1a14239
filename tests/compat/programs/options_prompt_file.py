"""Take the system prompt from a file."""

# model: [[text("Short.")]]

from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, query


async def main():
    Path("prompt.md").write_text("Answer in one word.\n")
    options = ClaudeAgentOptions(system_prompt={"type": "file", "path": "prompt.md"})
    async for message in query(prompt="Hi", options=options):
        print(type(message).__name__)


anyio.run(main)
