"""The model calls a tool with the wrong input, then a tool that raises."""

# model: [[tool_use("mcp__calc__root", x="four")], [tool_use("mcp__calc__root", x=-4)],
#   [text("No.")]]

import math

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ToolResultBlock,
    UserMessage,
    create_sdk_mcp_server,
    query,
    tool,
)


@tool("root", "Square root", {"x": float})
async def root(args):
    return {"content": [{"type": "text", "text": str(math.sqrt(args["x"]))}]}


async def main():
    options = ClaudeAgentOptions(
        mcp_servers={"calc": create_sdk_mcp_server("calc", tools=[root])},
        allowed_tools=["mcp__calc__root"],
    )
    async for message in query(prompt="Root of four?", options=options):
        if isinstance(message, UserMessage):
            for block in message.content:
                if isinstance(block, ToolResultBlock):
                    print(block.is_error, block.content)


anyio.run(main)
