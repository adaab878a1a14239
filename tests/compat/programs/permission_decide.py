"""Decide about each tool in a callback."""

# model: [[tool_use("Write", file_path="a.txt", content="a")],
#   [tool_use("Bash", command="rm notes.txt")], [text("Done.")]]

from pathlib import Path

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    ToolPermissionContext,
)


async def decide(tool_name: str, input_data: dict, context: ToolPermissionContext):
    print(tool_name, sorted(input_data), context.signal, bool(context.tool_use_id))
    print([one.type for one in context.suggestions], context.blocked_path, context.display_name)
    if tool_name == "Write":
        return PermissionResultAllow()
    return PermissionResultDeny(message="Keep the notes.")


async def main():
    async with ClaudeSDKClient(ClaudeAgentOptions(can_use_tool=decide)) as client:
        await client.query("Tidy up.")
        async for message in client.receive_response():
            if isinstance(message, ResultMessage):
                print([one["tool_name"] for one in message.permission_denials])
    print(Path("a.txt").exists(), Path("notes.txt").exists())


anyio.run(main)
