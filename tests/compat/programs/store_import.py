"""Bring a conversation from disk into a store."""

# model: [[text("Hello.")]]

import anyio
from claude_agent_sdk import (
    InMemorySessionStore,
    ResultMessage,
    get_session_messages,
    get_session_messages_from_store,
    import_session_to_store,
    query,
)


async def main():
    async for message in query(prompt="Say hello"):
        if isinstance(message, ResultMessage):
            session = message.session_id
    store = InMemorySessionStore()
    await import_session_to_store(session, store, batch_size=2)
    stored = await get_session_messages_from_store(store, session)
    print(stored == get_session_messages(session), [one.type for one in stored])


anyio.run(main)
