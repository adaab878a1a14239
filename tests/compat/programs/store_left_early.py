"""Leave the loop at the result, and resume the conversation at once from the store."""

# model: [[text("Hello Ada.")], [text("Ada.")]]
# not compared: messages, because the CLI adds the cost of the first run only if it ended in time.

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    InMemorySessionStore,
    ResultMessage,
    project_key_for_directory,
    query,
)


async def ask(prompt, **options):
    async for message in query(prompt=prompt, options=ClaudeAgentOptions(**options)):
        if isinstance(message, ResultMessage):
            print(message.result)
            return message.session_id


async def main():
    store = InMemorySessionStore()
    first = await ask("I am Ada.", session_store=store)
    key = {"project_key": project_key_for_directory(), "session_id": first}
    entries = store.get_entries(key)
    print(sorted({entry["type"] for entry in entries}), store.size)
    second = await ask("Who am I?", session_store=store, resume=first)
    print(first == second, len(store.get_entries(key)) > len(entries))


anyio.run(main)
