"""Ask one question and print the answer."""

# model: [[text("Four.")]]

import anyio
from claude_agent_sdk import AssistantMessage, ResultMessage, TextBlock, query


async def main():
    async for message in query(prompt="What is 2 + 2?"):
        if isinstance(message, AssistantMessage):
            for block in message.content:
                if isinstance(block, TextBlock):
                    print("Claude:", block.text)
        elif isinstance(message, ResultMessage):
            print(message.subtype, message.num_turns, message.is_error)


anyio.run(main)
