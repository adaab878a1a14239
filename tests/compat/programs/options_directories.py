"""Work in another directory, with access to a second one."""

# model: [[tool_use("Bash", command="pwd && cat $OTHER/b.txt")], [text("Read.")]]

from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ToolResultBlock, UserMessage, query


async def main():
    for name in ("a", "b"):
        Path(name).mkdir()
        Path(name, f"{name}.txt").write_text(name)
    options = ClaudeAgentOptions(
        cwd=Path("a").resolve(),
        add_dirs=[Path("b").resolve()],
        env={"OTHER": str(Path("b").resolve())},
        allowed_tools=["Bash"],
    )
    async for message in query(prompt="Where are we?", options=options):
        if isinstance(message, UserMessage) and isinstance(message.content[0], ToolResultBlock):
            print(message.content[0].content)


anyio.run(main)
