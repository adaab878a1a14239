"""Refuse a prompt, then accept another one."""

# model: [[text("Gladly.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookMatcher, ResultMessage


async def polite(input_data, tool_use_id, context):
    if "please" not in input_data["prompt"]:
        return {"decision": "block", "reason": "Say please."}
    return {}


async def main():
    options = ClaudeAgentOptions(hooks={"UserPromptSubmit": [HookMatcher(hooks=[polite])]})
    async with ClaudeSDKClient(options) as client:
        for prompt in ("Sing.", "Sing, please."):
            await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, ResultMessage):
                    print(message.subtype, message.result)


anyio.run(main)
