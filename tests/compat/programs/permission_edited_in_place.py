"""A callback that changes the input it received, and allows the call."""

# model: [[tool_use("Bash", command="touch original")], [tool_use("Bash", command="touch same")],
#   [text("Done.")]]

from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, PermissionResultAllow


async def redirect(tool_name, input_data, context):
    if input_data["command"] == "touch original":
        input_data["command"] = "touch changed"
    return PermissionResultAllow()


async def main():
    async with ClaudeSDKClient(ClaudeAgentOptions(can_use_tool=redirect)) as client:
        await client.query("Touch both.")
        async for message in client.receive_response():
            print(type(message).__name__)
    print(sorted(path.name for path in Path().iterdir()))


anyio.run(main)
