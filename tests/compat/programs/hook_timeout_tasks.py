"""Hooks of tasks and of model switches that do not answer in time: they block."""

# model: [[tool_use("TaskCreate", subject="one", description="d")],
#   [tool_use("TaskCreate", subject="two", description="d")],
#   [tool_use("TaskUpdate", taskId="1", status="completed")], [tool_use("TaskList")],
#   [text("Done.")], [text("Again.")]]
# not compared: messages and requests, because the texts of the CLI and of Bridle differ.

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookMatcher, UserMessage


async def late(input_data, tool_use_id, context):
    event = input_data["hook_event_name"]
    print(event, input_data.get("task_subject"))
    if input_data.get("task_subject") != "one" or event == "TaskCompleted":
        await anyio.sleep(60)
    return {}


async def main():
    events = ["TaskCreated", "TaskCompleted", "PreModelSwitch"]
    options = ClaudeAgentOptions(
        allowed_tools=["TaskCreate", "TaskList", "TaskUpdate"],
        model="claude-opus-5-5",
        hooks={event: [HookMatcher(hooks=[late], timeout=1)] for event in events},
    )
    async with ClaudeSDKClient(options) as client:
        await client.query("Work.")
        async for message in client.receive_response():
            if isinstance(message, UserMessage):
                result = message.content[0].content
        print(result.splitlines()[0])  # the first task
        try:
            await client.set_model("claude-sonnet-5-5")
            print("switched")
        except Exception:
            print("not switched")
        await client.query("Again.")
        async for message in client.receive_response():
            if hasattr(message, "model"):
                print(message.model)


anyio.run(main)
