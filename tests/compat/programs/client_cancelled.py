"""Give up waiting for an answer that has begun, and leave."""

# model: [Reply(blocks=(text("Never ends"),), hold=True, hold_after=4)]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, StreamEvent


async def main():
    options = ClaudeAgentOptions(include_partial_messages=True)
    async with ClaudeSDKClient(options) as client:
        await client.query("Think for a long time.")
        with anyio.CancelScope() as scope:
            async for message in client.receive_response():
                print(type(message).__name__)
                if isinstance(message, StreamEvent):
                    scope.cancel()
                    await anyio.sleep(0)
        print(scope.cancelled_caught)


anyio.run(main)
