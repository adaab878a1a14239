"""A prompt that JSON cannot represent, and an iterable that waits for its answer."""

# model: [[text("One.")], [text("Two.")]]

import anyio
from claude_agent_sdk import ClaudeSDKClient, ResultMessage, query


async def main():
    answered = anyio.Event()

    async def prompts():
        yield {"type": "user", "message": {"role": "user", "content": [object()]}}
        await answered.wait()
        yield {"type": "user", "message": {"role": "user", "content": "next"}}

    async def read(messages):
        async for message in messages:
            if isinstance(message, ResultMessage):
                answered.set()

    with anyio.move_on_after(30) as scope:
        await read(query(prompt=prompts()))
        client = ClaudeSDKClient()
        await client.connect(prompts())
        await read(client.receive_messages())
        await client.disconnect()
    print("hangs" if scope.cancelled_caught else "ends")


anyio.run(main)
