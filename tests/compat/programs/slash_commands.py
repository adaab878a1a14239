"""Use commands of Claude Code as prompts."""

# model: [[text("Hello.")], [text("What?")]]

import anyio
from claude_agent_sdk import ClaudeSDKClient, ConversationResetMessage, ResultMessage


async def main():
    async with ClaudeSDKClient() as client:
        for prompt in ("Hello", "/clear", "/no-such-command"):
            await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, ConversationResetMessage):
                    print("reset", message.new_conversation_id != message.session_id)
                elif isinstance(message, ResultMessage):
                    print(message.subtype, message.num_turns, message.result)


anyio.run(main)
