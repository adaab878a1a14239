"""Resume a conversation that does not exist."""

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ProcessError, query


async def main():
    options = ClaudeAgentOptions(resume="00000000-0000-4000-8000-000000000000")
    try:
        async for _ in query(prompt="Hi", options=options):
            pass
    except ProcessError as problem:
        print(type(problem).__name__, problem.exit_code)


anyio.run(main)
