"""A callback and a prompt tool exclude each other."""

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, PermissionResultAllow, query


async def allow(tool_name, input_data, context):
    return PermissionResultAllow()


async def main():
    options = ClaudeAgentOptions(can_use_tool=allow, permission_prompt_tool_name="mcp__x__ask")
    try:
        await ClaudeSDKClient(options).connect()
    except ValueError as problem:
        print(type(problem).__name__)
    try:
        async for _ in query(prompt="Hi", options=options):
            pass
    except ValueError as problem:
        print(type(problem).__name__)


anyio.run(main)
