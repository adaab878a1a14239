"""A hook that lets the CLI go on while it works."""

# model: [[tool_use("Bash", command="echo ran")], [text("Done.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, ResultMessage, query
from claude_agent_sdk.types import AsyncHookJSONOutput


async def later(input_data, tool_use_id, context) -> AsyncHookJSONOutput:
    print("started", input_data["tool_name"])
    return {"async_": True, "asyncTimeout": 1000}


async def main():
    options = ClaudeAgentOptions(
        allowed_tools=["Bash"], hooks={"PostToolUse": [HookMatcher(hooks=[later])]}
    )
    async for message in query(prompt="Run it.", options=options):
        if isinstance(message, ResultMessage):
            print(message.result)


anyio.run(main)
