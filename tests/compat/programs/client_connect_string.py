"""Give the first prompt to connect()."""

# model: [[text("Hello.")], [text("Bye.")]]

import anyio
from claude_agent_sdk import AssistantMessage, ClaudeSDKClient


async def answer(client):
    async for message in client.receive_response():
        if isinstance(message, AssistantMessage):
            print(message.content[0].text)


async def main():
    client = ClaudeSDKClient()
    await client.connect("Hello")
    try:
        await answer(client)
        await client.query("Bye")
        await answer(client)
    finally:
        await client.disconnect()


anyio.run(main)
