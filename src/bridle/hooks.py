"""Hooks: functions that the CLI calls at certain events of a session.

This module defines data only: one context class per event (the argument of a hook), the results
that a hook can return, and `Hook`, which registers a callback with conditions. The core decides in
which order hooks run and which result counts, and encodes the results.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from bridle._records.fields import callback, positive
from bridle._records.matchers import check_type, checked_matcher
from bridle._records.raw_line import JsonObject
from bridle.errors import OptionsError
from bridle.permissions import McpServerRef, PermissionResult, PermissionUpdate, Withdrawable

__all__ = [
    "HOOK_EVENTS",
    "BatchedToolCall",
    "Block",
    "ConfigChangeContext",
    "Continue",
    "CwdChangedContext",
    "Defer",
    "DirectoryAddedContext",
    "ElicitationContext",
    "ElicitationResultContext",
    "EndTurn",
    "FileChangedContext",
    "Hook",
    "HookCallback",
    "HookContext",
    "HookEvent",
    "HookOutput",
    "HookResult",
    "InstructionsLoadedContext",
    "MessageDisplayContext",
    "ModifyInput",
    "NotificationContext",
    "PermissionDeniedContext",
    "PermissionRequestContext",
    "PostCompactContext",
    "PostModelSwitchContext",
    "PostToolBatchContext",
    "PostToolUseContext",
    "PostToolUseFailureContext",
    "PreCompactContext",
    "PreModelSwitchContext",
    "PreToolUseContext",
    "SessionEndContext",
    "SessionStartContext",
    "SetupContext",
    "StopContext",
    "StopFailureContext",
    "SubagentStartContext",
    "SubagentStopContext",
    "TaskCompletedContext",
    "TaskCreatedContext",
    "TeammateIdleContext",
    "ToolHookContext",
    "UnknownHookContext",
    "UserPromptExpansionContext",
    "UserPromptSubmitContext",
    "WorktreeCreateContext",
    "WorktreeRemoveContext",
]

HookEvent: TypeAlias = Literal[
    "ConfigChange",
    "CwdChanged",
    "DirectoryAdded",
    "Elicitation",
    "ElicitationResult",
    "FileChanged",
    "InstructionsLoaded",
    "MessageDisplay",
    "Notification",
    "PermissionDenied",
    "PermissionRequest",
    "PostCompact",
    "PostModelSwitch",
    "PostToolBatch",
    "PostToolUse",
    "PostToolUseFailure",
    "PreCompact",
    "PreModelSwitch",
    "PreToolUse",
    "SessionEnd",
    "SessionStart",
    "Setup",
    "Stop",
    "StopFailure",
    "SubagentStart",
    "SubagentStop",
    "TaskCompleted",
    "TaskCreated",
    "TeammateIdle",
    "UserPromptExpansion",
    "UserPromptSubmit",
    "WorktreeCreate",
    "WorktreeRemove",
]

HOOK_EVENTS: frozenset[str] = frozenset(get_args(HookEvent))
"""The events that a hook can be registered for.

The CLI calls SessionStart hooks after `/clear` and compaction, and SessionEnd hooks at `/clear`. It
does not call them when its process starts or exits.
"""

# ---------------------------------------------------------------- contexts


class HookContext(Withdrawable, msgspec.Struct, frozen=True, kw_only=True):
    """The argument of every hook. A field that the CLI omits or sends malformed has its default."""

    session_id: str = ""
    transcript_path: str = ""
    cwd: str = ""
    hook_event_name: str = ""
    prompt_id: str | None = None
    permission_mode: str | None = None
    agent_id: str | None = None
    agent_type: str | None = None
    tool_use_id: str | None = None


class UnknownHookContext(HookContext, frozen=True, kw_only=True):
    """The context of an event that Bridle does not know. `raw` has all the data."""


class ToolHookContext(HookContext, frozen=True, kw_only=True):
    """Base class of the contexts of hooks for one tool call."""

    tool_name: str
    tool_input: JsonObject = msgspec.field(default_factory=dict[str, Any])
    mcp_server: McpServerRef | None = None


class PreToolUseContext(ToolHookContext, frozen=True, kw_only=True):
    """A tool is about to run. A permission request, if there is one, follows the hook."""


class PostToolUseContext(ToolHookContext, frozen=True, kw_only=True):
    """A tool has run. The form of `tool_response` depends on the tool."""

    tool_response: Any = None
    duration_ms: float | None = None

    @property
    def tool_output(self) -> Any:
        """Return `tool_response`, under another name."""
        return self.tool_response


class PostToolUseFailureContext(ToolHookContext, frozen=True, kw_only=True):
    """A tool has failed."""

    error: str = ""
    is_interrupt: bool = False
    duration_ms: float | None = None


class PermissionRequestContext(ToolHookContext, frozen=True, kw_only=True):
    """The CLI asks for permission. It calls `on_can_use_tool` too and uses the first answer."""

    permission_suggestions: tuple[PermissionUpdate, ...] = ()


class PermissionDeniedContext(ToolHookContext, frozen=True, kw_only=True):
    """The permission mode "auto" has denied a tool."""

    reason: str | None = None


class BatchedToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call of a batch."""

    tool_name: str
    tool_input: JsonObject = msgspec.field(default_factory=dict[str, Any])
    tool_use_id: str | None = None
    tool_response: Any = None


