"""Set resume and continue_conversation. With a store, the session of resume goes on."""

# model: [[text("One.")], [text("Two.")], [text("Three.")]] * 2

import anyio
from claude_agent_sdk import ClaudeAgentOptions, InMemorySessionStore, ResultMessage, query


async def ask(prompt, **options):
    session = None
    async for message in query(prompt=prompt, options=ClaudeAgentOptions(**options)):
        if isinstance(message, ResultMessage):
            session = message.session_id
    return session


async def main():
    for store in (None, InMemorySessionStore()):
        first = await ask("First", session_store=store)
        second = await ask("Second", session_store=store)
        third = await ask("Third", session_store=store, resume=first, continue_conversation=True)
        print(third == first, third == second)


anyio.run(main)
