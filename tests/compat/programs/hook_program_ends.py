"""The event loop ends before a guard is called: the call is blocked."""

# model: [[tool_use("Bash", command="touch ran")], [text("Done.")]]
# not compared: messages and requests, because the CLI may have ended before them.

import os
import time
from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookMatcher

clients = []


async def guard(input_data, tool_use_id, context):
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny"}}


async def main():
    hooks = {"PreToolUse": [HookMatcher(hooks=[guard])]}
    client = ClaudeSDKClient(ClaudeAgentOptions(allowed_tools=["Bash"], hooks=hooks))
    clients.append(client)
    await client.connect()
    await client.query("Run it.")


anyio.run(main)
time.sleep(5)
print("ran" if Path("ran").exists() else "blocked", flush=True)
os._exit(0)
