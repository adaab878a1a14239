"""MCP servers in your process: one from the `mcp` package, and one that handles JSON-RPC itself.

For a few functions, `bridle.tool` is simpler (see in_process_tools.py). Use these if you already
have a server, or if you forward the messages to another program.

$ pip install 'bridle[mcp]'
$ python examples/raw_mcp_server.py
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from mcp.server.mcpserver import MCPServer  # in mcp 1: mcp.server.fastmcp.FastMCP

import bridle

calculator = MCPServer("calculator", log_level="WARNING")


@calculator.tool()
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


ECHO = {
    "name": "echo",
    "description": "Says a text again.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}


def handle(message: Mapping[str, Any]) -> bridle.McpResponse | None:
    """Answer a JSON-RPC message. This function is a complete MCP server."""
    number = message.get("id")
    match message:
        case {"method": "initialize", "params": {"protocolVersion": version}}:
            info = {"name": "echo", "version": "1.0"}
            tools: dict[str, object] = {"tools": {}}
            result = {"protocolVersion": version, "capabilities": tools, "serverInfo": info}
        case {"method": "tools/list"}:
            result = {"tools": [ECHO]}
        case {"method": "tools/call", "params": {"arguments": {"text": str(text)}}}:
            result = {"content": [{"type": "text", "text": text}]}
        case _ if number is None:
            return None  # a notification needs no answer
        case _:
            error = bridle.McpError(-32601, f"{message.get('method')} is not known here")
            return bridle.McpResponse(id=number, error=error)
    return bridle.McpResponse(id=number, result=result)


async def main() -> None:
    agent = bridle.Agent(
        allowed_tools=["mcp__calculator", "mcp__echo"],
        mcp_servers={"calculator": calculator, "echo": handle},
    )
    outcome = await agent.run(
        "Add 40 and 2 with the calculator, and let the echo server say the sum."
    )
    print(outcome.raise_for_reason().text)


if __name__ == "__main__":
    asyncio.run(main())
