"""Hooks: the moments of a session the CLI tells about, and what an application may answer.

The rule of this file: data only. A context per event is what a callback receives, results are what
it returns, `Hook` is a callback with its conditions. In which order hooks run, which result decides
and how it is spelled on the wire is policy and lives in the core.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from bridle._fields import callback, positive
from bridle._source import JsonObject
from bridle.errors import OptionsError
from bridle.permissions import McpServerRef, PermissionResult, PermissionUpdate, Withdrawable

__all__ = [
    "HOOK_EVENTS",
    "BatchedToolCall",
    "Block",
    "ConfigChangeContext",
    "Continue",
    "CwdChangedContext",
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
"""The events a hook can be registered for.

Two never reach a callback where one might expect them: SessionStart and SessionEnd come with
`/clear` and compaction, not with the start and the end of the process.
"""

# ---------------------------------------------------------------- contexts


class HookContext(Withdrawable, msgspec.Struct, frozen=True, kw_only=True):
    """What every hook is told. A field the CLI left out, or filled oddly, has its default."""

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
    """An event Bridle does not know; everything the CLI said is in `raw`."""


class ToolHookContext(HookContext, frozen=True, kw_only=True):
    """What the hooks around one tool call have in common."""

    tool_name: str
    tool_input: JsonObject = msgspec.field(default_factory=dict[str, Any])
    mcp_server: McpServerRef | None = None


class PreToolUseContext(ToolHookContext, frozen=True, kw_only=True):
    """A tool is about to run; the permission request, if any, comes after this."""


class PostToolUseContext(ToolHookContext, frozen=True, kw_only=True):
    """A tool has run. `tool_response` has the tool's own shape."""

    tool_response: Any = None
    duration_ms: float | None = None

    @property
    def tool_output(self) -> Any:
        """What the tool returned: another name of `tool_response`."""
        return self.tool_response


class PostToolUseFailureContext(ToolHookContext, frozen=True, kw_only=True):
    """A tool has failed."""

    error: str = ""
    is_interrupt: bool = False
    duration_ms: float | None = None


class PermissionRequestContext(ToolHookContext, frozen=True, kw_only=True):
    """A permission is being asked for. `on_can_use_tool` is asked too; the first answer wins."""

    permission_suggestions: tuple[PermissionUpdate, ...] = ()


class PermissionDeniedContext(ToolHookContext, frozen=True, kw_only=True):
    """The automatic permission mode has denied a tool."""

    reason: str | None = None


class BatchedToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One of the calls of a batch."""

    tool_name: str
    tool_input: JsonObject = msgspec.field(default_factory=dict[str, Any])
    tool_use_id: str | None = None
    tool_response: Any = None


class PostToolBatchContext(HookContext, frozen=True, kw_only=True):
    """All tool calls of one assistant message are done."""

    tool_calls: tuple[BatchedToolCall, ...] = ()


class UserPromptSubmitContext(HookContext, frozen=True, kw_only=True):
    """A prompt is about to reach the model. Reports of background tasks come as prompts too."""

    prompt: str


class UserPromptExpansionContext(HookContext, frozen=True, kw_only=True):
    """A slash command is about to become a prompt."""

    prompt: str = ""
    expansion_type: str | None = None
    command_name: str | None = None
    command_args: str | None = None
    command_source: str | None = None


class MessageDisplayContext(HookContext, frozen=True, kw_only=True):
    """A piece of the assistant's text is shown."""

    turn_id: str | None = None
    message_id: str | None = None
    index: int = 0
    final: bool = False
    delta: str = ""


class StopContext(HookContext, frozen=True, kw_only=True):
    """The model is about to end its turn. `stop_hook_active`: a Stop hook made it go on before."""

    stop_hook_active: bool = False
    last_assistant_message: str | None = None
    background_tasks: tuple[JsonObject, ...] = ()
    session_crons: tuple[JsonObject, ...] = ()
    reason: str | None = None


class StopFailureContext(HookContext, frozen=True, kw_only=True):
    """A failure of the API has ended the turn; Stop does not come then."""

    error: str = ""
    last_assistant_message: str | None = None


class SubagentStartContext(HookContext, frozen=True, kw_only=True):
    """A subagent starts."""


class SubagentStopContext(StopContext, frozen=True, kw_only=True):
    """A subagent is about to end."""

    agent_transcript_path: str | None = None

    @property
    def subagent_id(self) -> str | None:
        """Which subagent: another name of `agent_id`."""
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
    """The session starts anew: after `/clear` or a compaction."""

    source: str = ""
    model: str | None = None


class SessionEndContext(HookContext, frozen=True, kw_only=True):
    """The session is left for a new one: by `/clear`."""

    reason: str = ""


class SetupContext(HookContext, frozen=True, kw_only=True):
    """The repository is being set up or maintained."""

    trigger: str = ""


class NotificationContext(HookContext, frozen=True, kw_only=True):
    """The CLI has something to tell the user."""

    message: str = ""
    title: str | None = None
    notification_type: str = ""


