"""The API is overloaded; the client goes on with the next prompt."""

# model: [error(529), [text("Now it works.")]]

import anyio
from claude_agent_sdk import ClaudeSDKClient, ResultMessage


async def main():
    async with ClaudeSDKClient() as client:
        for _ in range(2):
            await client.query("Hi")
            async for message in client.receive_response():
                if isinstance(message, ResultMessage):
                    print(message.is_error, message.api_error_status, message.subtype)


anyio.run(main)
