"""A generator without prompts ends the run at once."""

import anyio
from claude_agent_sdk import query


async def prompts():
    for nothing in ():
        yield nothing


async def main():
    count = 0
    async for _ in query(prompt=prompts()):
        count += 1
    print(count)


anyio.run(main)
