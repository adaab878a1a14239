"""Ask what the CLI offers."""

import anyio
from claude_agent_sdk import ClaudeSDKClient


async def main():
    async with ClaudeSDKClient() as client:
        info = await client.get_server_info()
        print(sorted(info))
        print(len(info["commands"]), info["output_style"])


anyio.run(main)
