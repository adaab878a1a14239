"""Receive what the CLI writes to stderr."""

# model: [[text("Yes.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

lines = []


async def main():
    options = ClaudeAgentOptions(stderr=lines.append, extra_args={"debug-to-stderr": None})
    async for message in query(prompt="Hi", options=options):
        if isinstance(message, ResultMessage):
            print(message.result)
    print(len(lines) > 0, all(isinstance(line, str) for line in lines))


anyio.run(main)
