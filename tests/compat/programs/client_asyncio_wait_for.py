"""Use asyncio's own tools around the client."""

# model: [[text("A")], [text("B")]]

import asyncio

from claude_agent_sdk import ClaudeSDKClient, ResultMessage


async def answer(client, prompt):
    await client.query(prompt)
    async for message in client.receive_response():
        if isinstance(message, ResultMessage):
            return message.result


async def main():
    async with ClaudeSDKClient() as client:
        print(await asyncio.wait_for(answer(client, "one"), 60))
        task = asyncio.create_task(answer(client, "two"))
        print(await task)


asyncio.run(main())
