"""Mirror a conversation into a store, and resume from it."""

# model: [[text("Hello Ada.")], [text("Ada.")]]

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    InMemorySessionStore,
    ResultMessage,
    project_key_for_directory,
    query,
)


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
    key = {"project_key": project_key_for_directory(), "session_id": first}
    entries = store.get_entries(key)
    print(sorted({entry["type"] for entry in entries}), store.size)
    second = await ask("Who am I?", session_store=store, resume=first)
    print(first == second, len(store.get_entries(key)) > len(entries))


anyio.run(main)
