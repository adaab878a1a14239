"""Check a store with the conformance suite, and options that do not fit a store."""

import anyio
from claude_agent_sdk import ClaudeAgentOptions, InMemorySessionStore, SessionStore, query
from claude_agent_sdk.testing import run_session_store_conformance


class Small(SessionStore):
    async def append(self, key, entries):
        pass

    async def load(self, key):
        return None


async def main():
    await run_session_store_conformance(InMemorySessionStore)
    try:
        await run_session_store_conformance(Small)
    except AssertionError:
        print("Small does not keep entries")
    for options in (
        {"session_store": Small(), "continue_conversation": True},
        {"session_store": Small(), "enable_file_checkpointing": True},
    ):
        try:
            async for _ in query(prompt="Hi", options=ClaudeAgentOptions(**options)):
                pass
        except ValueError as problem:
            print(type(problem).__name__)


anyio.run(main)
