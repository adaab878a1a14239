"""Allow a command and change it."""

# model: [[tool_use("Bash", command="echo hello")], [text("Done.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, ToolResultBlock, UserMessage, query


async def shout(input_data, tool_use_id, context):
    command = input_data["tool_input"]["command"]
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "allow",
            "updatedInput": {**input_data["tool_input"], "command": command.upper().lower() + "!"},
        }
    }


async def main():
    options = ClaudeAgentOptions(hooks={"PreToolUse": [HookMatcher(matcher="Bash", hooks=[shout])]})
    async for message in query(prompt="Say hello.", options=options):
        if isinstance(message, UserMessage) and isinstance(message.content[0], ToolResultBlock):
            print(message.content[0].content)


anyio.run(main)
