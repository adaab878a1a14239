"""A guard that exits the program: the call is blocked."""

# model: [[tool_use("Bash", command="touch ran")], [text("Done.")]]
# not compared: messages and requests, because the exit may come before or after them.

import contextlib
import sys
from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookMatcher


async def guard(input_data, tool_use_id, context):
    await anyio.sleep(0.1)
    sys.exit(3)


async def main():
    matcher = HookMatcher(matcher="Bash", hooks=[guard])
    options = ClaudeAgentOptions(allowed_tools=["Bash"], hooks={"PreToolUse": [matcher]})
    async with ClaudeSDKClient(options) as client:
        await client.query("Run it.")
        await anyio.sleep(4)  # the program does something else


with contextlib.suppress(BaseException):
    anyio.run(main)
print("ran" if Path("ran").exists() else "blocked")
