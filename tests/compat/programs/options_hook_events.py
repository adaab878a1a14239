"""See the hooks of the CLI as messages."""

# model: [[text("Yes.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, HookEventMessage, HookMatcher, query


async def quiet(data, tool_use_id, context):
    return {}


async def main():
    options = ClaudeAgentOptions(
        include_hook_events=True, hooks={"UserPromptSubmit": [HookMatcher(hooks=[quiet])]}
    )
    async for message in query(prompt="Hi", options=options):
        if isinstance(message, HookEventMessage):
            print(message.subtype, message.hook_event_name)


anyio.run(main)
