"""Messages of type `system`: one class per subtype.

The default of the field `subtype` is the subtype of the class, and `SYSTEM_KINDS` is made from it.
Other subtypes are decoded as `UnknownSystemMessage`. `.raw` has the fields that a class does not
define.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from bridle._records.raw_line import JsonObject
from bridle.messages._message import AgentPath, Message
from bridle.messages._stream_objects import Record

__all__ = [
    "ApiRetryMessage",
    "BackgroundTask",
    "BackgroundTasksChangedMessage",
    "CommandsChangedMessage",
    "CompactBoundaryMessage",
    "CompactMetadata",
    "ControlRequestProgressMessage",
    "ElicitationCompleteMessage",
    "FilesPersistedMessage",
    "HookProgressMessage",
    "HookResponseMessage",
    "HookStartedMessage",
    "InformationalMessage",
    "InitMessage",
    "LiveTask",
    "LocalCommandOutputMessage",
    "McpServerStatus",
    "MemoryRecallMessage",
    "MirrorErrorMessage",
    "MirrorKey",
    "ModelFallbackMessage",
    "ModelRefusalFallbackMessage",
    "ModelRefusalNoFallbackMessage",
    "NoResponse",
    "NotificationMessage",
    "PermissionDeniedMessage",
    "Plugin",
    "PluginInstallMessage",
    "RecalledMemory",
    "SessionStateChangedMessage",
    "SessionTitleChangedMessage",
    "SessionWritesLostMessage",
    "SlashCommand",
    "StatusMessage",
    "SystemMessage",
    "TaskNotificationMessage",
    "TaskProgressMessage",
    "TaskStartedMessage",
    "TaskUpdatedMessage",
    "TaskUsage",
    "ThinkingTokensMessage",
    "UiInvalidateMessage",
    "UnknownSystemMessage",
    "WorkerShuttingDownMessage",
]


class SystemMessage(Message, tag="system", frozen=True):
    """Base class of messages about the CLI and the session."""

    subtype: str = ""


class UnknownSystemMessage(SystemMessage, frozen=True):
    """A subtype that this version of Bridle does not know. `.raw` has its content."""


# ------------------------------------------------------------------------- the session


class McpServerStatus(Record, frozen=True):
    """An MCP server and the status of its connection."""

    name: str = ""
    status: str = ""
    source: str | None = None


class Plugin(Record, frozen=True):
    """A plugin that the CLI loaded."""

    name: str = ""
    path: str | None = None
    source: str | None = None
    version: str | None = None


class InitMessage(SystemMessage, frozen=True):
    """The configuration of the session. The CLI sends it at the start of every turn."""

    subtype: str = "init"
    cwd: str | None = None
    model: str | None = None
    tools: tuple[str, ...] = ()
    mcp_servers: tuple[McpServerStatus, ...] = ()
    permission_mode: str | None = field(name="permissionMode", default=None)
    slash_commands: tuple[str, ...] = ()
    terminal_slash_commands: tuple[str, ...] = ()
    api_key_source: str | None = field(name="apiKeySource", default=None)
    claude_code_version: str | None = None
    output_style: str | None = None
    agents: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    plugins: tuple[Plugin, ...] = ()
    capabilities: tuple[str, ...] = ()
    betas: tuple[str, ...] = ()
    user_message_uuids: tuple[str, ...] = ()
    original_cwd: str | None = None
    additional_directories: tuple[str, ...] = ()
    memory_paths: JsonObject | None = None
    messaging_socket_path: str | None = None
    mcp_server_errors: tuple[JsonObject, ...] = ()
    plugin_errors: tuple[JsonObject, ...] = ()
    analytics_disabled: bool | None = None
    product_feedback_disabled: bool | None = None
    fast_mode_state: str | None = None
    fast_mode_disabled_reason: str | None = None
    per_turn_effort_active: bool | None = None
    ultrathink_available: bool | None = None
    ultrathink_typed_raises: bool | None = None
    view_mode: str | None = None
    effort: str | None = None


class StatusMessage(SystemMessage, frozen=True):
    """The current activity of the CLI: `requesting`, `compacting`, or None."""

    subtype: str = "status"
    status: str | None = None
    permission_mode: str | None = field(name="permissionMode", default=None)
    compact_result: str | None = None
    compact_error: str | None = None
    user_message_uuids: tuple[str, ...] = ()


class SessionStateChangedMessage(SystemMessage, frozen=True):
    """The session is running, is idle, or waits for a response of the program."""

    subtype: str = "session_state_changed"
    state: str = ""
    sdk_host_only: bool = False


class SessionTitleChangedMessage(SystemMessage, frozen=True):
    """The title of the session changed."""

    subtype: str = "session_title_changed"
    title: str = ""


class CompactMetadata(Record, kw_only=True, frozen=True):
    """Details of a compaction."""

    trigger: str | None = None
    pre_tokens: int | None = None
    post_tokens: int | None = None
    cumulative_dropped_tokens: int | None = None
    duration_ms: float | None = None
    preserved_segment: JsonObject | None = None
    preserved_messages: JsonObject | None = None


class CompactBoundaryMessage(SystemMessage, frozen=True):
    """The conversation before this point was replaced by a summary."""

    subtype: str = "compact_boundary"
    compact_metadata: CompactMetadata = field(default_factory=CompactMetadata)
    logical_parent_uuid: str | None = None


class SlashCommand(Record, kw_only=True, frozen=True):
    """A slash command that can be sent as a prompt."""

    name: str = ""
    description: str | None = None
    argument_hint: str | None = field(name="argumentHint", default=None)
    aliases: tuple[str, ...] = ()


class CommandsChangedMessage(SystemMessage, frozen=True):
    """The list of slash commands changed."""

    subtype: str = "commands_changed"
    commands: tuple[SlashCommand, ...] = ()


class LocalCommandOutputMessage(SystemMessage, frozen=True):
    """The output of a slash command."""

    subtype: str = "local_command_output"
    content: str = ""


class FilesPersistedMessage(SystemMessage, frozen=True):
    """Files were stored outside the session."""

    subtype: str = "files_persisted"
    files: tuple[JsonObject, ...] = ()
    failed: tuple[JsonObject, ...] = ()
    processed_at: str | None = None


class UiInvalidateMessage(SystemMessage, frozen=True):
    """A user interface should reload some data."""

    subtype: str = "ui_invalidate"
    event: str = ""


class PluginInstallMessage(SystemMessage, frozen=True):
    """The progress of installing plugins: `started`, `installed`, `failed` or `completed`."""

    subtype: str = "plugin_install"
    status: str = ""
    name: str | None = None
    error: str | None = None


class RecalledMemory(Record, frozen=True):
    """A memory that the CLI added to the turn. `content` is None if the file at `path` has it."""

    path: str = ""
    scope: str = ""
    content: str | None = None


class MemoryRecallMessage(SystemMessage, frozen=True):
    """The CLI added memories to the turn.

    `mode` is `select` (whole memories) or `synthesize` (a summary of several).
    """

    subtype: str = "memory_recall"
    mode: str = ""
    memories: tuple[RecalledMemory, ...] = ()


class MirrorKey(Record, kw_only=True, rename="camel", frozen=True):
    """The transcript that a mirrored batch belongs to."""

    project_key: str = ""
    session_id: str = ""
    subpath: str | None = None


class MirrorErrorMessage(SystemMessage, frozen=True):
    """Transcript entries could not be copied to a session store, and were dropped."""

    subtype: str = "mirror_error"
    error: str = ""
    key: MirrorKey = field(default_factory=MirrorKey)


class SessionWritesLostMessage(SystemMessage, frozen=True):
    """The CLI could not save files because the disk or its quota was full. Sent when it exits.

    `lost` names what was not saved: `transcript`, `global_config`.
    """

    subtype: str = "session_writes_lost"
    error_code: str = ""
    lost: tuple[str, ...] = ()
    transcript_session_ids: tuple[str, ...] = ()


class WorkerShuttingDownMessage(SystemMessage, frozen=True):
    """The host of the CLI is shutting it down. `reason` is a short identifier."""

    subtype: str = "worker_shutting_down"
    reason: str = ""


# ------------------------------------------------------------------------- the model


class NoResponse(Record, frozen=True):
    """How long the CLI waited for the API's response, and how long it will wait next time."""

    waited_ms: float = 0.0
    retry_wait_ms: float = 0.0


