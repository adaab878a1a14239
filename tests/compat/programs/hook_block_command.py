"""Refuse a dangerous command before it runs."""

# model: [[tool_use("Bash", command="rm -rf stable")], [tool_use("Bash", command="echo fine")],
#   [text("Done.")]]

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    ToolResultBlock,
    UserMessage,
)


async def check_command(input_data, tool_use_id, context):
    command = input_data["tool_input"].get("command", "")
    if "rm -rf" in command:
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": "Not in the stable.",
            }
        }
    return {}


async def main():
    options = ClaudeAgentOptions(
        allowed_tools=["Bash"],
        hooks={"PreToolUse": [HookMatcher(matcher="Bash", hooks=[check_command])]},
    )
    async with ClaudeSDKClient(options) as client:
        await client.query("Clean up.")
        async for message in client.receive_response():
            if isinstance(message, UserMessage):
                for block in message.content:
                    if isinstance(block, ToolResultBlock):
                        print(block.is_error, block.content)


anyio.run(main)
