"""Continue the latest conversation of a store."""

# model: [[text("Hello Ada.")], [text("Ada.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, InMemorySessionStore, ResultMessage, query


async def ask(prompt, **options):
    session = None
    async for message in query(prompt=prompt, options=ClaudeAgentOptions(**options)):
        if isinstance(message, ResultMessage):
            print(message.result)
            session = message.session_id
    return session


async def main():
    store = InMemorySessionStore()
    first = await ask("I am Ada.", session_store=store)
    second = await ask("Who am I?", session_store=store, continue_conversation=True)
    print(first == second)


anyio.run(main)
