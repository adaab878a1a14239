"""Reach the limit of turns."""

# model: [[tool_use("Read", file_path="notes.txt")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKError, ResultMessage, query


async def main():
    options = ClaudeAgentOptions(max_turns=1, allowed_tools=["Read"])
    try:
        async for message in query(prompt="Read it.", options=options):
            if isinstance(message, ResultMessage):
                print(message.subtype, message.is_error, message.errors)
    except ClaudeSDKError as problem:
        print(type(problem).__name__, problem)


anyio.run(main)
