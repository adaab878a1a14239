"""Send a second prompt while the first is being answered."""

# model: [[tool_use("Bash", command="sleep 0.3; echo slept")], [text("Both.")], [text("Late.")]]
# model options: tolerate_rejected=True

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, ToolUseBlock


async def main():
    async with ClaudeSDKClient(ClaudeAgentOptions(allowed_tools=["Bash"])) as client:
        await client.query("Sleep, please.")
        async for message in client.receive_messages():
            content = getattr(message, "content", None)
            if content and isinstance(content[0], ToolUseBlock):
                await client.query("And say when you are done.")
            if isinstance(message, ResultMessage):
                print(message.subtype, message.num_turns)
                break


anyio.run(main)
