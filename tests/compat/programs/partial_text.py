"""Print the answer as it comes."""

# model: [[text("One two three", chunks=["One ", "two ", "three"])]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, StreamEvent, query


async def main():
    options = ClaudeAgentOptions(include_partial_messages=True)
    async for message in query(prompt="Count.", options=options):
        if isinstance(message, StreamEvent):
            event = message.event
            if event["type"] == "content_block_delta":
                print(event["index"], event["delta"])
            else:
                print(event["type"])


anyio.run(main)
