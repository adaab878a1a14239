"""Change the model between turns, then go back to the default."""

# model: [[text("1")], [text("2")], [text("3")]]

import anyio
from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ClaudeSDKClient


async def main():
    options = ClaudeAgentOptions(model="claude-sonnet-4-5")
    async with ClaudeSDKClient(options) as client:
        for model in ("", "claude-opus-4-5", None):
            if model != "":
                await client.set_model(model)
            await client.query("Who are you?")
            async for message in client.receive_response():
                if isinstance(message, AssistantMessage):
                    print(message.model)


anyio.run(main)
