"""Guards that do not answer in time: the prompt and the call are blocked."""

# model: [[tool_use("Bash", command="touch ran")], [text("Done.")]]
# not compared: messages and error texts, because Bridle blocks with a text of its own.

from pathlib import Path

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    ResultMessage,
    ToolResultBlock,
    UserMessage,
)


async def slow(input_data, tool_use_id, context):
    print(input_data["hook_event_name"])
    if input_data.get("prompt") != "Run it.":
        await anyio.sleep(60)
    return {}


async def main():
    guard = HookMatcher(hooks=[slow], timeout=1)
    hooks = {"PreToolUse": [guard], "UserPromptSubmit": [guard], "Stop": [guard]}
    options = ClaudeAgentOptions(allowed_tools=["Bash"], hooks=hooks)
    async with ClaudeSDKClient(options) as client:
        for prompt in ("Wait.", "Run it."):
            await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, ResultMessage):
                    print(message.subtype, message.result == "Done.")
                elif isinstance(message, UserMessage):
                    print([one.is_error for one in message.content if type(one) is ToolResultBlock])
    print(Path("ran").exists())


anyio.run(main)
