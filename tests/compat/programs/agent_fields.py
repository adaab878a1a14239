"""Every field of an agent definition reaches the CLI."""

# model: [[text("Yes.")]]

import dataclasses

import anyio
from claude_agent_sdk import AgentDefinition, ClaudeAgentOptions, SystemMessage, query


async def main():
    full = AgentDefinition(
        description="Does all",
        prompt="Do it.",
        tools=["Read"],
        disallowedTools=["Bash"],
        model="inherit",
        skills=["stable"],
        memory="project",
        mcpServers=["files"],
        initialPrompt="Begin.",
        maxTurns=3,
        background=False,
        effort="low",
        permissionMode="plan",
    )
    print(dataclasses.asdict(full))
    async for message in query(prompt="Hi", options=ClaudeAgentOptions(agents={"all": full})):
        if isinstance(message, SystemMessage) and message.subtype == "init":
            print("all" in message.data["agents"])


anyio.run(main)
