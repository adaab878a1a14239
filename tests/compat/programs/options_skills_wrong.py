"""Skill names that the SDK refuses."""

import anyio
from claude_agent_sdk import ClaudeAgentOptions, query


async def main():
    for skills in ("stable", ["a,b"], ["*"], [" x"], [3], ["/x"]):
        try:
            async for _ in query(prompt="Hi", options=ClaudeAgentOptions(skills=skills)):
                pass
        except (TypeError, ValueError) as problem:
            print(type(problem).__name__)


anyio.run(main)
