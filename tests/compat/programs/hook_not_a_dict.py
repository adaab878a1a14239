"""A hook that returns a string: the call goes on, unless a failure must block it."""

# model: [[tool_use("Bash", command="echo one")], [tool_use("Read", file_path="notes.txt")],
#   [text("Done.")]]
# not compared: messages and error texts, because Bridle reports the failure itself.

import anyio
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, ToolResultBlock, UserMessage, query


async def say(input_data, tool_use_id, context):
    return "fine"


async def main():
    matchers = [
        HookMatcher(matcher="Bash", hooks=[say]),
        HookMatcher(matcher="Read", hooks=[say], on_failure="block"),
    ]
    options = ClaudeAgentOptions(allowed_tools=["Bash", "Read"], hooks={"PreToolUse": matchers})
    async for message in query(prompt="Run both.", options=options):
        if isinstance(message, UserMessage) and isinstance(message.content[0], ToolResultBlock):
            print(message.content[0].is_error)


anyio.run(main)
