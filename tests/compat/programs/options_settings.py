"""Pass settings as JSON text, and sandbox settings beside them."""

# model: [[tool_use("Bash", command="echo $GREETING")], [text("Said.")]]

import json

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ToolResultBlock, UserMessage, query


async def main():
    options = ClaudeAgentOptions(
        settings=json.dumps(
            {"env": {"GREETING": "hello"}, "permissions": {"allow": ["Bash(echo:*)"]}}
        ),
        sandbox={"enabled": False, "excludedCommands": ["git"]},
    )
    async for message in query(prompt="Greet.", options=options):
        if isinstance(message, UserMessage) and isinstance(message.content[0], ToolResultBlock):
            print(message.content[0].content)


anyio.run(main)
