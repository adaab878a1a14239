"""A server in a process of its own, beside one in this process."""

# model: [[tool_use("mcp__outside__hello")], [text("Hello.")]]

import sys
from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, create_sdk_mcp_server, tool

SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "outside", "version": "1"}},
        "tools/list": {"tools": [{"name": "hello", "description": "Say hello",
                                  "inputSchema": {"type": "object", "properties": {}}}]},
        "tools/call": {"content": [{"type": "text", "text": "hello from outside"}]},
    }.get(asked["method"], {})
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@tool("hello", "Say hello", {})
async def hello(args):
    return {"content": [{"type": "text", "text": "hello from inside"}]}


async def main():
    Path("server.py").write_text(SERVER)
    options = ClaudeAgentOptions(
        mcp_servers={
            "outside": {"type": "stdio", "command": sys.executable, "args": ["server.py"]},
            "inside": create_sdk_mcp_server("inside", tools=[hello]),
        },
        strict_mcp_config=True,
        allowed_tools=["mcp__outside__hello"],
    )
    async with ClaudeSDKClient(options) as client:
        while True:
            servers = (await client.get_mcp_status())["mcpServers"]
            if [one["status"] for one in servers] == ["connected"] * 2:
                break
            await anyio.sleep(0.05)
        print(sorted(one["name"] for one in servers))
        await client.query("Say hello.")
        async for message in client.receive_response():
            print(type(message).__name__)


anyio.run(main)