class ApiRetryMessage(SystemMessage, frozen=True):
    """A request to the model API failed. The CLI will repeat it."""

    subtype: str = "api_retry"
    attempt: int = 0
    max_retries: int = 0
    retry_delay_ms: float = 0.0
    error_status: int | None = None
    error: str | None = None
    no_response: NoResponse | None = None


class ModelFallbackMessage(SystemMessage, frozen=True):
    """The CLI switched to the fallback model."""

    subtype: str = "model_fallback"
    trigger: str | None = None
    original_model: str | None = None
    fallback_model: str | None = None
    content: str = ""


class ModelRefusalFallbackMessage(SystemMessage, frozen=True):
    """The model refused, and the CLI used the fallback model.

    `direction` is `retry`, `revert` or `sticky`. If `scope` is `local`, only one response of a
    subagent came from the fallback model. Remove the messages in `retracted_message_uuids`.
    """

    subtype: str = "model_refusal_fallback"
    trigger: str | None = None
    direction: str | None = None
    scope: str | None = None
    original_model: str | None = None
    fallback_model: str | None = None
    request_id: str | None = None
    api_refusal_category: str | None = None
    api_refusal_explanation: str | None = None
    retracted_message_uuids: tuple[str, ...] = ()
    refused_user_message_uuid: str | None = None
    content: str = ""


