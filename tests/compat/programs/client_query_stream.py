"""Send a prompt with content blocks through client.query()."""

# model: [[text("Both.")]]

import anyio
from claude_agent_sdk import AssistantMessage, ClaudeSDKClient


async def prompts():
    yield {
        "type": "user",
        "message": {
            "role": "user",
            "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}],
        },
    }


async def main():
    async with ClaudeSDKClient() as client:
        await client.query(prompts(), session_id="s-1")
        async for message in client.receive_response():
            if isinstance(message, AssistantMessage):
                print(message.content[0].text)


anyio.run(main)
