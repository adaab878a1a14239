"""Add context to every prompt."""

# model: [[text("It is Monday.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookMatcher


async def add_day(input_data, tool_use_id, context):
    print(input_data["hook_event_name"], input_data["prompt"])
    return {
        "hookSpecificOutput": {
            "hookEventName": "UserPromptSubmit",
            "additionalContext": "Today is Monday.",
        }
    }


async def main():
    options = ClaudeAgentOptions(hooks={"UserPromptSubmit": [HookMatcher(hooks=[add_day])]})
    async with ClaudeSDKClient(options) as client:
        await client.query("What day is it?")
        async for message in client.receive_response():
            print(type(message).__name__)


anyio.run(main)
