"""Offer one skill of the project."""

# model: [[tool_use("Skill", skill="stable")], [text("Clean it.")]]

from pathlib import Path

import anyio
from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, query


async def main():
    skill = Path(".claude", "skills", "stable")
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(
        "---\nname: stable\ndescription: How to keep a stable\n---\nClean it every day.\n"
    )
    options = ClaudeAgentOptions(skills=["stable"])
    async for message in query(prompt="What about the stable?", options=options):
        if isinstance(message, AssistantMessage):
            print([type(block).__name__ for block in message.content])


anyio.run(main)
