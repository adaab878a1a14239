"""Answer a question of the model through the permission callback."""

# model: [[tool_use("AskUserQuestion", questions=[{"question": "Which colour?", "header": "Colour",
#   "multiSelect": False, "options": [{"label": "Red", "description": "r"},
#   {"label": "Blue", "description": "b"}]}])], [text("Blue it is.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, PermissionResultAllow


async def answer(tool_name, input_data, context):
    print(tool_name, [one["question"] for one in input_data["questions"]])
    return PermissionResultAllow(updated_input={**input_data, "answers": {"Which colour?": "Blue"}})


async def main():
    async with ClaudeSDKClient(ClaudeAgentOptions(can_use_tool=answer)) as client:
        await client.query("Paint it.")
        async for message in client.receive_response():
            print(type(message).__name__)


anyio.run(main)
