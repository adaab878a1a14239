"""A permission callback with query() and a stream of prompts."""

# model: [[tool_use("Bash", command="touch a")], [text("Done.")]]

from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, PermissionResultAllow, ResultMessage, query


async def allow(tool_name, input_data, context):
    print("asked", tool_name, input_data["command"])
    return PermissionResultAllow()


async def prompts():
    yield {"type": "user", "message": {"role": "user", "content": "Touch a."}}


async def main():
    options = ClaudeAgentOptions(can_use_tool=allow)
    async for message in query(prompt=prompts(), options=options):
        if isinstance(message, ResultMessage):
            print(message.result, Path("a").exists())


anyio.run(main)
