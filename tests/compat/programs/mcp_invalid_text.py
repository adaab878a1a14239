"""Results with texts that are not strings: the model gets an error."""

# model: [*([tool_use("mcp__t__give", number=number)] for number in range(3)), [text("Done.")]]
# not compared: messages and error texts, because the official texts are those of pydantic.

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ToolResultBlock,
    UserMessage,
    create_sdk_mcp_server,
    query,
    tool,
)

CONTENTS = [
    [{"type": "text", "text": 5}],
    [{"type": "image", "data": None, "mimeType": "image/png"}],
    [{"type": "resource", "resource": {"uri": "file:///x", "text": None}}],
]


@tool("give", "Give something", {"number": int})
async def give(args):
    return {"content": CONTENTS[args["number"]]}


async def main():
    server = create_sdk_mcp_server("t", tools=[give])
    options = ClaudeAgentOptions(mcp_servers={"t": server}, allowed_tools=["mcp__t__give"])
    async for message in query(prompt="Go.", options=options):
        if isinstance(message, UserMessage) and isinstance(message.content[0], ToolResultBlock):
            print(message.content[0].is_error)


anyio.run(main)
