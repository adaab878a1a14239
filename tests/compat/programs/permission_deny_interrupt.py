"""Deny a tool and end the turn."""

# model: [[tool_use("Bash", command="touch made.txt")]]

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultDeny,
    ResultMessage,
)


async def never(tool_name, input_data, context):
    return PermissionResultDeny(message="Stop here.", interrupt=True)


async def main():
    async with ClaudeSDKClient(ClaudeAgentOptions(can_use_tool=never)) as client:
        await client.query("Make it.")
        async for message in client.receive_response():
            if isinstance(message, ResultMessage):
                print(message.subtype, message.terminal_reason, len(message.permission_denials))


anyio.run(main)
