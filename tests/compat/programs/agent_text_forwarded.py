"""See what a subagent says and does."""

# model: [[tool_use("Agent", description="Read", prompt="Read notes.txt", subagent_type="reader",
#   run_in_background=False)], [text("Reading."), tool_use("Read", file_path="notes.txt")],
#   [text("Aisle 7.")], [text("It says aisle 7.")]]

import anyio
from claude_agent_sdk import AgentDefinition, ClaudeAgentOptions, ClaudeSDKClient


async def main():
    reader = AgentDefinition(description="Reads files", prompt="Read what you are told.")
    options = ClaudeAgentOptions(
        agents={"reader": reader}, forward_subagent_text=True, allowed_tools=["Read"]
    )
    async with ClaudeSDKClient(options) as client:
        await client.query("Let it be read.")
        async for message in client.receive_response():
            inside = getattr(message, "parent_tool_use_id", None) is not None
            print(type(message).__name__, "inside" if inside else "")


anyio.run(main)
