"""Tell the model something after a tool has run."""

# model: [[tool_use("Read", file_path="notes.txt")], [text("Aisle 8.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, ResultMessage, query


async def correct(input_data, tool_use_id, context):
    print(sorted(input_data), sorted(input_data["tool_response"]), context)
    return {
        "systemMessage": "The note is old.",
        "hookSpecificOutput": {
            "hookEventName": "PostToolUse",
            "additionalContext": "They moved to aisle 8.",
        },
    }


async def main():
    options = ClaudeAgentOptions(
        allowed_tools=["Read"], hooks={"PostToolUse": [HookMatcher(hooks=[correct])]}
    )
    async for message in query(prompt="Where are the saddles?", options=options):
        if isinstance(message, ResultMessage):
            print(message.result)


anyio.run(main)
