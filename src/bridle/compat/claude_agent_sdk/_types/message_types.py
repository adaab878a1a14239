"""The messages of a conversation and their content blocks."""

from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, Required, TypeAlias, TypedDict

from bridle.compat.claude_agent_sdk._types.config_types import PermissionMode

__all__ = [
    "TERMINAL_TASK_STATUSES",
    "AssistantMessage",
    "AssistantMessageError",
    "ContentBlock",
    "ConversationResetMessage",
    "DeferredToolUse",
    "FastModeDisabledReason",
    "FastModeState",
    "HookEventMessage",
    "Message",
    "MessageOrigin",
    "MessageOriginKind",
    "ModelUsage",
    "RateLimitEvent",
    "RateLimitInfo",
    "RateLimitStatus",
    "RateLimitType",
    "ResultMessage",
    "ServerToolName",
    "ServerToolResultBlock",
    "ServerToolUseBlock",
    "StreamEvent",
    "SystemInitData",
    "SystemInitMcpServer",
    "SystemInitPlugin",
    "SystemInitPluginError",
    "SystemMessage",
    "TaskNotificationMessage",
    "TaskNotificationOriginSubkind",
    "TaskNotificationStatus",
    "TaskProgressMessage",
    "TaskStartedMessage",
    "TaskUpdatedMessage",
    "TaskUpdatedStatus",
    "TaskUsage",
    "TextBlock",
    "ThinkingBlock",
    "ToolResultBlock",
    "ToolUseBlock",
    "UserMessage",
]


MessageOriginKind: TypeAlias = Literal[
    "human",
    "channel",
    "peer",
    "task-notification",
    "coordinator",
    "unclassified",
    "observer",
    "auto-continuation",
    "observer-activity",
]
"""Who or what wrote a message."""


TaskNotificationOriginSubkind: TypeAlias = Literal["scheduled-trigger", "peer-send-message"]
"""What caused the notification of a task."""


MessageOrigin = TypedDict(
    "MessageOrigin",
    {
        "kind": Required[MessageOriginKind],
        "server": str,
        "from": str,
        "name": str,
        "fromSession": str,
        "senderTaskId": str,
        "body": str,
        "verifiedPeerPid": int,
        "subkind": TaskNotificationOriginSubkind,
    },
    total=False,
)
MessageOrigin.__doc__ = "Where a message comes from."


AssistantMessageError: TypeAlias = Literal[
    "authentication_failed",
    "billing_error",
    "rate_limit",
    "invalid_request",
    "server_error",
    "unknown",
]
"""Why the model's answer failed."""


ServerToolName: TypeAlias = Literal[
    "advisor",
    "web_search",
    "web_fetch",
    "code_execution",
    "bash_code_execution",
    "text_editor_code_execution",
    "tool_search_tool_regex",
    "tool_search_tool_bm25",
]
"""Tools that the API runs itself."""


@dataclass
class TextBlock:
    """Text of the model or of the user."""

    text: str


@dataclass
class ThinkingBlock:
    """Thinking of the model."""

    thinking: str
    signature: str


@dataclass
class ToolUseBlock:
    """A call of a tool."""

    id: str
    name: str
    input: dict[str, Any]


@dataclass
class ToolResultBlock:
    """The result of a tool call."""

    tool_use_id: str
    content: str | list[dict[str, Any]] | None = None
    is_error: bool | None = None


@dataclass
class ServerToolUseBlock:
    """A call of a tool that the API runs itself."""

    id: str
    name: ServerToolName
    input: dict[str, Any]


@dataclass
class ServerToolResultBlock:
    """The result of a tool that the API ran."""

    tool_use_id: str
    content: dict[str, Any]


ContentBlock: TypeAlias = (
    TextBlock
    | ThinkingBlock
    | ToolUseBlock
    | ToolResultBlock
    | ServerToolUseBlock
    | ServerToolResultBlock
)
"""A part of a message."""


@dataclass
class UserMessage:
    """A prompt, or the result of a tool."""

    content: str | list[ContentBlock]
    uuid: str | None = None
    parent_tool_use_id: str | None = None
    tool_use_result: dict[str, Any] | None = None
    origin: MessageOrigin | None = None


@dataclass
class AssistantMessage:
    """Content from the model."""

    content: list[ContentBlock]
    model: str
    parent_tool_use_id: str | None = None
    error: AssistantMessageError | None = None
    usage: dict[str, Any] | None = None
    message_id: str | None = None
    stop_reason: str | None = None
    session_id: str | None = None
    uuid: str | None = None
    user_message_uuid: str | None = None
    user_message_uuids: list[str] | None = None


@dataclass
class SystemMessage:
    """A message of the CLI about the session. `data` is the whole message as JSON."""

    subtype: str
    data: dict[str, Any]


FastModeState: TypeAlias = Literal["off", "cooldown", "on"]
"""Whether the CLI uses fast mode."""


FastModeDisabledReason: TypeAlias = Literal[
    "free",
    "preference",
    "extra_usage_disabled",
    "network_error",
    "unknown",
    "not_first_party",
    "disabled_by_env",
    "model_not_allowed",
    "sdk_opt_in_required",
    "pending",
]
"""Why fast mode is off."""


class SystemInitMcpServer(TypedDict):
    """An MCP server in the first message of a turn."""

    name: str
    status: str
    source: NotRequired[str]


class SystemInitPlugin(TypedDict):
    """A plugin in the first message of a turn."""

    name: str
    path: str
    version: NotRequired[str]


