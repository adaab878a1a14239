"""Let Claude write files without asking."""

# model: [[tool_use("Write", file_path="new.txt", content="hay")], [text("Written.")]]

from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query


async def main():
    options = ClaudeAgentOptions(permission_mode="acceptEdits")
    async for message in query(prompt="Write hay.", options=options):
        if isinstance(message, ResultMessage):
            print(message.result, Path("new.txt").read_text())


anyio.run(main)
