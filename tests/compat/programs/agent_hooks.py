"""Hooks that watch subagents start and stop, and their tools."""

# model: [[tool_use("Agent", description="Read", prompt="Read notes.txt", subagent_type="reader",
#   run_in_background=False)], [tool_use("Read", file_path="notes.txt")],
#   [text("Aisle 7.")], [text("Done.")]]

import anyio
from claude_agent_sdk import AgentDefinition, ClaudeAgentOptions, HookMatcher, query


async def watch(input_data, tool_use_id, context):
    print(
        input_data["hook_event_name"],
        input_data.get("agent_type"),
        input_data.get("tool_name", ""),
        "agent_id" in input_data,
    )
    return {}


async def main():
    matchers = [HookMatcher(hooks=[watch])]
    options = ClaudeAgentOptions(
        agents={"reader": AgentDefinition(description="Reads files", prompt="Read.")},
        allowed_tools=["Read"],
        hooks={"SubagentStart": matchers, "SubagentStop": matchers, "PreToolUse": matchers},
    )
    async for _ in query(prompt="Let it be read.", options=options):
        pass


anyio.run(main)
