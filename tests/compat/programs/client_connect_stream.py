"""Give prompts to connect() as a stream, and read until the CLI ends."""

# model: [[text("Done.")]]

import anyio
from claude_agent_sdk import ClaudeSDKClient


async def prompts():
    yield {
        "type": "user",
        "message": {"role": "user", "content": "Do it."},
        "parent_tool_use_id": None,
        "session_id": "default",
    }


async def main():
    client = ClaudeSDKClient()
    await client.connect(prompts())
    async for message in client.receive_messages():
        print(type(message).__name__)
    await client.disconnect()
    await client.disconnect()


anyio.run(main)
