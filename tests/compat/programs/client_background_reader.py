"""Read in a task of its own while the main task sends prompts."""

# model: [[text("A")], [text("B")]]

import anyio
from claude_agent_sdk import AssistantMessage, ClaudeSDKClient, ResultMessage


async def main():
    async with ClaudeSDKClient() as client, anyio.create_task_group() as tasks:
        ended = [anyio.Event(), anyio.Event()]

        async def read():
            waiting = list(ended)
            async for message in client.receive_messages():
                if isinstance(message, AssistantMessage):
                    print("read", message.content[0].text)
                if isinstance(message, ResultMessage):
                    waiting.pop(0).set()
                if not waiting:
                    return

        tasks.start_soon(read)
        for number, event in enumerate(ended):
            await client.query(f"prompt {number}")
            await event.wait()


anyio.run(main)
