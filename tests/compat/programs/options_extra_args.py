"""Pass flags that the SDK has no option for."""

# model: [[text("Yes.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, UserMessage


async def main():
    options = ClaudeAgentOptions(
        extra_args={"replay-user-messages": None, "append-system-prompt": "-- Be kind. --"}
    )
    async with ClaudeSDKClient(options) as client:
        await client.query("Hi")
        async for message in client.receive_response():
            if isinstance(message, UserMessage):
                print("repeated:", message.content, message.uuid is not None)


anyio.run(main)
