"""Ask several questions at the same time."""

# model: lambda request: [text(request.last_user_text.upper())]
# not compared: messages, because their order differs from run to run.
# in any order: requests, because the two questions are asked at the same time.

import asyncio

from claude_agent_sdk import ResultMessage, query


async def ask(word):
    async for message in query(prompt=word):
        if isinstance(message, ResultMessage):
            return message.result


async def main():
    print(await ask("first"))  # or else it is random which CLI writes the configuration file
    print(await asyncio.gather(ask("a"), ask("b")))


asyncio.run(main())
