"""Undo what Claude wrote since a prompt."""

# model: [[tool_use("Write", file_path="a.txt", content="a")], [text("Written.")]]

from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, UserMessage


async def main():
    options = ClaudeAgentOptions(
        enable_file_checkpointing=True,
        permission_mode="acceptEdits",
        extra_args={"replay-user-messages": None},
    )
    async with ClaudeSDKClient(options) as client:
        await client.query("Write a file.")
        prompt = None
        async for message in client.receive_response():
            if isinstance(message, UserMessage) and prompt is None:
                prompt = message.uuid
        print(Path("a.txt").exists())
        await client.rewind_files(prompt)
        print(Path("a.txt").exists())


anyio.run(main)
