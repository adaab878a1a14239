"""Go on with an earlier conversation."""

# model: [[text("Hello Ada.")], [text("Ada.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query


async def ask(prompt, **options):
    async for message in query(prompt=prompt, options=ClaudeAgentOptions(**options)):
        if isinstance(message, ResultMessage):
            print(message.result)
            return message.session_id


async def main():
    first = await ask("I am Ada.")
    second = await ask("Who am I?", resume=first)
    print(first == second)


anyio.run(main)
