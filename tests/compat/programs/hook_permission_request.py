"""Answer a permission request with a hook."""

# model: [[tool_use("Bash", command="touch made.txt")], [text("Done.")]]

from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, query


async def decide(input_data, tool_use_id, context):
    print(input_data["hook_event_name"], input_data["tool_name"])
    return {
        "hookSpecificOutput": {
            "hookEventName": "PermissionRequest",
            "decision": {"behavior": "allow"},
        }
    }


async def ask(tool_name, tool_input, context):
    raise AssertionError("the hook decides")


async def main():
    options = ClaudeAgentOptions(
        hooks={"PermissionRequest": [HookMatcher(matcher="Bash", hooks=[decide])]},
        permission_mode="default",
    )
    async for _ in query(prompt="Make it.", options=options):
        pass
    print(Path("made.txt").exists())


anyio.run(main)
