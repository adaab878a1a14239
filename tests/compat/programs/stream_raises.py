"""An async generator of prompts that raises, and prompts with more fields."""

# model: [[text("Hello Ada.")]]

import anyio
from claude_agent_sdk import AssistantMessage, ResultMessage, query


async def prompts():
    message = {"role": "user", "content": "My name is Ada."}
    yield {"type": "user", "message": message, "parent_tool_use_id": None, "novel": 1}
    raise ValueError("no more hay")


async def main():
    async for message in query(prompt=prompts()):
        if isinstance(message, AssistantMessage):
            print(message.content[0].text)
        elif isinstance(message, ResultMessage):
            print(message.subtype)


anyio.run(main)