class PostToolBatchContext(HookContext, frozen=True, kw_only=True):
    """All tool calls of one assistant message have finished."""

    tool_calls: tuple[BatchedToolCall, ...] = ()


class UserPromptSubmitContext(HookContext, frozen=True, kw_only=True):
    """A prompt is about to go to the model. Reports of background tasks are prompts too."""

    prompt: str


class UserPromptExpansionContext(HookContext, frozen=True, kw_only=True):
    """A slash command is about to be expanded into a prompt."""

    prompt: str = ""
    expansion_type: str | None = None
    command_name: str | None = None
    command_args: str | None = None
    command_source: str | None = None


class MessageDisplayContext(HookContext, frozen=True, kw_only=True):
    """A part of the assistant's text is displayed."""

    turn_id: str | None = None
    message_id: str | None = None
    index: int = 0
    final: bool = False
    delta: str = ""


class StopContext(HookContext, frozen=True, kw_only=True):
    """The model is about to end its turn.

    `stop_hook_active` is True if a Stop hook has already made the model continue in this turn.
    """

    stop_hook_active: bool = False
    last_assistant_message: str | None = None
    background_tasks: tuple[JsonObject, ...] = ()
    session_crons: tuple[JsonObject, ...] = ()
    reason: str | None = None


class StopFailureContext(HookContext, frozen=True, kw_only=True):
    """An API failure has ended the turn. The CLI calls this in place of Stop."""

    error: str = ""
    last_assistant_message: str | None = None


class SubagentStartContext(HookContext, frozen=True, kw_only=True):
    """A subagent starts."""


class SubagentStopContext(StopContext, frozen=True, kw_only=True):
    """A subagent is about to end."""

    agent_transcript_path: str | None = None

    @property
    def subagent_id(self) -> str | None:
        """Return `agent_id`, under another name."""
        return self.agent_id


class PreCompactContext(HookContext, frozen=True, kw_only=True):
    """The conversation is about to be compacted."""

    trigger: str = ""
    custom_instructions: str | None = None


class PostCompactContext(HookContext, frozen=True, kw_only=True):
    """The conversation has been compacted."""

    trigger: str = ""
    compact_summary: str | None = None


class SessionStartContext(HookContext, frozen=True, kw_only=True):
    """The session restarts after `/clear` or a compaction."""

    source: str = ""
    model: str | None = None


class SessionEndContext(HookContext, frozen=True, kw_only=True):
    """`/clear` ends the session and starts a new one."""

    reason: str = ""


class SetupContext(HookContext, frozen=True, kw_only=True):
    """The repository is being set up or maintained."""

    trigger: str = ""


class NotificationContext(HookContext, frozen=True, kw_only=True):
    """The CLI shows a notification to the user."""

    message: str = ""
    title: str | None = None
    notification_type: str = ""


class ElicitationContext(HookContext, frozen=True, kw_only=True):
    """An MCP server is about to ask the user for data (an elicitation)."""

    mcp_server_name: str = ""
    message: str = ""
    mode: str = "form"
    requested_schema: JsonObject | None = None


class ElicitationResultContext(HookContext, frozen=True, kw_only=True):
    """The user's answer is about to go to the MCP server."""

    mcp_server_name: str = ""
    mode: str = "form"
    action: str = ""
    content: JsonObject | None = None


class TaskCreatedContext(HookContext, frozen=True, kw_only=True):
    """The model adds a task to its task list."""

    task_id: str = ""
    task_subject: str = ""
    task_description: str | None = None


class TaskCompletedContext(TaskCreatedContext, frozen=True, kw_only=True):
    """The model marks a task in its task list as completed."""


class TeammateIdleContext(HookContext, frozen=True, kw_only=True):
    """A teammate is about to go idle."""

    teammate_name: str | None = None
    team_name: str | None = None


class PreModelSwitchContext(HookContext, frozen=True, kw_only=True):
    """The model is about to change. Costs are in US dollars."""

    from_model: str = ""
    to_model: str = ""
    requested_model: str | None = None
    source: str = ""
    context_tokens: int | None = None
    prompt_cache_warm: bool | None = None
    cache_ttl: str | None = None
    estimated_cache_write_usd: float | None = None
    pricing: str | None = None


