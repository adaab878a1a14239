"""A PermissionRequest hook that does not answer in time: the call is blocked."""

# model: [[tool_use("Bash", command="touch ran")], [text("Done.")]]
# not compared: messages and error texts, because Bridle blocks with a text of its own.

from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookMatcher, PermissionResultAllow


async def slow(input_data, tool_use_id, context):
    await anyio.sleep(60)
    return {}


async def allow(tool_name, tool_input, context):
    await anyio.sleep(6)
    return PermissionResultAllow()


async def main():
    hooks = {"PermissionRequest": [HookMatcher(hooks=[slow], timeout=1)]}
    options = ClaudeAgentOptions(can_use_tool=allow, hooks=hooks)
    async with ClaudeSDKClient(options) as client:
        await client.query("Run it.")
        async for _ in client.receive_response():
            pass
    print("ran" if Path("ran").exists() else "blocked")


anyio.run(main)
