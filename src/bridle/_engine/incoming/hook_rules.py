"""Describe what each hook event supports: one table with a row per event.

Each row was observed on real CLIs, or is marked as documented only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from bridle._records.raw_line import JsonObject


def decision_block(reason: str) -> JsonObject:
    return {"decision": "block", "reason": reason}


def _deny_tool(reason: str) -> JsonObject:
    specific = {"permissionDecision": "deny", "permissionDecisionReason": reason}
    return {"hookSpecificOutput": specific}


def deny_permission(reason: str) -> JsonObject:
    return {"hookSpecificOutput": {"decision": {"behavior": "deny", "message": reason}}}


def _deny_and_interrupt(reason: str) -> JsonObject:
    decision = {"behavior": "deny", "message": reason, "interrupt": True}
    return {"hookSpecificOutput": {"decision": decision}}


class EventRule(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    #: True if the answer decides whether something happens. A gate blocks if no hook could be
    #: called. At other events (Stop, for example) a block would make the CLI go on instead.
    is_gate: bool = False
    #: The field of the context that matchers are compared with. None: matchers are ignored.
    subject: str | None = None
    #: Makes the answer that blocks. None if the CLI ignores every form of block.
    block: Callable[[str], JsonObject] | None = None
    #: False if some CLIs ignore the block, or no CLI was seen to honour it.
    surely_blocks: bool = True
    #: Makes the fields to send with the end of the turn, so that nothing more happens first.
    beside_end: Callable[[str], JsonObject] | None = None
    #: True if every CLI ends the turn on `continue: false`.
    surely_ends: bool = False
    #: The fields of `hookSpecificOutput` that the event supports. The CLI ignores other fields but
    #: uses the rest of the answer.
    specific: frozenset[str] = frozenset()


_CONTEXT = frozenset({"additionalContext"})
_PRE_TOOL_USE = _CONTEXT | {"permissionDecision", "permissionDecisionReason", "updatedInput"}
_POST_TOOL_USE = _CONTEXT | {"updatedToolOutput", "updatedMCPToolOutput"}
_PRE_MODEL_SWITCH = frozenset({"permissionDecision", "permissionDecisionReason"})

RULES: Mapping[str, EventRule] = {
    "PreToolUse": EventRule(
        is_gate=True,
        subject="tool_name",
        block=_deny_tool,
        beside_end=_deny_tool,
        specific=_PRE_TOOL_USE,
    ),
    "PostToolUse": EventRule(
        subject="tool_name", block=decision_block, surely_ends=True, specific=_POST_TOOL_USE
    ),
    "PostToolUseFailure": EventRule(subject="tool_name", block=decision_block, specific=_CONTEXT),
    "PostToolBatch": EventRule(block=decision_block, surely_ends=True, specific=_CONTEXT),
    "PermissionRequest": EventRule(
        is_gate=True,
        subject="tool_name",
        block=deny_permission,
        beside_end=_deny_and_interrupt,
        specific=frozenset({"decision"}),
    ),
    "PermissionDenied": EventRule(subject="tool_name"),  # documented only
    "UserPromptSubmit": EventRule(
        is_gate=True,
        block=decision_block,
        surely_ends=True,
        specific=_CONTEXT | {"sessionTitle", "suppressOriginalPrompt"},
    ),
    "UserPromptExpansion": EventRule(
        is_gate=True,
        subject="command_name",
        block=decision_block,
        surely_ends=True,
        specific=_CONTEXT | {"suppressOriginalPrompt"},
    ),
    "MessageDisplay": EventRule(),
    "Stop": EventRule(block=decision_block, surely_ends=True, specific=_CONTEXT),
    "StopFailure": EventRule(subject="error"),
    "SubagentStart": EventRule(subject="agent_type", specific=_CONTEXT),
    "SubagentStop": EventRule(subject="agent_type", block=decision_block, specific=_CONTEXT),
    "PreCompact": EventRule(subject="trigger", block=decision_block),
    "PostCompact": EventRule(subject="trigger"),
    "SessionStart": EventRule(subject="source", specific=_CONTEXT),
    "SessionEnd": EventRule(subject="reason"),
    "Setup": EventRule(subject="trigger"),  # documented only
    "Notification": EventRule(
        subject="notification_type",
        specific=_CONTEXT,  # the context is documented only
    ),
    # Newer CLIs decline the elicitation. Older ones still show it to the user.
    "Elicitation": EventRule(subject="mcp_server_name", block=decision_block, surely_blocks=False),
    "ElicitationResult": EventRule(
        subject="mcp_server_name", block=decision_block, surely_blocks=False
    ),
    "TaskCreated": EventRule(block=decision_block),
    "TaskCompleted": EventRule(block=decision_block),
    "TeammateIdle": EventRule(block=decision_block, surely_blocks=False),  # documented only
    "PreModelSwitch": EventRule(
        subject="to_model", block=decision_block, specific=_PRE_MODEL_SWITCH
    ),
    "PostModelSwitch": EventRule(subject="to_model", specific=_CONTEXT),
    "InstructionsLoaded": EventRule(subject="load_reason"),
    "ConfigChange": EventRule(
        subject="source",
        block=decision_block,
        surely_blocks=False,  # documented only
    ),
    "DirectoryAdded": EventRule(subject="source"),
    "CwdChanged": EventRule(),
    "FileChanged": EventRule(),  # it has a subject, but which part of the path is unknown
    "WorktreeCreate": EventRule(),
    "WorktreeRemove": EventRule(),
}

_UNKNOWN_EVENT = EventRule(block=decision_block, surely_blocks=False)


def rule_of(event: str) -> EventRule:
    """Return the row of an event."""
    return RULES.get(event, _UNKNOWN_EVENT)
