"""Results with content that the SDK skips, and content without what it needs."""

# model: [*([tool_use("mcp__t__give", number=number)] for number in range(8)), [text("Done.")]]

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ToolResultBlock,
    UserMessage,
    create_sdk_mcp_server,
    query,
    tool,
)

TEXT = {"type": "text", "text": "read"}
CONTENTS = [
    [{"type": "weird", "x": 1}, TEXT],
    [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}],
    [{"type": "resource", "resource": {"uri": "file:///x", "blob": "QUJD"}}, TEXT],
    [{"x": 1}],
    [{"type": "image", "data": "AAAA"}],
    [{"type": "text"}],
    [{"type": "text", "text": "more", "annotations": {"priority": 1}, "other": 2}],
    [{"type": "resource", "resource": None}, TEXT],
]


@tool("give", "Give something", {"number": int})
async def give(args):
    return {"content": CONTENTS[args["number"]]}


async def main():
    server = create_sdk_mcp_server("t", tools=[give])
    options = ClaudeAgentOptions(mcp_servers={"t": server}, allowed_tools=["mcp__t__give"])
    async for message in query(prompt="Go.", options=options):
        if isinstance(message, UserMessage) and isinstance(message.content[0], ToolResultBlock):
            print(message.content[0].content, message.content[0].is_error)


anyio.run(main)
