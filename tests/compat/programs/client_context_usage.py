"""Ask how full the context is."""

# model: [[text("Yes.")]]

import anyio
from claude_agent_sdk import ClaudeSDKClient


async def main():
    async with ClaudeSDKClient() as client:
        await client.query("Hi")
        async for _ in client.receive_response():
            pass
        usage = await client.get_context_usage()
        print(sorted(usage))
        print([one["name"] for one in usage["categories"]], usage["model"], usage["maxTokens"])


anyio.run(main)
