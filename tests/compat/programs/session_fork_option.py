"""Branch off from an earlier conversation with an id of our own."""

# model: [[text("Hello Ada.")], [text("Ada.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

MINE = "11111111-2222-4333-8444-555555555555"


async def ask(prompt, **options):
    async for message in query(prompt=prompt, options=ClaudeAgentOptions(**options)):
        if isinstance(message, ResultMessage):
            print(message.result, message.session_id == MINE)
            return message.session_id


async def main():
    first = await ask("I am Ada.", session_id=MINE)
    second = await ask("Who am I?", resume=first, fork_session=True)
    print(first == second)


anyio.run(main)
