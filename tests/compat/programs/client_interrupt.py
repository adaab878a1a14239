"""Interrupt an answer, then go on with another prompt."""

# model: [Reply(blocks=(text("One two three", chunks=3),), hold=True, hold_after=4), [text("Stopped.")]]

import anyio
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    StreamEvent,
)


async def main():
    options = ClaudeAgentOptions(include_partial_messages=True)
    async with ClaudeSDKClient(options) as client:
        await client.query("Count to a thousand.")
        async for message in client.receive_response():
            if isinstance(message, StreamEvent) and message.event["type"] == "content_block_delta":
                print("interrupting after", message.event["delta"]["text"])
                await client.interrupt()
            if isinstance(message, ResultMessage):
                print(message.subtype, message.is_error, message.terminal_reason)
        await client.query("What happened?")
        async for message in client.receive_response():
            if isinstance(message, AssistantMessage):
                print(message.content[0].text)


anyio.run(main)
