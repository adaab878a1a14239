"""The SDK warns about rules that make the callback useless."""

# model: [[text("Yes.")]]

import warnings

import anyio
from claude_agent_sdk import (
    CanUseToolShadowedWarning,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
)


async def allow(tool_name, input_data, context):
    return PermissionResultAllow()


async def main():
    options = ClaudeAgentOptions(can_use_tool=allow, allowed_tools=["Read", "Bash(ls:*)"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with ClaudeSDKClient(options) as client:
            await client.query("Hi")
            async for _ in client.receive_response():
                pass
    for one in caught:
        if issubclass(one.category, CanUseToolShadowedWarning):
            print(one.category.__name__, "Read" in str(one.message))


anyio.run(main)
