"""Send one prompt and read every message of the CLI.

This is the simplest way to see all messages. Leaving the loop early shuts the CLI down.

$ python examples/one_way_query.py
"""

import asyncio

import bridle


async def main() -> None:
    agent = bridle.Agent(allowed_tools=["Read", "Glob"], max_turns=5)
    async with agent.query("How many Python files are in this directory?") as messages:
        async for message in messages:
            if isinstance(message, bridle.InitMessage):
                print(f"model {message.model}, {len(message.tools)} tools")
            elif isinstance(message, bridle.AssistantMessage):
                for block in message.content:
                    if isinstance(block, bridle.TextBlock):
                        print(block.text)
                    elif isinstance(block, bridle.ToolUseBlock):
                        print(f"-> {block.name} {block.input}")
            elif isinstance(message, bridle.ResultMessage):
                print(f"{message.subtype} after {message.num_turns} model calls")


if __name__ == "__main__":
    asyncio.run(main())
