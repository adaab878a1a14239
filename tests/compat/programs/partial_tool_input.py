"""Watch the input of a tool call grow."""

# model: [[thinking("Hm."), tool_use("Read", file_path="notes.txt")], [text("Aisle 7.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, StreamEvent


async def main():
    options = ClaudeAgentOptions(include_partial_messages=True, allowed_tools=["Read"])
    async with ClaudeSDKClient(options) as client:
        await client.query("Where?")
        async for message in client.receive_response():
            if isinstance(message, StreamEvent):
                delta = message.event.get("delta", {})
                if delta.get("type") == "input_json_delta":
                    print("input", delta["partial_json"])
                elif delta.get("type") == "thinking_delta":
                    print("thinking", delta["thinking"])


anyio.run(main)
