"""Take tools away."""

# model: [[tool_use("Bash", command="ls")], [text("I may not.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ToolResultBlock, UserMessage, query


async def main():
    options = ClaudeAgentOptions(disallowed_tools=["Bash", "WebFetch"])
    async for message in query(prompt="List files.", options=options):
        if isinstance(message, UserMessage):
            for block in message.content:
                if isinstance(block, ToolResultBlock):
                    print(block.is_error, block.content)


anyio.run(main)
