"""Define a subagent and let the model use it."""

# model: [[tool_use("Agent", description="Review", prompt="Review notes.txt", subagent_type="reviewer",
#   run_in_background=False)], [text("Looks good.")], [text("The reviewer likes it.")]]

import anyio
from claude_agent_sdk import (
    AgentDefinition,
    AssistantMessage,
    ClaudeAgentOptions,
    ResultMessage,
    query,
)


async def main():
    options = ClaudeAgentOptions(
        agents={
            "reviewer": AgentDefinition(
                description="Reviews texts",
                prompt="You review texts. Be brief.",
                tools=["Read", "Grep"],
                model="haiku",
            )
        }
    )
    async for message in query(prompt="Have it reviewed.", options=options):
        if isinstance(message, AssistantMessage):
            print(
                "sub" if message.parent_tool_use_id else "main",
                [type(one).__name__ for one in message.content],
            )
        elif isinstance(message, ResultMessage):
            print(message.result)


anyio.run(main)