class PostModelSwitchContext(PreModelSwitchContext, frozen=True, kw_only=True):
    """The model has changed."""


class InstructionsLoadedContext(HookContext, frozen=True, kw_only=True):
    """The CLI has loaded a file with instructions."""

    file_path: str = ""
    memory_type: str | None = None
    load_reason: str = ""
    trigger_file_path: str | None = None


class ConfigChangeContext(HookContext, frozen=True, kw_only=True):
    """A settings file has changed."""

    source: str = ""
    file_path: str | None = None


class DirectoryAddedContext(HookContext, frozen=True, kw_only=True):
    """A directory was added to those that tools may access."""

    directory: str = ""
    source: str = ""


class CwdChangedContext(HookContext, frozen=True, kw_only=True):
    """The working directory has changed."""

    old_cwd: str | None = None
    new_cwd: str | None = None


class FileChangedContext(HookContext, frozen=True, kw_only=True):
    """A watched file has changed."""

    file_path: str = ""
    event: str | None = None


class WorktreeCreateContext(HookContext, frozen=True, kw_only=True):
    """The CLI needs a worktree. The hook creates it and returns `HookOutput(specific=...)`."""

    name: str = ""


class WorktreeRemoveContext(HookContext, frozen=True, kw_only=True):
    """The CLI no longer needs a worktree."""

    worktree_path: str | None = None


CONTEXTS: Mapping[str, type[HookContext]] = {
    "ConfigChange": ConfigChangeContext,
    "CwdChanged": CwdChangedContext,
    "DirectoryAdded": DirectoryAddedContext,
    "Elicitation": ElicitationContext,
    "ElicitationResult": ElicitationResultContext,
    "FileChanged": FileChangedContext,
    "InstructionsLoaded": InstructionsLoadedContext,
    "MessageDisplay": MessageDisplayContext,
    "Notification": NotificationContext,
    "PermissionDenied": PermissionDeniedContext,
    "PermissionRequest": PermissionRequestContext,
    "PostCompact": PostCompactContext,
    "PostModelSwitch": PostModelSwitchContext,
    "PostToolBatch": PostToolBatchContext,
    "PostToolUse": PostToolUseContext,
    "PostToolUseFailure": PostToolUseFailureContext,
    "PreCompact": PreCompactContext,
    "PreModelSwitch": PreModelSwitchContext,
    "PreToolUse": PreToolUseContext,
    "SessionEnd": SessionEndContext,
    "SessionStart": SessionStartContext,
    "Setup": SetupContext,
    "Stop": StopContext,
    "StopFailure": StopFailureContext,
    "SubagentStart": SubagentStartContext,
    "SubagentStop": SubagentStopContext,
    "TaskCompleted": TaskCompletedContext,
    "TaskCreated": TaskCreatedContext,
    "TeammateIdle": TeammateIdleContext,
    "UserPromptExpansion": UserPromptExpansionContext,
    "UserPromptSubmit": UserPromptSubmitContext,
    "WorktreeCreate": WorktreeCreateContext,
    "WorktreeRemove": WorktreeRemoveContext,
}

# ---------------------------------------------------------------- results


class Continue(msgspec.Struct, frozen=True):
    """Continue. The model reads `additional_context`, the user reads `system_message`.

    In a Stop or SubagentStop hook, `additional_context` makes the model continue in place of ending
    its turn, and the CLI calls the hook again later. Check `stop_hook_active` before you return it.
    """

    additional_context: str | None = None
    system_message: str | None = None


class Block(msgspec.Struct, frozen=True):
    """Prevent the event: the tool does not run, the prompt is not sent, the turn does not end.

    A tool that has already run cannot be blocked: after PostToolUse and PostToolUseFailure the
    model reads the reason. After PostToolBatch the turn ends. If the CLI cannot block an event, it
    continues, and Bridle warns with `cannot_block`.
    """

    reason: str


class ModifyInput(msgspec.Struct, frozen=True):
    """Run the tool with another input (PreToolUse only).

    Later hooks and the permission request get the new input, and can still block or deny it.
    """

    new_input: Mapping[str, Any]


class EndTurn(msgspec.Struct, frozen=True):
    """End the turn. A tool that is about to run does not run."""

    reason: str


class Defer(msgspec.Struct, frozen=True):
    """Let the call wait for a person's decision (PreToolUse only).

    The tool does not run and the turn ends as `tool_deferred`. Pass `outcome.pending` and the
    decision to `Agent.resume`, in this process or another one. Later hooks of the list are still
    called: their `Block` or `EndTurn` wins.

    One call of a turn can wait. Bridle denies further ones, calls of subagents, calls while another
    prompt is queued, and every call on a CLI before 2.1.197.
    """


