"""The whole of a program that asks one thing: with the official SDK."""

import asyncio
import json
import resource
import sys

import claude_agent_sdk


async def main() -> None:
    job = json.load(sys.stdin)
    options = claude_agent_sdk.ClaudeAgentOptions(
        cli_path=job["cli"], env=job["env"], cwd=job["cwd"]
    )
    text = None
    async for message in claude_agent_sdk.query(prompt="Say ok.", options=options):
        if isinstance(message, claude_agent_sdk.ResultMessage):
            text = message.result
    assert text == "ok"


asyncio.run(main())
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime)
