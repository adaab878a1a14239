"""Matchers that only JavaScript can read, and one that it cannot."""

# model: [[tool_use("Bash", command="echo one")], [tool_use("Read", file_path="notes.txt")],
#   [text("Done.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, query


def named(name):
    async def hook(input_data, tool_use_id, context):
        print(name, input_data["tool_name"])
        return {}

    return hook


async def main():
    matchers = ["(?<shell>Ba)sh$|mcp__.*", "^R(?=ead)\\u0065ad$", "[", " | "]
    hooks = [HookMatcher(matcher=one, hooks=[named(one)]) for one in matchers]
    options = ClaudeAgentOptions(allowed_tools=["Bash", "Read"], hooks={"PreToolUse": hooks})
    async for message in query(prompt="Run both.", options=options):
        print(type(message).__name__)


anyio.run(main)
