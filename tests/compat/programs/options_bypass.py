"""Skip every permission."""

# model: [[tool_use("Bash", command="echo hay > new.txt")], [text("Written.")]]

from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query


async def main():
    options = ClaudeAgentOptions(permission_mode="bypassPermissions")
    async for message in query(prompt="Write hay.", options=options):
        if isinstance(message, ResultMessage):
            print(message.result, Path("new.txt").read_text().strip())


anyio.run(main)
