"""Types of option values: prompts, thinking, MCP servers, sandbox, agents."""

from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

__all__ = [
    "AgentDefinition",
    "EffortLevel",
    "McpHttpServerConfig",
    "McpSSEServerConfig",
    "McpSdkServerConfig",
    "McpServerConfig",
    "McpStdioServerConfig",
    "PermissionMode",
    "SandboxIgnoreViolations",
    "SandboxNetworkConfig",
    "SandboxSettings",
    "SdkBeta",
    "SdkPluginConfig",
    "SettingSource",
    "SystemPromptCustom",
    "SystemPromptFile",
    "SystemPromptPreset",
    "TaskBudget",
    "ThinkingConfig",
    "ThinkingConfigAdaptive",
    "ThinkingConfigDisabled",
    "ThinkingConfigEnabled",
    "ThinkingDisplay",
    "ToolsPreset",
]


PermissionMode: TypeAlias = Literal[
    "default", "acceptEdits", "plan", "bypassPermissions", "dontAsk", "auto"
]
"""When the CLI asks for permission."""


EffortLevel: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]
"""Reasoning effort of the model."""


SdkBeta: TypeAlias = Literal["context-1m-2025-08-07"]
"""Beta features of the API that can be enabled."""


SettingSource: TypeAlias = Literal["user", "project", "local"]
"""Settings files that the CLI can load."""


class SystemPromptPreset(TypedDict):
    """The system prompt of Claude Code, with optional text after it."""

    type: Literal["preset"]
    preset: Literal["claude_code"]
    append: NotRequired[str]
    exclude_dynamic_sections: NotRequired[bool]
    snapshot: NotRequired[bool]


class SystemPromptCustom(TypedDict):
    """A system prompt that replaces that of Claude Code."""

    type: Literal["custom"]
    prompt: str
    snapshot: NotRequired[bool]


class SystemPromptFile(TypedDict):
    """A file that contains the system prompt."""

    type: Literal["file"]
    path: str


class ToolsPreset(TypedDict):
    """The tools that Claude Code has by default."""

    type: Literal["preset"]
    preset: Literal["claude_code"]


class TaskBudget(TypedDict):
    """Number of tokens that the model is told to spend."""

    total: int


ThinkingDisplay: TypeAlias = Literal["summarized", "omitted"]
"""How thinking is shown."""


class ThinkingConfigAdaptive(TypedDict):
    """The model decides how much it thinks."""

    type: Literal["adaptive"]
    display: NotRequired[ThinkingDisplay]


class ThinkingConfigEnabled(TypedDict):
    """The model thinks, up to a number of tokens."""

    type: Literal["enabled"]
    budget_tokens: int
    display: NotRequired[ThinkingDisplay]


class ThinkingConfigDisabled(TypedDict):
    """The model does not think."""

    type: Literal["disabled"]


ThinkingConfig: TypeAlias = ThinkingConfigAdaptive | ThinkingConfigEnabled | ThinkingConfigDisabled
"""Extended thinking."""


class McpStdioServerConfig(TypedDict):
    """An MCP server that the CLI starts as a process."""

    type: NotRequired[Literal["stdio"]]
    command: str
    args: NotRequired[list[str]]
    env: NotRequired[dict[str, str]]


class McpSSEServerConfig(TypedDict):
    """An MCP server that the CLI reaches by server-sent events."""

    type: Literal["sse"]
    url: str
    headers: NotRequired[dict[str, str]]


class McpHttpServerConfig(TypedDict):
    """An MCP server that the CLI reaches by HTTP."""

    type: Literal["http"]
    url: str
    headers: NotRequired[dict[str, str]]


class McpSdkServerConfig(TypedDict):
    """An MCP server in this process, made by `create_sdk_mcp_server`."""

    type: Literal["sdk"]
    name: str
    instance: Any


McpServerConfig: TypeAlias = (
    McpStdioServerConfig | McpSSEServerConfig | McpHttpServerConfig | McpSdkServerConfig
)
"""An MCP server, by the way the CLI reaches it."""


class SdkPluginConfig(TypedDict):
    """A directory that contains a plugin."""

    type: Literal["local"]
    path: str


SandboxIgnoreViolations: TypeAlias = dict[str, list[str]]
"""Paths by command whose violations the sandbox ignores."""


class SandboxNetworkConfig(TypedDict, total=False):
    """What the sandbox lets commands do on the network."""

    allowedDomains: list[str]
    deniedDomains: list[str]
    allowManagedDomainsOnly: bool
    allowUnixSockets: list[str]
    allowAllUnixSockets: bool
    allowLocalBinding: bool
    allowMachLookup: list[str]
    httpProxyPort: int
    socksProxyPort: int


class SandboxSettings(TypedDict, total=False):
    """The sandbox in which the CLI runs commands."""

    enabled: bool
    autoAllowBashIfSandboxed: bool
    excludedCommands: list[str]
    allowUnsandboxedCommands: bool
    network: SandboxNetworkConfig
    ignoreViolations: SandboxIgnoreViolations
    enableWeakerNestedSandbox: bool


@dataclass
class AgentDefinition:
    """A subagent. The attributes have the names that the CLI uses."""

    description: str
    prompt: str
    tools: list[str] | None = None
    disallowedTools: list[str] | None = None
    model: str | None = None
    skills: list[str] | None = None
    memory: SettingSource | None = None
    mcpServers: list[str | dict[str, Any]] | None = None
    initialPrompt: str | None = None
    maxTurns: int | None = None
    background: bool | None = None
    effort: EffortLevel | int | None = None
    permissionMode: PermissionMode | None = None
