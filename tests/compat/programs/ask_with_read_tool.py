"""Let Claude read a file, and show the tool call and its result."""

# model: [[text("Let me look."), tool_use("Read", file_path="notes.txt")], [text("Aisle 7.")]]

import anyio
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    query,
)


async def main():
    options = ClaudeAgentOptions(allowed_tools=["Read"])
    async for message in query(prompt="Where are the saddles?", options=options):
        if isinstance(message, AssistantMessage):
            for block in message.content:
                match block:
                    case TextBlock(text=text):
                        print("text", text)
                    case ToolUseBlock(name=name, input=given):
                        print("call", name, given)
        elif isinstance(message, UserMessage):
            for block in message.content:
                if isinstance(block, ToolResultBlock):
                    print("result", block.is_error, block.content)


anyio.run(main)
