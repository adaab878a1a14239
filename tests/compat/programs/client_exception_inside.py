"""An exception in the block closes the client and goes on."""

# model: [[text("Yes.")]]

import anyio
from claude_agent_sdk import AssistantMessage, ClaudeSDKClient


async def main():
    try:
        async with ClaudeSDKClient() as client:
            await client.query("Hi")
            async for message in client.receive_response():
                if isinstance(message, AssistantMessage):
                    raise LookupError(message.content[0].text)
    except LookupError as problem:
        print("caught", problem)


anyio.run(main)
