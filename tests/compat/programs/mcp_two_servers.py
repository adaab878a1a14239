"""Two servers, one of them with a tool that asks for permission."""

# model: [[tool_use("mcp__one__ping")], [tool_use("mcp__two__ping")], [text("Done.")]]

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
    create_sdk_mcp_server,
    tool,
)


def server(name):
    @tool("ping", f"Ping {name}", {})
    async def ping(args):
        print("ping", name)
        return {"content": [{"type": "text", "text": f"pong {name}"}]}

    return create_sdk_mcp_server(name, tools=[ping])


async def ask(tool_name, input_data, context):
    print("asked about", tool_name)
    return PermissionResultAllow()


async def main():
    options = ClaudeAgentOptions(
        mcp_servers={"one": server("one"), "two": server("two")},
        settings='{"permissions": {"allow": ["mcp__one__ping"]}}',
        can_use_tool=ask,
    )
    async with ClaudeSDKClient(options) as client:
        await client.query("Ping both.")
        async for _ in client.receive_response():
            pass


anyio.run(main)
