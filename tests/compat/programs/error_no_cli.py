"""The CLI is not where the options say."""

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    CLIConnectionError,
    CLINotFoundError,
    query,
)


async def main():
    options = ClaudeAgentOptions(cli_path="/no/such/claude")
    try:
        async for _ in query(prompt="Hi", options=options):
            pass
    except CLINotFoundError as problem:
        print(type(problem).__name__, isinstance(problem, CLIConnectionError))
        print("/no/such/claude" in str(problem))
    try:
        async with ClaudeSDKClient(options):
            pass
    except ClaudeSDKError as problem:
        print(type(problem).__name__)


anyio.run(main)
