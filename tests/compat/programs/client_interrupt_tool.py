"""Interrupt a tool that would wait for a minute."""

# model: [[tool_use("mcp__slow__wait")]]

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    ToolResultBlock,
    UserMessage,
    create_sdk_mcp_server,
    tool,
)


async def main():
    started = anyio.Event()

    @tool("wait", "Wait for a minute", {})
    async def wait(args):
        started.set()
        await anyio.sleep(60)
        return {"content": [{"type": "text", "text": "waited"}]}

    options = ClaudeAgentOptions(
        allowed_tools=["mcp__slow__wait"],
        mcp_servers={"slow": create_sdk_mcp_server("slow", tools=[wait])},
    )
    async with ClaudeSDKClient(options) as client, anyio.create_task_group() as tasks:

        async def read():
            async for message in client.receive_response():
                if isinstance(message, UserMessage) and not isinstance(message.content, str):
                    for block in message.content:
                        if isinstance(block, ToolResultBlock):
                            print("tool", block.is_error)
                if isinstance(message, ResultMessage):
                    print(message.subtype, message.terminal_reason)

        tasks.start_soon(read)
        await client.query("Wait.")
        await started.wait()
        await client.interrupt()


anyio.run(main)