class ModelRefusalNoFallbackMessage(SystemMessage, frozen=True):
    """The model refused, and there is no fallback model."""

    subtype: str = "model_refusal_no_fallback"
    original_model: str | None = None
    request_id: str | None = None
    api_refusal_category: Any = None
    api_refusal_explanation: Any = None
    refused_user_message_uuid: str | None = None
    content: str = ""


class ThinkingTokensMessage(SystemMessage, frozen=True):
    """The estimated number of thinking tokens so far."""

    subtype: str = "thinking_tokens"
    estimated_tokens: int = 0
    estimated_tokens_delta: int = 0
    user_message_uuid: str | None = None


# ------------------------------------------------------------------------- hooks, permissions


class HookStartedMessage(SystemMessage, frozen=True):
    """A command hook from the settings has started."""

    subtype: str = "hook_started"
    hook_id: str = ""
    hook_name: str = ""
    hook_event: str = ""


class HookProgressMessage(SystemMessage, frozen=True):
    """A command hook has written output."""

    subtype: str = "hook_progress"
    hook_id: str = ""
    hook_name: str = ""
    hook_event: str = ""
    stdout: str = ""
    stderr: str = ""
    output: str = ""


class HookResponseMessage(SystemMessage, frozen=True):
    """A command hook has ended."""

    subtype: str = "hook_response"
    hook_id: str = ""
    hook_name: str = ""
    hook_event: str = ""
    stdout: str = ""
    stderr: str = ""
    output: str = ""
    exit_code: int | None = None
    outcome: str | None = None


class PermissionDeniedMessage(SystemMessage, frozen=True):
    """The CLI denied a tool call without a permission request."""

    subtype: str = "permission_denied"
    tool_name: str = ""
    tool_use_id: str | None = None
    agent_id: str | None = None
    decision_reason_type: str | None = None
    decision_reason: str | None = None
    message: str = ""


class ElicitationCompleteMessage(SystemMessage, frozen=True):
    """An elicitation of an MCP server is complete."""

    subtype: str = "elicitation_complete"
    mcp_server_name: str = ""
    elicitation_id: str | None = None


class ControlRequestProgressMessage(SystemMessage, frozen=True):
    """The CLI is working on a control request."""

    subtype: str = "control_request_progress"
    request_id: str = ""
    status: str = ""
    attempt: int | None = None
    max_retries: int | None = None
    retry_delay_ms: float | None = None
    error_status: int | None = None


class InformationalMessage(SystemMessage, frozen=True):
    """A note for the user, such as the message of a hook or of a blocked prompt."""

    subtype: str = "informational"
    content: str = ""
    level: str | None = None
    tag: str | None = None
    prevent_continuation: bool = False
    prompt_submit_outcome: JsonObject | None = None
    tool_use_id: str | None = None


