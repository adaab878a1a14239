"""Leave a loop and continue the conversation while the first CLI still ends."""

# model: [[text("Hello Ada.")], [text("Ada.")]]

import asyncio

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

SLOW_END = '{"hooks": {"SessionEnd": [{"hooks": [{"type": "command", "command": "sleep 1"}]}]}}'


async def messages(prompt, options):
    async for message in query(prompt=prompt, options=ClaudeAgentOptions(**options)):
        yield message


async def ask(prompt, **options):
    async for message in messages(prompt, options):
        if isinstance(message, ResultMessage):
            print(message.result)
            return message.session_id


async def main():
    first = await ask("I am Ada.", settings=SLOW_END)
    second = await ask("Who am I?", continue_conversation=True)
    print(first == second)


asyncio.run(main())
