"""Register an event that the official literal does not list."""

# model: [[text("Yes.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, query


async def begin(input_data, tool_use_id, context):
    print(input_data["hook_event_name"], input_data["source"])
    return {
        "hookSpecificOutput": {
            "hookEventName": "SessionStart",
            "additionalContext": "The stable is open.",
        }
    }


async def main():
    options = ClaudeAgentOptions(hooks={"SessionStart": [HookMatcher(hooks=[begin])]})
    async for message in query(prompt="Hi", options=options):
        print(type(message).__name__)


anyio.run(main)
