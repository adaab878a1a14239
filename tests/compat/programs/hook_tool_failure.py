"""Hear of a tool that failed."""

# model: [[tool_use("Read", file_path="missing.txt")], [text("Not there.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, query


async def failed(input_data, tool_use_id, context):
    print(input_data["tool_name"], input_data["error"], input_data.get("is_interrupt"))
    return {
        "hookSpecificOutput": {
            "hookEventName": "PostToolUseFailure",
            "additionalContext": "Look elsewhere.",
        }
    }


async def main():
    options = ClaudeAgentOptions(
        allowed_tools=["Read"], hooks={"PostToolUseFailure": [HookMatcher(hooks=[failed])]}
    )
    async for _ in query(prompt="Read it.", options=options):
        pass


anyio.run(main)
