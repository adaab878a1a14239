"""Allow a tool for the rest of the session with the suggested rules."""

# model: [[tool_use("Bash", command="touch a")], [tool_use("Bash", command="touch b")],
#   [tool_use("Write", file_path="c.txt", content="c")], [text("Done.")]]

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
    PermissionUpdate,
)
from claude_agent_sdk.types import PermissionRuleValue

asked = []


async def allow_always(tool_name, input_data, context):
    asked.append(tool_name)
    if tool_name == "Bash":
        rule = PermissionRuleValue(tool_name="Bash", rule_content="touch:*")
        update = PermissionUpdate(
            type="addRules", rules=[rule], behavior="allow", destination="session"
        )
    else:
        update = PermissionUpdate(type="setMode", mode="acceptEdits", destination="session")
    print(update.to_dict())
    return PermissionResultAllow(updated_permissions=[update])


async def main():
    async with ClaudeSDKClient(ClaudeAgentOptions(can_use_tool=allow_always)) as client:
        await client.query("Touch both.")
        async for _ in client.receive_response():
            pass
    print(asked)


anyio.run(main)
