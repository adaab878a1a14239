"""List the MCP servers of a session, switch one off and on again."""

# model: [[text("Hello.")]]

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    create_sdk_mcp_server,
    tool,
)


@tool("hello", "Say hello", {"name": str})
async def hello(args):
    return {"content": [{"type": "text", "text": f"Hello {args['name']}"}]}


async def main():
    server = create_sdk_mcp_server("greetings", "2.0.0", tools=[hello])
    options = ClaudeAgentOptions(mcp_servers={"greetings": server})
    async with ClaudeSDKClient(options) as client:
        await client.query("Hi")
        async for _ in client.receive_response():
            pass
        status = await client.get_mcp_status()
        for one in status["mcpServers"]:
            print(one["name"], one["status"], one.get("serverInfo"), one.get("tools"))
        await client.toggle_mcp_server("greetings", False)
        print([one["status"] for one in (await client.get_mcp_status())["mcpServers"]])
        await client.toggle_mcp_server("greetings", True)
        print([one["status"] for one in (await client.get_mcp_status())["mcpServers"]])


anyio.run(main)
