"""A hook allows a call with a reason that is not a string: the CLI drops it, and asks."""

# model: [[tool_use("Bash", command="touch ran")], [text("Done.")]]

from pathlib import Path

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    PermissionResultDeny,
)


async def allow(input_data, tool_use_id, context):
    decision = {"permissionDecision": "allow", "permissionDecisionReason": 5}
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}


async def deny(tool_name, tool_input, context):
    print("asked")
    return PermissionResultDeny(message="no")


async def main():
    hooks = {"PreToolUse": [HookMatcher(hooks=[allow])]}
    async with ClaudeSDKClient(ClaudeAgentOptions(can_use_tool=deny, hooks=hooks)) as client:
        await client.query("Run it.")
        async for _ in client.receive_response():
            pass
    print("ran" if Path("ran").exists() else "blocked")


anyio.run(main)
