"""Hook outputs with unknown keys and values: the CLI decides what they mean."""

# model: [*([tool_use("Bash", command=f"mkdir -v {n}")] for n in range(14)), [text("Done.")]]

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    PermissionResultDeny,
    ToolResultBlock,
    UserMessage,
)


def specific(**members):
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **members}}


outputs = [
    {"continue_": True, "trace_id": 7},
    {"systemMessage": "Logged.", "customKey": {"nested": [1]}},
    {"decision": "bogus"},
    {"reason": "no decision"},
    specific(permissionDecision="perhaps"),
    specific(permissionDecision="allow", score=0.5),
    specific(updatedInput={"command": "mkdir -v changed"}, permissionDecision="allow", extra=1),
    {"hookSpecificOutput": {"hookEventName": "PostToolUse"}},
    {"decision": "block", "reason": "Not this one.", "trace_id": 8},
    {**specific(permissionDecision="deny", permissionDecisionReason="Nor this."), "trace_id": 9},
]

allow = specific(permissionDecision="allow")

#: Outputs whose `allow` the CLI ignores. The permission callback denies these calls.
ignored = [
    {"async_": True, "asyncTimeout": 1000, **allow},
    {"async_": True, "decision": "approve"},
    {"decision": None, **allow},
    specific(permissionDecision="allow", permissionDecisionReason=None),
]


async def check(input_data, tool_use_id, context):
    return [*outputs, *ignored][int(input_data["tool_input"]["command"].split()[-1])]


async def deny(tool_name, tool_input, context):
    print("asked", tool_input["command"])
    return PermissionResultDeny(message="Denied.")


async def main():
    matcher = HookMatcher(matcher="Bash", hooks=[check])
    allowed = [f"Bash(mkdir -v {number})" for number in range(len(outputs))]
    options = ClaudeAgentOptions(
        allowed_tools=allowed, can_use_tool=deny, hooks={"PreToolUse": [matcher]}
    )
    async with ClaudeSDKClient(options) as client:
        await client.query("Count.")
        async for message in client.receive_response():
            if isinstance(message, UserMessage) and isinstance(message.content[0], ToolResultBlock):
                print(message.content[0].content, message.content[0].is_error)


anyio.run(main)
