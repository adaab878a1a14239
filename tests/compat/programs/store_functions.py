"""The session functions on a store."""

# model: [[text("Hello.")], [text("Bye.")]]

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    InMemorySessionStore,
    ResultMessage,
    delete_session_via_store,
    fork_session_via_store,
    get_session_info_from_store,
    get_session_messages_from_store,
    list_sessions_from_store,
    list_subagents_from_store,
    query,
    rename_session_via_store,
    tag_session_via_store,
)


async def main():
    store, ids = InMemorySessionStore(), []
    for prompt in ("Say hello", "Say bye"):
        options = ClaudeAgentOptions(session_store=store)
        async for message in query(prompt=prompt, options=options):
            if isinstance(message, ResultMessage):
                ids.append(message.session_id)
    listed = await list_sessions_from_store(store)
    print([one.first_prompt for one in listed], len(await list_sessions_from_store(store, limit=1)))
    await rename_session_via_store(store, ids[0], "Greeting")
    await tag_session_via_store(store, ids[0], "old")
    info = await get_session_info_from_store(store, ids[0])
    print(info.custom_title, info.tag, info.summary)
    messages = await get_session_messages_from_store(store, ids[0])
    print([(one.type, one.message["role"]) for one in messages])
    copy = await fork_session_via_store(store, ids[0])
    copied = await get_session_messages_from_store(store, copy.session_id)
    print([one.type for one in copied], copied[0].uuid != messages[0].uuid)
    print(await list_subagents_from_store(store, ids[0]))
    await delete_session_via_store(store, ids[1])
    print(await get_session_info_from_store(store, ids[1]))


anyio.run(main)
