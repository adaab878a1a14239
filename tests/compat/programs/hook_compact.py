"""Hear of a compaction before it happens."""

# model: [[text("Hello.")], [text("<summary>They said hello.</summary>")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookMatcher, SystemMessage


async def before(input_data, tool_use_id, context):
    print(input_data["trigger"], input_data["custom_instructions"])
    return {}


async def main():
    options = ClaudeAgentOptions(hooks={"PreCompact": [HookMatcher(hooks=[before])]})
    async with ClaudeSDKClient(options) as client:
        for prompt in ("Hello", "/compact keep the greeting"):
            await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, SystemMessage):
                    print(message.subtype)


anyio.run(main)
