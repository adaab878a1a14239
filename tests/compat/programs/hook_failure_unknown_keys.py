"""Guards with on_failure whose outputs have unknown keys: that is no failure."""

# model: [*([tool_use("Bash", command=f"touch ran{n}")] for n in range(4)), [text("Done.")]]

from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, query

outputs = [
    {"continue_": True, "trace_id": 7},
    {"reason": "fine"},
    {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "allow",
            "score": 0.5,
        }
    },
    {},
]


async def guard(input_data, tool_use_id, context):
    return outputs[int(input_data["tool_input"]["command"][-1])]


async def main():
    matcher = HookMatcher(matcher="Bash", hooks=[guard], on_failure="block")
    options = ClaudeAgentOptions(allowed_tools=["Bash"], hooks={"PreToolUse": [matcher]})
    async for _ in query(prompt="Run it.", options=options):
        pass
    for number, output in enumerate(outputs):
        print(output, "ran" if Path(f"ran{number}").exists() else "blocked")


anyio.run(main)
