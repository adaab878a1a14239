"""Have a conversation of two turns."""

# model: [[text("Paris.")], [text("Two million.")]]

import anyio
from claude_agent_sdk import AssistantMessage, ClaudeSDKClient, ResultMessage, TextBlock


def show(message):
    if isinstance(message, AssistantMessage):
        print(*[block.text for block in message.content if isinstance(block, TextBlock)])
    elif isinstance(message, ResultMessage):
        print("ended", message.num_turns, message.total_cost_usd > 0)


async def main():
    async with ClaudeSDKClient() as client:
        for prompt in ("What is the capital of France?", "How many people live there?"):
            await client.query(prompt)
            async for message in client.receive_response():
                show(message)


anyio.run(main)
