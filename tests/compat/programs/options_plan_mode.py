"""Plan mode lets Claude read and not write."""

# model: [[tool_use("Read", file_path="notes.txt")],
#   [tool_use("Write", file_path="new.txt", content="x")], [text("Planned.")]]

from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, SystemMessage, ToolResultBlock, UserMessage, query


async def main():
    options = ClaudeAgentOptions(permission_mode="plan", allowed_tools=["Read"])
    async for message in query(prompt="Plan.", options=options):
        if isinstance(message, SystemMessage) and message.subtype == "init":
            print(message.data["permissionMode"])
        if isinstance(message, UserMessage) and isinstance(message.content[0], ToolResultBlock):
            print(message.content[0].is_error)
    print(Path("new.txt").exists())


anyio.run(main)
