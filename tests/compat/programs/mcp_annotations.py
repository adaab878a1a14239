"""Describe how a tool behaves."""

# model: [[tool_use("mcp__shop__list_goods")], [text("Hay.")]]

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ToolAnnotations,
    create_sdk_mcp_server,
    tool,
)


@tool(
    "list_goods",
    "List the goods",
    {},
    annotations=ToolAnnotations(readOnlyHint=True, openWorldHint=False, maxResultSizeChars=9000),
)
async def list_goods(args):
    return {"content": [{"type": "text", "text": "hay"}]}


@tool("burn", "Burn it all", {}, annotations=ToolAnnotations(destructive_hint=True))
async def burn(args):
    return {"content": []}


async def main():
    shop = create_sdk_mcp_server("shop", tools=[list_goods, burn])
    print(list_goods.name, list_goods.description, bool(list_goods.annotations))
    options = ClaudeAgentOptions(
        mcp_servers={"shop": shop}, allowed_tools=["mcp__shop__list_goods"]
    )
    async with ClaudeSDKClient(options) as client:
        await client.query("What do you have?")
        async for _ in client.receive_response():
            pass
        for one in (await client.get_mcp_status())["mcpServers"][0]["tools"]:
            print(one["name"], one.get("annotations"))


anyio.run(main)
