"""Ask for things that the CLI refuses."""

import anyio
from claude_agent_sdk import ClaudeSDKClient


async def main():
    async with ClaudeSDKClient() as client:
        for call in (
            lambda: client.reconnect_mcp_server("nowhere"),
            lambda: client.toggle_mcp_server("nowhere", True),
            lambda: client.stop_task("no-such-task"),
            lambda: client.rewind_files("00000000-0000-4000-8000-000000000000"),
        ):
            try:
                print("done", await call())
            except Exception as problem:
                print("refused:", problem)


anyio.run(main)
