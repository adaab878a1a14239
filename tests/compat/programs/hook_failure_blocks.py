"""A hook that fails and must not be passed."""

# model: [[tool_use("Bash", command="touch ran")], [text("Done.")]]
# not compared: messages and error texts, because Bridle blocks the call itself.

from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, ToolResultBlock, UserMessage, query


async def broken(input_data, tool_use_id, context):
    raise KeyError("oops")


async def main():
    matcher = HookMatcher(matcher="Bash", hooks=[broken], on_failure="block")
    options = ClaudeAgentOptions(allowed_tools=["Bash"], hooks={"PreToolUse": [matcher]})
    async for message in query(prompt="Run it.", options=options):
        if isinstance(message, UserMessage) and isinstance(message.content[0], ToolResultBlock):
            print(message.content[0].is_error)
    print(Path("ran").exists())


anyio.run(main)
