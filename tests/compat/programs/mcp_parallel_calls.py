"""Two calls of one reply run at the same time."""

# model: [[tool_use("mcp__meet__wait", who="a"), tool_use("mcp__meet__wait", who="b")], [text("Met.")]]

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    ToolAnnotations,
    create_sdk_mcp_server,
    tool,
)


async def main():
    both, first_is_done, arrived = anyio.Event(), anyio.Event(), []

    @tool("wait", "Wait", {"who": str}, annotations=ToolAnnotations(readOnlyHint=True))
    async def wait(args):
        arrived.append(args["who"])
        if len(arrived) == 2:
            both.set()
        with anyio.fail_after(30):
            await both.wait()
            if args["who"] == "b":  # or else the order of the two results would be random
                await first_is_done.wait()
        first_is_done.set()
        return {"content": [{"type": "text", "text": args["who"]}]}

    meet = create_sdk_mcp_server("meet", tools=[wait])
    options = ClaudeAgentOptions(mcp_servers={"meet": meet}, allowed_tools=["mcp__meet__wait"])
    async with ClaudeSDKClient(options) as client:
        await client.query("Meet.")
        async for message in client.receive_response():
            if isinstance(message, ResultMessage):
                print(message.result, sorted(arrived))


anyio.run(main)
