"""Allow a tool with another input."""

# model: [[tool_use("Write", file_path="a.txt", content="a")], [text("Done.")]]

from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, PermissionResultAllow


async def redirect(tool_name, input_data, context):
    path = Path("safe").resolve() / Path(input_data["file_path"]).name
    return PermissionResultAllow(updated_input={**input_data, "file_path": str(path)})


async def main():
    Path("safe").mkdir()
    async with ClaudeSDKClient(ClaudeAgentOptions(can_use_tool=redirect)) as client:
        await client.query("Write it.")
        async for _ in client.receive_response():
            pass
    print(Path("a.txt").exists(), Path("safe/a.txt").read_text())


anyio.run(main)
