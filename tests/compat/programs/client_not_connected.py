"""Use a client before connect() and after disconnect()."""

import anyio
from claude_agent_sdk import ClaudeSDKClient, CLIConnectionError


async def attempt(call):
    try:
        await call()
    except CLIConnectionError as problem:
        print(type(problem).__name__)


async def read(client):
    async for _ in client.receive_response():
        pass


async def main():
    client = ClaudeSDKClient()
    calls = [
        lambda: client.query("Hi"),
        client.interrupt,
        lambda: client.set_model("opus"),
        client.get_server_info,
        client.get_mcp_status,
        lambda: read(client),
    ]
    for call in calls:
        await attempt(call)
    await client.disconnect()
    await client.connect()
    await client.disconnect()
    await attempt(calls[0])


anyio.run(main)
