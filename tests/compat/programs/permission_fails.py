"""A callback that raises, and one that returns something else."""

# model: [[tool_use("Bash", command="touch a")], [tool_use("Bash", command="touch b")],
#   [text("Done.")]]
# not compared: error texts, because Bridle denies the call with a text of its own.

from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ToolResultBlock, UserMessage

calls = []


async def broken(tool_name, input_data, context):
    calls.append(tool_name)
    if len(calls) == 1:
        raise RuntimeError("no decision")
    return {"behavior": "allow"}


async def main():
    async with ClaudeSDKClient(ClaudeAgentOptions(can_use_tool=broken)) as client:
        await client.query("Touch both.")
        async for message in client.receive_response():
            if isinstance(message, UserMessage):
                for block in message.content:
                    if isinstance(block, ToolResultBlock):
                        print(block.is_error)
    print(calls, Path("a").exists(), Path("b").exists())


anyio.run(main)