class HookOutput(msgspec.Struct, frozen=True, kw_only=True):
    """All fields that the CLI reads, for cases that the other results do not cover.

    A result that ends the turn, blocks, approves, allows, denies or asks is final: later hooks are
    not called. Later hooks get a changed input or output. `permission` is for PermissionRequest.
    `specific` has further fields of `hookSpecificOutput`, by their wire names. A field that a gate
    does not know makes the whole output invalid, and the gate blocks.
    """

    continue_turn: bool | None = None
    stop_reason: str | None = None
    suppress_output: bool | None = None
    system_message: str | None = None
    decision: Literal["approve", "block"] | None = None
    reason: str | None = None
    permission_decision: Literal["allow", "deny", "ask", "defer"] | None = None
    permission_decision_reason: str | None = None
    updated_input: Mapping[str, Any] | None = None
    additional_context: str | None = None
    updated_tool_output: Any = None
    updated_mcp_tool_output: Any = None
    permission: PermissionResult | None = None
    specific: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])


HookResult: TypeAlias = Continue | Block | ModifyInput | EndTurn | Defer | HookOutput
HookCallback: TypeAlias = Callable[[Any], HookResult | Awaitable[HookResult | None] | None]

# ---------------------------------------------------------------- registration


class _HookConditions(msgspec.Struct, frozen=True, kw_only=True):
    matcher: str | None = None
    timeout: float | None = None
    on_error: Literal["continue", "block"] = "continue"
    on_timeout: Literal["continue", "block"] | None = None
    on_invalid: Literal["block", "send"] = "block"


class Hook(_HookConditions, frozen=True):
    """Register a callback for an event: `hooks={"PreToolUse": [Hook(check, on_error="block")]}`.

    - `callback`: a plain or async function with one parameter, the context.
    - `matcher`: names of tools, or a regular expression; None matches all. Some events match
      something else than tools, such as the trigger of a compaction, or ignore it.
      With `parallel_hooks` the CLI reads the matcher as a JavaScript expression, and never calls
      the hook if it is invalid. Exception: Bridle reads the matcher of PreToolUse, as a Python
      expression, if the session has a store, if `run` has `retry`, or if the session resumes a
      call that waited for approval.
    - `timeout`: seconds that the callback may take. Default: `BidirOptions.hook_timeouts`, then
      `callback_timeout`.
    - `on_error`: what happens if the callback raises: "continue" or "block". A callback that exits
      the program (SystemExit, KeyboardInterrupt) or cancels itself always blocks at PreToolUse,
      PermissionRequest, UserPromptSubmit and UserPromptExpansion.
    - `on_timeout`: what happens if the callback times out: "continue" or "block". Default: as
      `on_error`.
    - `on_invalid`: what happens at PreToolUse, PermissionRequest, UserPromptSubmit and
      UserPromptExpansion if the callback returns a dict that is not a valid output. "block"
      blocks. "send" carries out a member that blocks, denies, defers or ends the turn, and
      otherwise sends the dict to the CLI, which decides. With ``on_error="block"`` the CLI blocks
      if it cannot read the dict, and Bridle blocks if the CLI is too old to do so. "send" needs
      `parallel_hooks` if the event has several hooks. A PreToolUse hook cannot use "send" if the
      session has a store, if `run` has `retry`, or if the session resumes a call that waited for
      approval.

    Raises:
        OptionsError: an argument is invalid.
    """

    callback: HookCallback

    def __post_init__(self) -> None:
        callback("Hook.callback", self.callback)
        check_type(self.matcher)
        if self.timeout is not None:
            positive("Hook.timeout", self.timeout)
        for name, possible in _POSSIBLE.items():
            if (value := getattr(self, name)) not in possible:
                fix = " or ".join(f'"{one}"' for one in possible if one is not None)
                raise OptionsError(f"Hook.{name}", f"is {value!r}", fix=f"Use {fix}.")


_POSSIBLE: Mapping[str, tuple[str | None, ...]] = {
    "on_error": ("continue", "block"),
    "on_timeout": (None, "continue", "block"),
    "on_invalid": ("block", "send"),
}


def check_hooks(hooks: Mapping[str, Sequence[Hook]]) -> None:
    """Check hooks that Bridle calls in order, without ``parallel_hooks``.

    Raises:
        OptionsError: a matcher is invalid, or a hook with ``on_invalid="send"`` is not the only one
            of its event. An output that Bridle does not understand cannot be combined with others.
    """
    for event, listed in hooks.items():
        for hook in listed:
            checked_matcher(hook.matcher)
            if hook.on_invalid == "send" and len(listed) > 1:
                problem = f'is "send", and {event} has {len(listed)} hooks'
                raise OptionsError("Hook.on_invalid", problem, fix="Set parallel_hooks.")
