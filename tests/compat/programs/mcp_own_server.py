"""A server made with the mcp package itself."""

# model: [[tool_use("mcp__own__double", x=21)], [text("42")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ToolResultBlock, UserMessage, query
from mcp import types
from mcp.server.lowlevel import Server


async def list_tools(context, params):
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    return types.ListToolsResult(
        tools=[types.Tool(name="double", description="Double a number", inputSchema=schema)]
    )


async def call_tool(context, params):
    await anyio.sleep(0)
    text = str(params.arguments["x"] * 2)
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def main():
    server = Server("own", version="3.1.0", on_list_tools=list_tools, on_call_tool=call_tool)
    options = ClaudeAgentOptions(
        mcp_servers={"own": {"type": "sdk", "name": "own", "instance": server}},
        allowed_tools=["mcp__own__double"],
    )
    async for message in query(prompt="Double 21.", options=options):
        if isinstance(message, UserMessage) and isinstance(message.content[0], ToolResultBlock):
            print(message.content[0].content)


anyio.run(main)
