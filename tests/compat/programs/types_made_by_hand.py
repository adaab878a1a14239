"""Make messages and blocks in a program's own tests."""

from claude_agent_sdk import (
    AssistantMessage,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionUpdate,
    ResultMessage,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolPermissionContext,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from claude_agent_sdk.types import PermissionRuleValue, StreamEvent

said = AssistantMessage(content=[TextBlock("a"), ThinkingBlock("b", "c")], model="m")
print(said)
print(said == AssistantMessage([TextBlock(text="a"), ThinkingBlock("b", "c")], "m"))
said.content.append(ToolUseBlock(id="1", name="Read", input={"file_path": "x"}))
print(len(said.content), UserMessage(content=[ToolResultBlock(tool_use_id="1", content="y")]))
print(SystemMessage("init", {"model": "m"}), StreamEvent("u", "s", {"type": "ping"}))
print(ResultMessage("success", 1, 1, False, 1, "s", result="r"))
print(PermissionResultAllow(), PermissionResultDeny("no"), ToolPermissionContext())
print(HookMatcher(matcher="Bash"))
update = PermissionUpdate(type="addRules", rules=[PermissionRuleValue("Bash")], behavior="allow")
print(update.to_dict(), PermissionUpdate.from_dict(update.to_dict()) == update)
match said:
    case AssistantMessage(content=[TextBlock(text=text), *_]):
        print("matched", text)
