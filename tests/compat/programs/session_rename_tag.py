"""Give a conversation a title and a tag."""

# model: [[text("Hello.")]]

import anyio
from claude_agent_sdk import (
    ResultMessage,
    get_session_info,
    query,
    rename_session,
    tag_session,
)


async def main():
    async for message in query(prompt="Say hello"):
        if isinstance(message, ResultMessage):
            return message.session_id


session = anyio.run(main)
rename_session(session, "  A greeting  ")
tag_session(session, "done")
info = get_session_info(session)
print(info.custom_title, info.summary, info.tag)
tag_session(session, None)
print(get_session_info(session).tag)
for call in (
    lambda: rename_session(session, "   "),
    lambda: rename_session("nonsense", "x"),
    lambda: tag_session("00000000-0000-4000-8000-000000000000", "x"),
):
    try:
        call()
    except (ValueError, FileNotFoundError) as problem:
        print(type(problem).__name__)