class SystemInitPluginError(TypedDict):
    """A plugin that could not be loaded."""

    plugin: str
    type: str
    message: str
    path: NotRequired[str]


class SystemInitData(TypedDict):
    """`SystemMessage.data` of the first message of a turn (subtype `init`)."""

    type: Literal["system"]
    subtype: Literal["init"]
    uuid: str
    session_id: str
    agents: NotRequired[list[str]]
    apiKeySource: str
    betas: NotRequired[list[str]]
    claude_code_version: str
    cwd: str
    tools: list[str]
    mcp_servers: list[SystemInitMcpServer]
    model: str
    permissionMode: PermissionMode
    slash_commands: list[str]
    terminal_slash_commands: NotRequired[list[str]]
    output_style: str
    skills: list[str]
    plugins: list[SystemInitPlugin]
    plugin_errors: NotRequired[list[SystemInitPluginError]]
    fast_mode_state: NotRequired[FastModeState]
    fast_mode_disabled_reason: NotRequired[FastModeDisabledReason]
    capabilities: NotRequired[list[str]]


class TaskUsage(TypedDict):
    """What a task has used so far."""

    total_tokens: int
    tool_uses: int
    duration_ms: int


TaskNotificationStatus: TypeAlias = Literal["completed", "failed", "stopped"]
"""How a task ended."""


TaskUpdatedStatus: TypeAlias = Literal[
    "pending", "running", "paused", "completed", "failed", "killed"
]
"""The state of a task."""


TERMINAL_TASK_STATUSES: frozenset[str] = frozenset({"completed", "failed", "killed", "stopped"})
"""The states of a task that has ended."""


@dataclass
class TaskStartedMessage(SystemMessage):
    """A task was started."""

    task_id: str
    description: str
    uuid: str
    session_id: str
    tool_use_id: str | None = None
    task_type: str | None = None


@dataclass
class TaskProgressMessage(SystemMessage):
    """A task is still running."""

    task_id: str
    description: str
    usage: TaskUsage
    uuid: str
    session_id: str
    tool_use_id: str | None = None
    last_tool_name: str | None = None


@dataclass
class TaskNotificationMessage(SystemMessage):
    """A task has ended."""

    task_id: str
    status: TaskNotificationStatus
    output_file: str
    summary: str
    uuid: str
    session_id: str
    tool_use_id: str | None = None
    usage: TaskUsage | None = None


@dataclass
class TaskUpdatedMessage(SystemMessage):
    """The state of a task changed."""

    task_id: str
    patch: dict[str, Any]
    status: TaskUpdatedStatus | None = None
    session_id: str | None = None
    uuid: str | None = None


@dataclass
class HookEventMessage(SystemMessage):
    """A command hook was started, or has ended."""

    hook_event_name: str = ""
    session_id: str | None = None
    uuid: str | None = None


class ModelUsage(TypedDict):
    """Tokens and cost of one model. The keys are those of the CLI."""

    inputTokens: int
    outputTokens: int
    cacheReadInputTokens: int
    cacheCreationInputTokens: int
    webSearchRequests: int
    costUSD: float
    contextWindow: int
    maxOutputTokens: int
    canonicalModel: NotRequired[str]
    provider: NotRequired[str]


@dataclass
class DeferredToolUse:
    """The tool call that a hook deferred."""

    id: str
    name: str
    input: dict[str, Any]


@dataclass
class ResultMessage:
    """The result at the end of a turn."""

    subtype: str
    duration_ms: int
    duration_api_ms: int
    is_error: bool
    num_turns: int
    session_id: str
    stop_reason: str | None = None
    total_cost_usd: float | None = None
    usage: dict[str, Any] | None = None
    result: str | None = None
    structured_output: Any = None
    model_usage: dict[str, ModelUsage] | None = None
    permission_denials: list[Any] | None = None
    deferred_tool_use: DeferredToolUse | None = None
    errors: list[str] | None = None
    api_error_status: int | None = None
    uuid: str | None = None
    terminal_reason: str | None = None
    origin: MessageOrigin | None = None
    user_message_uuid: str | None = None
    user_message_uuids: list[str] | None = None


@dataclass
class StreamEvent:
    """A part of an answer that the model is writing. `event` is the event of the API."""

    uuid: str
    session_id: str
    event: dict[str, Any]
    parent_tool_use_id: str | None = None
    user_message_uuid: str | None = None
    user_message_uuids: list[str] | None = None


RateLimitStatus: TypeAlias = Literal["allowed", "allowed_warning", "rejected"]
"""Whether requests are allowed."""


RateLimitType: TypeAlias = Literal[
    "five_hour", "seven_day", "seven_day_opus", "seven_day_sonnet", "overage"
]
"""The period or model that a rate limit applies to."""


@dataclass
class RateLimitInfo:
    """The state of a rate limit. `raw` is the JSON object."""

    status: RateLimitStatus
    resets_at: int | None = None
    rate_limit_type: RateLimitType | None = None
    utilization: float | None = None
    overage_status: RateLimitStatus | None = None
    overage_resets_at: int | None = None
    overage_disabled_reason: str | None = None
    raw: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class RateLimitEvent:
    """The state of a rate limit changed."""

    rate_limit_info: RateLimitInfo
    uuid: str
    session_id: str


@dataclass
class ConversationResetMessage:
    """The conversation was cleared."""

    new_conversation_id: str
    uuid: str
    session_id: str


Message: TypeAlias = (
    UserMessage
    | AssistantMessage
    | SystemMessage
    | ResultMessage
    | StreamEvent
    | RateLimitEvent
    | ConversationResetMessage
)
"""A message of a conversation."""
