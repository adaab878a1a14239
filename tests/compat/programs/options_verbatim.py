"""Send a prompt that looks like a command, as it is."""

# model: [[text("Not a command.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query


async def main():
    options = ClaudeAgentOptions(verbatim_prompts=True)
    async for message in query(prompt="/cost is a word", options=options):
        if isinstance(message, ResultMessage):
            print(message.result)


anyio.run(main)
