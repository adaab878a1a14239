"""Stream one prompt with a hook: the SDK keeps the input open until the turn ends."""

# model: [[tool_use("Bash", command="echo one")], [text("Done.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, ResultMessage, query


async def note(data, tool_use_id, context):
    print("hook", data["hook_event_name"], data["tool_name"], tool_use_id == data["tool_use_id"])
    return {}


async def prompts():
    yield {"type": "user", "message": {"role": "user", "content": "Run echo."}}


async def main():
    options = ClaudeAgentOptions(
        allowed_tools=["Bash"], hooks={"PreToolUse": [HookMatcher(matcher="Bash", hooks=[note])]}
    )
    async for message in query(prompt=prompts(), options=options):
        if isinstance(message, ResultMessage):
            print(message.result)


anyio.run(main)
