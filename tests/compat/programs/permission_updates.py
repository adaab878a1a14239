"""Send permission updates with and without the fields that their type needs."""

# model: [[tool_use("Bash", command="touch a")], [tool_use("Bash", command="touch b")],
#   [tool_use("Bash", command="touch c")], [text("Done.")]]

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
    PermissionUpdate,
)
from claude_agent_sdk.types import PermissionRuleValue

whole_tool = PermissionUpdate("addRules", rules=[PermissionRuleValue("Bash")], behavior="allow")
updates = [
    whole_tool,
    PermissionUpdate("setMode", mode="acceptEdits", destination="localSettings"),
    PermissionUpdate("addDirectories", directories=[]),
    PermissionUpdate("addRules", rules=[PermissionRuleValue("Bash", "")], behavior="deny"),
    PermissionUpdate("addRules", rules=[]),
    PermissionUpdate("replaceRules", behavior="allow"),
    PermissionUpdate("setMode"),
    PermissionUpdate("removeDirectories"),
    PermissionUpdate("resetRules"),
]
for update in updates:
    try:
        print(update.to_dict())
    except ValueError:
        print(update.type, "cannot be sent")

asked = []


async def allow(tool_name, input_data, context):
    asked.append(input_data["command"])
    # The first answer has an update that cannot be sent, so neither applies.
    sent = [whole_tool, PermissionUpdate("setMode")] if len(asked) == 1 else [whole_tool]
    return PermissionResultAllow(updated_permissions=sent)


async def main():
    async with ClaudeSDKClient(ClaudeAgentOptions(can_use_tool=allow)) as client:
        await client.query("Touch all.")
        async for _ in client.receive_response():
            pass
    print(asked)


anyio.run(main)
