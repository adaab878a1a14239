"""Go on with the latest conversation of this directory."""

# model: [[text("Hello Ada.")], [text("Ada.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage


async def ask(prompt, options):
    async with ClaudeSDKClient(options) as client:
        await client.query(prompt)
        async for message in client.receive_response():
            if isinstance(message, ResultMessage):
                print(message.result)
                return message.session_id


async def main():
    first = await ask("I am Ada.", ClaudeAgentOptions())
    second = await ask("Who am I?", ClaudeAgentOptions(continue_conversation=True))
    print(first == second)


anyio.run(main)
