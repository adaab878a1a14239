"""List the names of the CLI's own tools, and map earlier names to current ones.

A rule or a matcher that uses any name of a tool applies to that tool.
"""

from __future__ import annotations

from collections.abc import Mapping

CURRENT_NAMES: Mapping[str, str] = {
    "AgentOutput": "TaskOutput",
    "AgentOutputTool": "TaskOutput",
    "BashOutput": "TaskOutput",
    "BashOutputTool": "TaskOutput",
    "Brief": "SendUserMessage",
    "Eval": "REPL",
    "KillBash": "TaskStop",
    "KillShell": "TaskStop",
    "ListMcpResources": "ListMcpResourcesTool",
    "ListPeers": "ListAgents",
    "ReadMcpResource": "ReadMcpResourceTool",
    "ReadMcpResourceDir": "ReadMcpResourceDirTool",
    "Task": "Agent",
}
"""The current name of a tool, by older name."""


BUILT_IN_TOOLS: frozenset[str] = frozenset({
    *CURRENT_NAMES, *CURRENT_NAMES.values(),
    "AskUserQuestion", "Bash", "CronCreate", "CronDelete", "CronList", "Edit", "EnterPlanMode",
    "EnterWorktree", "ExitPlanMode", "ExitWorktree", "Glob", "Grep", "LS", "LSP", "Monitor",
    "MultiEdit", "NotebookEdit", "NotebookRead", "PowerShell", "PushNotification", "Read",
    "RemoteTrigger", "ReportFindings", "ScheduleWakeup", "SendMessage", "SetGoal", "Skill",
    "SlashCommand", "StructuredOutput", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate",
    "TeamCreate", "TeamDelete", "TodoRead", "TodoWrite", "ToolSearch", "WebFetch", "WebSearch",
    "Workflow", "Write",
})  # fmt: skip
"""The names of the tools of CLI 2.0.0 to 2.1.327. No CLI has all of them."""

TOOL_EVENTS = frozenset(
    {"PreToolUse", "PostToolUse", "PostToolUseFailure", "PermissionRequest", "PermissionDenied"}
)
"""The hook events whose matchers are compared with the name of a tool."""

MCP_PREFIX = "mcp__"


def _groups() -> dict[str, tuple[str, ...]]:
    groups: dict[str, tuple[str, ...]] = {}
    for current in CURRENT_NAMES.values():
        names = (current, *(old for old, new in CURRENT_NAMES.items() if new == current))
        groups.update(dict.fromkeys(names, names))
    return groups


_GROUPS = _groups()


def names_of(tool_name: str) -> tuple[str, ...]:
    """Return all names of a tool, given any of them."""
    return _GROUPS.get(tool_name) or (tool_name,)


def is_known(tool_name: str) -> bool:
    """Return False for a tool of the CLI that this version of Bridle does not know."""
    return tool_name in BUILT_IN_TOOLS or tool_name.startswith(MCP_PREFIX)


def tool_of_rule(rule: str) -> str:
    """Return the name of the tool that a permission rule is about."""
    return rule.partition("(")[0]