class ElicitationContext(HookContext, frozen=True, kw_only=True):
    """An MCP server is about to ask the user for something."""

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
    """The model is adding an entry to its list of tasks."""

    task_id: str = ""
    task_subject: str = ""
    task_description: str | None = None


class TaskCompletedContext(TaskCreatedContext, frozen=True, kw_only=True):
    """The model is marking an entry of its list of tasks as done."""


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
    """A file of instructions has been read."""

    file_path: str = ""
    memory_type: str | None = None
    load_reason: str = ""
    trigger_file_path: str | None = None


class ConfigChangeContext(HookContext, frozen=True, kw_only=True):
    """A settings file has changed."""

    source: str = ""
    file_path: str | None = None


class DirectoryAddedContext(HookContext, frozen=True, kw_only=True):
    """A directory has been added to those the tools may work in."""

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
    """A worktree is wanted; the hook makes it and names it by `HookOutput(specific=...)`."""

    name: str = ""


class WorktreeRemoveContext(HookContext, frozen=True, kw_only=True):
    """A worktree is no longer wanted."""

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
    """Go on. `additional_context` is for the model, `system_message` for whoever watches.

    Context given at Stop or SubagentStop makes the model go on instead of ending, and the hook is
    asked again afterwards: look at `stop_hook_active` before giving any.
    """

    additional_context: str | None = None
    system_message: str | None = None


class Block(msgspec.Struct, frozen=True):
    """This does not happen: the tool does not run, the prompt is not sent, the turn does not end.

    What has already happened (PostToolUse, PostToolUseFailure) cannot be undone: there the model
    gets the reason to read. After PostToolBatch there is nothing left to stop but the turn. Events
    the CLI cannot block go on, with a warning.
    """

    reason: str


class ModifyInput(msgspec.Struct, frozen=True):
    """Run the tool with another input (PreToolUse only). Its permission is asked for that input.

    The following hooks are called with the new input, and may still block it.
    """

    new_input: Mapping[str, Any]


class EndTurn(msgspec.Struct, frozen=True):
    """End the turn here. A tool that is about to run does not run."""

    reason: str


class HookOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Every field the CLI reads, for what the other results cannot say.

    It decides (the following hooks are not called) if it ends the turn, blocks, approves, allows,
    denies or asks. A changed input or output is what the following hooks see. `permission` is for
    PermissionRequest; `specific` holds further members of the event's own part, by their wire
    names. One that a gate does not know makes the whole output invalid, which blocks.
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


HookResult: TypeAlias = Continue | Block | ModifyInput | EndTurn | HookOutput
HookCallback: TypeAlias = Callable[[Any], HookResult | Awaitable[HookResult | None] | None]

# ---------------------------------------------------------------- registration

Matcher: TypeAlias = re.Pattern[str] | frozenset[str] | None
"""A compiled matcher: a pattern to search for, a set of whole names, or None for everything."""

_NAMES = re.compile(r"[A-Za-z0-9_\-, |]+")


def compile_matcher(matcher: str | None) -> Matcher:
    """Read a matcher the way the CLI does; `ValueError` where the CLI would match nothing.

    None, "" and "*" stand for everything. Names, apart by "|" or ",", stand for themselves,
    whole and in their case. A text with any other character is a regular expression that may
    match anywhere in the name; it is one of Python's, not of JavaScript's.
    """
    if matcher is None or matcher in ("", "*"):
        return None
    if _NAMES.fullmatch(matcher) is None:
        try:
            return re.compile(matcher)
        except re.error as error:
            raise ValueError(f"{matcher!r} is no regular expression: {error}") from error
    names = frozenset(name.strip() for name in re.split(r"[|,]", matcher)) - {""}
    if not names:
        raise ValueError(f"{matcher!r} names nothing")
    return names


class _HookConditions(msgspec.Struct, frozen=True, kw_only=True):
    matcher: str | None = None
    timeout: float | None = None
    on_error: Literal["continue", "block"] = "continue"


class Hook(_HookConditions, frozen=True):
    """A callback for an event, and when it is called.

    `matcher` limits it to some tools (or whatever the event is about; events about nothing in
    particular ignore it). `timeout` is its own deadline in seconds, counted from its start. A hook
    that raises or misses its deadline lets things go on; `on_error="block"` makes it block.
    """

    callback: HookCallback

    def __post_init__(self) -> None:
        callback("Hook.callback", self.callback)
        _check_matcher(self.matcher)
        if self.timeout is not None:
            positive("Hook.timeout", self.timeout)
        if self.on_error not in ("continue", "block"):
            raise OptionsError(
                "Hook.on_error",
                f"{self.on_error!r} is not known",
                fix='Use "continue" or "block".',
            )


def _check_matcher(matcher: object) -> None:
    fix = 'Use None, a name, several names ("Write|Edit") or a regular expression.'
    if matcher is not None and not isinstance(matcher, str):
        raise OptionsError("Hook.matcher", f"{matcher!r} is no text", fix=fix)
    try:
        compile_matcher(matcher)
    except ValueError as error:
        raise OptionsError("Hook.matcher", str(error), fix=fix) from error
