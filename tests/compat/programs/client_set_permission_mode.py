"""Let Claude edit files from the second turn on."""

# model: [[tool_use("Write", file_path="a.txt", content="a")], [text("No.")],
#   [tool_use("Write", file_path="a.txt", content="a")], [text("Yes.")]]

from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeSDKClient, ResultMessage


async def main():
    async with ClaudeSDKClient() as client:
        for mode in ("default", "acceptEdits"):
            await client.set_permission_mode(mode)
            await client.query("Write a file.")
            async for message in client.receive_response():
                if isinstance(message, ResultMessage):
                    denied = [one["tool_name"] for one in message.permission_denials]
                    print(mode, denied, Path("a.txt").exists())


anyio.run(main)
