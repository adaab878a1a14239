"""List stored conversations and read one."""

# model: [[text("Hello.")], [text("Bye.")]]

import anyio
from claude_agent_sdk import (
    get_session_info,
    get_session_messages,
    list_sessions,
    query,
)


async def main():
    for prompt in ("Say hello", "Say bye"):
        async for _ in query(prompt=prompt):
            pass


anyio.run(main)
sessions = list_sessions()
print(len(sessions), sorted(one.summary for one in sessions))
print(len(list_sessions(limit=1)), len(list_sessions(offset=2)), len(list_sessions(directory="/")))
for one in sorted(sessions, key=lambda one: one.first_prompt):
    print(one.first_prompt, one.cwd, one.custom_title, one.tag, one.file_size > 0)
    for message in get_session_messages(one.session_id):
        print(message.type, message.uuid, message.message["content"])
    print(get_session_info(one.session_id) == one)
print(get_session_info("not an id"), get_session_messages("00000000-0000-4000-8000-000000000000"))
