"""Copy a conversation up to a message, go on in the copy, and delete the original."""

# model: [[text("One.")], [text("Two.")], [text("Copy.")]]

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    delete_session,
    fork_session,
    get_session_info,
    get_session_messages,
    query,
)


async def main():
    async with ClaudeSDKClient() as client:
        for prompt in ("one", "two"):
            await client.query(prompt)
            async for message in client.receive_response():
                session = getattr(message, "session_id", None)
    messages = get_session_messages(session)
    print([one.type for one in messages])
    copy = fork_session(session, up_to_message_id=messages[1].uuid, title="The copy")
    print(
        len(get_session_messages(copy.session_id)), get_session_info(copy.session_id).custom_title
    )
    options = ClaudeAgentOptions(resume=copy.session_id)
    async for message in query(prompt="more", options=options):
        if isinstance(message, ResultMessage):
            print(message.result)
    delete_session(session)
    print(get_session_info(session), len(get_session_messages(copy.session_id)))


anyio.run(main)
