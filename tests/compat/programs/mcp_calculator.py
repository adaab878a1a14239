"""Tools in the program's own process."""

# model: [[tool_use("mcp__calc__add", a=2, b=3), tool_use("mcp__calc__divide", a=1, b=0)],
#   [text("5")]]

import anyio
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ToolResultBlock,
    UserMessage,
    create_sdk_mcp_server,
    tool,
)


@tool("add", "Add two numbers", {"a": float, "b": float})
async def add(args):
    total = args["a"] + args["b"]
    return {"content": [{"type": "text", "text": f"The sum is {total}"}]}


@tool("divide", "Divide two numbers", {"a": float, "b": float})
async def divide(args):
    if args["b"] == 0:
        return {"content": [{"type": "text", "text": "Division by zero"}], "is_error": True}
    return {"content": [{"type": "text", "text": str(args["a"] / args["b"])}]}


async def main():
    calc = create_sdk_mcp_server(name="calc", version="1.0.0", tools=[add, divide])
    options = ClaudeAgentOptions(
        mcp_servers={"calc": calc}, allowed_tools=["mcp__calc__add", "mcp__calc__divide"]
    )
    results = {}
    async with ClaudeSDKClient(options) as client:
        await client.query("What is 2 + 3, and 1 / 0?")
        async for message in client.receive_response():
            if isinstance(message, UserMessage):
                for block in message.content:
                    if isinstance(block, ToolResultBlock):
                        results[block.tool_use_id] = (block.is_error, block.content)
            if isinstance(message, AssistantMessage):
                print([type(block).__name__ for block in message.content])
    for one in sorted(results.values(), key=str):
        print(one)


anyio.run(main)
