"""A PostToolBatch hook that does not answer in time: the turn ends."""

# model: [[tool_use("Bash", command="touch ran")], [text("Done.")]]
# not compared: messages, because the CLI of the official SDK reports a crash.

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookMatcher, ResultMessage


async def slow(input_data, tool_use_id, context):
    print(input_data["hook_event_name"])
    await anyio.sleep(60)
    return {}


async def main():
    hooks = {"PostToolBatch": [HookMatcher(hooks=[slow], timeout=1)]}
    options = ClaudeAgentOptions(allowed_tools=["Bash"], hooks=hooks)
    async with ClaudeSDKClient(options) as client:
        await client.query("Run it.")
        async for message in client.receive_response():
            if isinstance(message, ResultMessage):
                print(message.result == "Done.")


anyio.run(main)
