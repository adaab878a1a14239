"""Send an image beside the text of a prompt."""

# model: [[text("A dot.")]]

import anyio
from claude_agent_sdk import AssistantMessage, query

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="


async def prompts():
    yield {
        "type": "user",
        "message": {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
                },
            ],
        },
        "parent_tool_use_id": None,
        "session_id": "pictures",
    }


async def main():
    async for message in query(prompt=prompts()):
        if isinstance(message, AssistantMessage):
            print(message.content[0].text)


anyio.run(main)
