"""Guards with on_failure that return None or a value that the CLI rejects: the call is blocked."""

# model: [*([tool_use("Bash", command=f"touch ran{n}")] for n in range(10)),
#   [tool_use("Write", file_path="written.txt", content="x")], [text("Done.")]]
# not compared: messages and error texts, because Bridle blocks some of the calls itself.

from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, query


def specific(**members):
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **members}}


outputs = [
    None,
    {"decision": None},
    specific(permissionDecision="allow", permissionDecisionReason=None),
    specific(permissionDecision="Deny"),
    {"decision": "refuse"},
    specific(permissionDecision="allow", permissionDecisionReason=5),
    specific(permissionDecision="allow", additionalContext=7),
    specific(additionalContext=["a"]),
    {"decision": "approve", "reason": 5},
    {"systemMessage": 5},
]


async def guard(input_data, tool_use_id, context):
    return outputs[int(input_data["tool_input"]["command"][-1])]


async def broken(input_data, tool_use_id, context):
    raise KeyError("oops")


async def main():
    matchers = [
        HookMatcher(matcher="Bash", hooks=[guard], on_failure="block"),
        HookMatcher(matcher="Write", hooks=[broken], on_failure="deny"),
    ]
    options = ClaudeAgentOptions(
        allowed_tools=["Bash"], permission_mode="acceptEdits", hooks={"PreToolUse": matchers}
    )
    async for _ in query(prompt="Run it.", options=options):
        pass
    for number, output in enumerate(outputs):
        print(output, "ran" if Path(f"ran{number}").exists() else "blocked")
    print("written" if Path("written.txt").exists() else "blocked")


anyio.run(main)
