"""Describe what the CLI does if hooks of the official SDK fail, as measured."""

from __future__ import annotations

GUARDS = frozenset(
    {
        *("PermissionRequest", "PostToolBatch", "PreModelSwitch", "PreToolUse", "TaskCompleted"),
        *("TaskCreated", "UserPromptExpansion", "UserPromptSubmit"),
    }
)
"""The events at which the CLI blocks, or ends the turn, if a hook does not answer in time.

At WorktreeCreate, no worktree is made without an answer. At ConfigChange, Elicitation and
ElicitationResult, the CLI goes on.
"""

CANNOT_FAIL = frozenset({"Stop", "SubagentStop", "TaskCompleted", "TeammateIdle"})
"""The events that ignore `on_failure`. A block would make the agent go on."""

HOOK_TIMEOUT = 600
"""Seconds that a hook without a timeout may take: what the CLI itself allows."""
