"""Go back to an earlier message of a conversation."""

# model: [[text("One.")], [text("Two.")], [text("Again two.")]]

import anyio
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    query,
)


async def main():
    answers, session = [], None
    async with ClaudeSDKClient() as client:
        for prompt in ("Count: one", "two"):
            await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, AssistantMessage):
                    answers.append(message.uuid)
                elif isinstance(message, ResultMessage):
                    session = message.session_id
    options = ClaudeAgentOptions(resume=session, resume_session_at=answers[0], fork_session=True)
    async for message in query(prompt="two, again", options=options):
        if isinstance(message, ResultMessage):
            print(message.result)


anyio.run(main)
