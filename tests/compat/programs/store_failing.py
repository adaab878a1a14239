"""A store that refuses everything does not stop the conversation."""

# model: [[text("Hello.")]]

import logging

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    InMemorySessionStore,
    MirrorErrorMessage,
    ResultMessage,
    query,
)

logging.disable()


class Broken(InMemorySessionStore):
    async def append(self, key, entries):
        raise OSError("the disk is full")


async def main():
    options = ClaudeAgentOptions(session_store=Broken())
    async for message in query(prompt="Say hello", options=options):
        if isinstance(message, MirrorErrorMessage):
            print("mirror error", sorted(message.key), message.error)
        elif isinstance(message, ResultMessage):
            print(message.result)


anyio.run(main)
