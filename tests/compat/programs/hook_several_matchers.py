"""Several matchers and several callbacks for one event."""

# model: [[tool_use("Read", file_path="notes.txt")], [tool_use("Bash", command="echo x")],
#   [text("Done.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, query

seen = []


def named(name):
    async def callback(input_data, tool_use_id, context):
        seen.append((input_data["tool_name"], name))
        return {}

    return callback


async def main():
    options = ClaudeAgentOptions(
        allowed_tools=["Read", "Bash"],
        hooks={
            "PreToolUse": [
                HookMatcher(matcher="Read|Write", hooks=[named("files"), named("files too")]),
                HookMatcher(matcher="B.*", hooks=[named("pattern")], timeout=5),
                HookMatcher(matcher=None, hooks=[named("all")]),
                HookMatcher(matcher="WebFetch", hooks=[named("never")]),
            ]
        },
    )
    async for _ in query(prompt="Work.", options=options):
        pass
    for one in sorted(seen):
        print(*one)


anyio.run(main)
