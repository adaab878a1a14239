"""Choose the built-in tools: some, none, and the default set."""

# model: [[text("1")], [text("2")], [text("3")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, SystemMessage, query


async def tools_of(options):
    async for message in query(prompt="Hi", options=options):
        if isinstance(message, SystemMessage) and message.subtype == "init":
            print(len(message.data["tools"]), message.data["tools"][:3])


async def main():
    await tools_of(ClaudeAgentOptions(tools=["Read", "Glob"]))
    await tools_of(ClaudeAgentOptions(tools=[]))
    await tools_of(ClaudeAgentOptions(tools={"type": "preset", "preset": "claude_code"}))


anyio.run(main)
