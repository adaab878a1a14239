"""Load the project's CLAUDE.md, or leave it alone."""

# model: [[text("1")], [text("2")]]

from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, query


async def main():
    Path("CLAUDE.md").write_text("Always mention the horse.\n")
    Path(".claude").mkdir()
    Path(".claude", "settings.json").write_text('{"permissions": {"deny": ["WebFetch"]}}')
    for sources in (["project"], []):
        options = ClaudeAgentOptions(setting_sources=sources)
        async for message in query(prompt="Hi", options=options):
            print(type(message).__name__)


anyio.run(main)
