"""Read what subagents of a conversation did."""

# model: [[tool_use("Agent", description="Look", prompt="Look", subagent_type="general-purpose",
#   run_in_background=False)], [text("Looked.")], [text("Done.")]]

import anyio
from claude_agent_sdk import ResultMessage, get_subagent_messages, list_subagents, query


async def main():
    async for message in query(prompt="Let someone look."):
        if isinstance(message, ResultMessage):
            return message.session_id


session = anyio.run(main)
agents = list_subagents(session)
print(len(agents))
for message in get_subagent_messages(session, agents[0]):
    print(message.type, message.message["content"], message.parent_tool_use_id)
