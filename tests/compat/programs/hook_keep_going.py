"""Send the model back to work when it stops too early."""

# model: [[text("Half.")], [text("Whole.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, ResultMessage, query


async def once_more(input_data, tool_use_id, context):
    print("stops", input_data["stop_hook_active"], input_data.get("last_assistant_message"))
    if not input_data["stop_hook_active"]:
        return {"decision": "block", "reason": "Do the other half, too."}
    return {}


async def main():
    options = ClaudeAgentOptions(hooks={"Stop": [HookMatcher(hooks=[once_more])]})
    async for message in query(prompt="Work.", options=options):
        if isinstance(message, ResultMessage):
            print(message.result, message.num_turns)


anyio.run(main)
