"""A tool that returns text, an image, a link and a resource."""

# model: [[tool_use("mcp__files__show", name="dot")], [text("A dot.")]]

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ToolResultBlock,
    UserMessage,
    create_sdk_mcp_server,
    query,
    tool,
)

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="


@tool("show", "Show a file", {"name": str})
async def show(args):
    return {
        "content": [
            {"type": "text", "text": args["name"]},
            {"type": "image", "data": PIXEL, "mimeType": "image/png"},
            {
                "type": "resource_link",
                "name": "manual",
                "uri": "file:///manual.txt",
                "description": "How to read it",
            },
            {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
        ]
    }


async def main():
    options = ClaudeAgentOptions(
        mcp_servers={"files": create_sdk_mcp_server("files", tools=[show])},
        allowed_tools=["mcp__files__show"],
    )
    async for message in query(prompt="Show the dot.", options=options):
        if isinstance(message, UserMessage) and isinstance(message.content[0], ToolResultBlock):
            print([one["type"] for one in message.content[0].content])


anyio.run(main)
