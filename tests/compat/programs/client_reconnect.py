"""Connect the same client twice, one after the other."""

# model: [[text("First.")], [text("Second.")]]

import anyio
from claude_agent_sdk import AssistantMessage, ClaudeSDKClient


async def main():
    client = ClaudeSDKClient()
    for _ in range(2):
        await client.connect()
        await client.query("Which?")
        async for message in client.receive_response():
            if isinstance(message, AssistantMessage):
                print(message.content[0].text)
        await client.disconnect()


anyio.run(main)
