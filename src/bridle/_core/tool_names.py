"""Map the current and earlier names of the CLI's own tools.

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
