"""Leave the loop at the first answer, then ask again."""

# model: [[text("One.")], [text("Two.")]]

import anyio
from claude_agent_sdk import AssistantMessage, query


async def first_answer(prompt):
    stream = query(prompt=prompt)
    try:
        async for message in stream:
            if isinstance(message, AssistantMessage):
                return message.content[0].text
    finally:
        await stream.aclose()


async def main():
    print(await first_answer("Count."))
    print(await first_answer("Go on."))


anyio.run(main)
