"""The working directory does not exist."""

import anyio
from claude_agent_sdk import ClaudeAgentOptions, CLIConnectionError, query


async def main():
    try:
        async for _ in query(prompt="Hi", options=ClaudeAgentOptions(cwd="/no/such/place")):
            pass
    except CLIConnectionError as problem:
        print(type(problem).__name__, "/no/such/place" in str(problem))


anyio.run(main)
