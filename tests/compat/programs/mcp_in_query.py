"""A tool of the program with query() and a string."""

# model: [[tool_use("mcp__clock__now")], [text("Noon.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query, tool


@tool("now", "Tell the time", {})
async def now(args):
    print("called with", args)
    return {"content": [{"type": "text", "text": "12:00"}]}


async def main():
    options = ClaudeAgentOptions(
        mcp_servers={"clock": create_sdk_mcp_server("clock", tools=[now])},
        allowed_tools=["mcp__clock__now"],
    )
    async for message in query(prompt="What time is it?", options=options):
        if isinstance(message, ResultMessage):
            print(message.result)


anyio.run(main)