class NotificationMessage(SystemMessage, frozen=True):
    """A notification that the CLI would show in its own interface."""

    subtype: str = "notification"
    key: str | None = None
    text: str = ""
    priority: str | None = None
    color: str | None = None
    timeout_ms: float | None = None


# ------------------------------------------------------------------------- subagents, shells


class TaskUsage(Record, frozen=True):
    """The resources that a task has used so far."""

    total_tokens: int = 0
    tool_uses: int = 0
    duration_ms: float = 0.0


class TaskStartedMessage(SystemMessage, frozen=True):
    """A subagent or a shell command has started."""

    subtype: str = "task_started"
    task_id: str = ""
    run_id: str | None = None
    tool_use_id: str | None = None
    task_type: str | None = None
    description: str = ""
    prompt: str | None = None
    subagent_type: str | None = None
    is_backgrounded: bool | None = None
    spawn_depth: int | None = None
    parent_task_id: str | None = None
    workflow_name: str | None = None
    skip_transcript: bool = False
    ambient: bool = False


class TaskProgressMessage(SystemMessage, frozen=True):
    """A task has made progress."""

    subtype: str = "task_progress"
    task_id: str = ""
    run_id: str | None = None
    tool_use_id: str | None = None
    description: str = ""
    subagent_type: str | None = None
    last_tool_name: str | None = None
    usage: TaskUsage | None = None
    summary: str | None = None


class TaskUpdatedMessage(SystemMessage, frozen=True):
    """Some fields of a task changed. `patch` has the new values, such as `status`."""

    subtype: str = "task_updated"
    task_id: str = ""
    run_id: str | None = None
    patch: JsonObject = field(default_factory=JsonObject)


class TaskNotificationMessage(SystemMessage, frozen=True):
    """A task has ended: completed, failed or stopped."""

    subtype: str = "task_notification"
    task_id: str = ""
    run_id: str | None = None
    tool_use_id: str | None = None
    status: str = ""
    output_file: str | None = None
    summary: str = ""
    summary_is_report: bool = False
    usage: TaskUsage | None = None
    reason: str | None = None
    resource_links: tuple[JsonObject, ...] = ()
    skip_transcript: bool = False
    ambient: bool = False


class BackgroundTask(Record, kw_only=True, frozen=True):
    """A background task that is running."""

    task_id: str = ""
    run_id: str | None = None
    task_type: str | None = None
    subagent_type: str | None = None
    description: str = ""
    parent_task_id: str | None = None
    ambient: bool = False


class BackgroundTasksChangedMessage(SystemMessage, frozen=True):
    """The list of running background tasks changed. `tasks` has all of them."""

    subtype: str = "background_tasks_changed"
    tasks: tuple[BackgroundTask, ...] = ()


class LiveTask(Record, kw_only=True, frozen=True):
    """A task that is running. `session.tasks.list()` returns all of them."""

    task_id: str
    #: Identifies one run of the task. A subagent that is resumed keeps its `task_id`.
    run_id: str | None = None
    #: The CLI's name of the kind, such as `local_agent`, `local_bash` or `monitor_mcp`.
    task_type: str | None = None
    subagent_type: str | None = None
    description: str = ""
    prompt: str | None = None
    status: str = "running"
    #: True if the task runs beside the turn. None if the CLI did not say (2.1.197).
    is_backgrounded: bool | None = None
    #: The tool call that started the task.
    tool_use_id: str | None = None
    #: The task of the subagent that started this task.
    parent_task_id: str | None = None
    #: The path of the subagent itself, or of the agent that started a shell or a monitor.
    agent_path: AgentPath = ()
    #: What the task does now, and the last tool it called.
    activity: str | None = None
    last_tool_name: str | None = None
    summary: str | None = None
    usage: TaskUsage | None = None
    #: True for tasks that are not activity, such as watchers. Interfaces do not count them.
    ambient: bool = False


SYSTEM_KINDS: dict[str, type[SystemMessage]] = {
    kind().subtype: kind for kind in SystemMessage.__subclasses__() if kind().subtype
}
"""Map from subtype to class."""
