"""Take messages one by one, and let the stream go without closing it."""

# model: [[text("One.")]]

import asyncio

from claude_agent_sdk import SystemMessage, query


async def main():
    stream = query(prompt="Count.")
    first = await anext(stream)
    print(isinstance(first, SystemMessage), stream is aiter(stream))
    await stream.aclose()
    try:
        await anext(stream)
    except StopAsyncIteration:
        print("closed")


asyncio.run(main())
