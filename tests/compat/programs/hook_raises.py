"""A hook that fails does not stop the work."""

# model: [[tool_use("Bash", command="echo ran")], [text("Done.")]]
# not compared: messages, because Bridle reports the failure itself and tells the CLI to go on.

import anyio
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, ToolResultBlock, UserMessage, query


async def broken(input_data, tool_use_id, context):
    raise KeyError("oops")


async def main():
    options = ClaudeAgentOptions(
        allowed_tools=["Bash"], hooks={"PreToolUse": [HookMatcher(hooks=[broken])]}
    )
    async for message in query(prompt="Run it.", options=options):
        if isinstance(message, UserMessage) and isinstance(message.content[0], ToolResultBlock):
            print(message.content[0].is_error, message.content[0].content)


anyio.run(main)
