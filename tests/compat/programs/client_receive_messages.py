"""Read every message of a session in one loop, and send the next prompt from it."""

# model: [[text("1")], [text("2")], [text("3")]]

import anyio
from claude_agent_sdk import AssistantMessage, ClaudeSDKClient, ResultMessage


async def main():
    left = ["Next", "And next"]
    async with ClaudeSDKClient() as client:
        await client.query("Count, one number each time.")
        async for message in client.receive_messages():
            if isinstance(message, AssistantMessage):
                print(message.content[0].text)
            elif isinstance(message, ResultMessage):
                if not left:
                    break
                await client.query(left.pop(0))


anyio.run(main)
