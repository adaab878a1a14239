"""Load a plugin from a directory, and use its command."""

# model: [[text("Good day.")]]

import json
from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, SystemMessage, query


async def main():
    plugin = Path("polite")
    (plugin / ".claude-plugin").mkdir(parents=True)
    (plugin / "commands").mkdir()
    (plugin / ".claude-plugin" / "plugin.json").write_text(
        json.dumps({"name": "polite", "version": "1.0.0", "description": "Manners"})
    )
    (plugin / "commands" / "greet.md").write_text("Greet the user politely.\n")
    options = ClaudeAgentOptions(plugins=[{"type": "local", "path": str(plugin.resolve())}])
    async for message in query(prompt="/polite:greet", options=options):
        if isinstance(message, SystemMessage) and message.subtype == "init":
            print([one["name"] for one in message.data["plugins"] if one["name"] == "polite"])
            print("polite:greet" in message.data["slash_commands"])


anyio.run(main)
