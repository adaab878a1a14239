"""End the turn after a tool, with continue_."""

# model: [[tool_use("Bash", command="echo critical error")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, ResultMessage, query


async def stop_on_error(input_data, tool_use_id, context):
    if "critical" in str(input_data["tool_response"]):
        return {"continue_": False, "stopReason": "Stopped at a critical error."}
    return {"continue_": True}


async def main():
    options = ClaudeAgentOptions(
        allowed_tools=["Bash"],
        hooks={"PostToolUse": [HookMatcher(matcher="Bash", hooks=[stop_on_error])]},
    )
    async for message in query(prompt="Run it.", options=options):
        if isinstance(message, ResultMessage):
            print(message.subtype, message.result, message.terminal_reason)


anyio.run(main)
