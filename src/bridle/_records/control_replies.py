"""The replies of the CLI to control requests, one class for each kind of reply.

All fields have defaults, because older CLIs send fewer fields. Fields that a class does not have
are in its `.raw`. Fields with an unexpected value keep their default and are named in `.misfits`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from bridle._records.raw_line import JsonObject, Sourced, WholeLine


class Reply(WholeLine, Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Base class of the replies to control requests. `.raw` is the whole reply as JSON."""


class _Part(Sourced, Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Base class of the parts of a reply. `.raw` is the JSON of this part."""


# ------------------------------------------------------------------------- MCP servers


class McpToolInfo(_Part, frozen=True):
    """A tool of an MCP server."""

    name: str = ""
    description: str | None = None
    #: Hints such as `{"readOnly": True}`.
    annotations: JsonObject | None = None


class McpServerInfo(_Part, rename="camel", frozen=True):
    """The state of an MCP server."""

    name: str = ""
    #: `connected`, `failed`, `needs-auth`, `pending` or `disabled`.
    status: str = ""
    #: Name and version that the server reports. None if it is not connected.
    server_info: JsonObject | None = None
    #: Why the connection failed.
    error: str | None = None
    config: JsonObject | None = None
    transport: str | None = None
    scope: str | None = None
    #: Where the server was configured: `sdk` for in-process servers. Newer CLIs only.
    source: str | None = None
    tools: tuple[McpToolInfo, ...] = ()


class McpServerList(Reply, rename="camel", frozen=True):
    """The MCP servers of a session."""

    servers: tuple[McpServerInfo, ...] = field(name="mcpServers", default=())


class McpServerChanges(Reply, frozen=True):
    """The MCP servers that the CLI added and removed."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    #: Why servers could not be connected, by name.
    errors: dict[str, str] = field(default_factory=dict[str, str])


class McpCallResult(Reply, rename="camel", frozen=True):
    """The result of a tool of an MCP server."""

    #: Content blocks as JSON. Some servers return text instead.
    content: Any = None
    structured_content: Any = None
    is_error: bool = False
    meta: JsonObject | None = field(name="_meta", default=None)


class McpResource(Reply, frozen=True):
    """The contents of a resource of an MCP server."""

    #: Objects with `uri`, `mimeType`, and `text` or `blob`.
    contents: tuple[JsonObject, ...] = ()


# ------------------------------------------------------------------------- tasks and context


class TaskOutput(Reply, frozen=True):
    """The end of the output of a background task, at most 8 KiB."""

    output: str = ""
    #: The size of the whole output in bytes.
    total_bytes: int = 0
    #: Whether `output` is only the end of the output.
    truncated: bool = False


class ContextCategory(_Part, rename="camel", frozen=True):
    """One kind of content in the context window."""

    #: A stable name such as `system_prompt` or `free_space`. Newer CLIs only.
    id: str | None = None
    name: str = ""
    tokens: int = 0
    color: str = ""
    #: `used`, `free`, `buffer` or `deferred`. Newer CLIs only.
    kind: str | None = None
    is_deferred: bool = False


class ContextUsage(Reply, rename="camel", frozen=True):
    """How the context window is used."""

    model: str = ""
    categories: tuple[ContextCategory, ...] = ()
    total_tokens: int = 0
    #: The size of the context window, and its size before reductions by settings.
    max_tokens: int = 0
    raw_max_tokens: int = 0
    #: How much of the window is used, from 0 to 100.
    percentage: float = 0.0
    #: Number of tokens at which the CLI compacts the conversation.
    auto_compact_threshold: int | None = None
    is_auto_compact_enabled: bool = False
    autocompact_source: str | None = None
    memory_files: tuple[JsonObject, ...] = ()
    mcp_tools: tuple[JsonObject, ...] = ()
    mcp_instructions: tuple[JsonObject, ...] = ()
    system_tools: tuple[JsonObject, ...] = ()
    deferred_builtin_tools: tuple[JsonObject, ...] = ()
    system_prompt_sections: tuple[JsonObject, ...] = ()
    agents: tuple[JsonObject, ...] = ()
    slash_commands: JsonObject | None = None
    skills: JsonObject | None = None
    message_breakdown: JsonObject | None = None
    #: Token counts of the last response of the API.
    api_usage: JsonObject | None = None
    #: The squares of the diagram that the CLI draws.
    grid_rows: tuple[tuple[JsonObject, ...], ...] = ()


# ------------------------------------------------------------------------- models and settings


class ModelInfo(_Part, rename="camel", frozen=True):
    """A model that the session can use."""

    #: The name for `set_model`.
    value: str = ""
    #: The full name of the model that `value` stands for.
    resolved_model: str | None = None
    display_name: str = ""
    description: str = ""
    supports_effort: bool = False
    supported_effort_levels: tuple[str, ...] = ()
    supports_adaptive_thinking: bool = False
    supports_fast_mode: bool = False
    supports_auto_mode: bool = False
    supports_thinking_off: bool | None = None


class ModelList(Reply, frozen=True):
    """The models that the session can use."""

    models: tuple[ModelInfo, ...] = ()


class SettingsSource(_Part, frozen=True):
    """The settings of one file or of the flags."""

    #: `userSettings`, `projectSettings`, `localSettings`, `flagSettings`, `policySettings` …
    source: str = ""
    settings: JsonObject = field(default_factory=JsonObject)


class SettingsReport(Reply, frozen=True):
    """The settings of a session."""

    #: The settings of all sources, merged.
    effective: JsonObject = field(default_factory=JsonObject)
    sources: tuple[SettingsSource, ...] = ()
    #: Values that the session uses now, such as `model` and `effort`.
    applied: JsonObject = field(default_factory=JsonObject)
    errors: tuple[JsonObject, ...] = ()


class PermissionRuleInfo(_Part, rename="camel", frozen=True):
    """A permission rule."""

    #: `allow`, `deny` or `ask`.
    behavior: str = ""
    rule: str = ""
    source: str = ""
    editability: str | None = None
    description: JsonObject | None = None


class PermissionRuleState(_Part, rename="camel", frozen=True):
    """The permission rules that apply in a session."""

    rules: tuple[PermissionRuleInfo, ...] = ()
    workspace_directories: tuple[JsonObject, ...] = ()
    original_cwd: str = ""
    #: Whether only rules of the organization apply.
    managed_only: bool = False
    errors: tuple[JsonObject, ...] = ()


class PermissionRuleList(Reply, frozen=True):
    """The permission rules that apply in a session."""

    state: PermissionRuleState = field(default_factory=PermissionRuleState)

    @property
    def rules(self) -> tuple[PermissionRuleInfo, ...]:
        """Return the rules."""
        return self.state.rules


class HookEventInfo(_Part, rename="camel", frozen=True):
    """A hook event."""

    name: str = ""
    summary: str = ""
    supports_matcher: bool = False
    #: Number of hooks for this event. None in the list of all events.
    hook_count: int | None = None


class HookInfo(_Part, rename="camel", frozen=True):
    """A hook of a settings file or a plugin."""

    event: str = ""
    matcher: str = ""
    source: str = ""
    source_label: str = ""
    plugin_name: str | None = None
    #: `command`, `prompt`, `http` …
    type: str = ""
    display_text: str = ""
    #: The command, prompt or URL that runs.
    command_text: str = ""
    content_label: str = ""
    condition: str | None = None
    #: In seconds.
    timeout: float | None = None
    status_message: str | None = None
    runs_once: bool = False
    runs_in_background: bool = False
    disabled: bool = False
    editable: JsonObject | None = None


class HookList(Reply, rename="camel", frozen=True):
    """The hooks of settings files and plugins. Callbacks of this session are not in it."""

    hooks: tuple[HookInfo, ...] = ()
    #: Events with at least one hook.
    events: tuple[HookEventInfo, ...] = ()
    #: All events.
    event_catalog: tuple[HookEventInfo, ...] = ()
    policy: JsonObject = field(default_factory=JsonObject)
    safe_mode: JsonObject | None = None
    bare_mode: JsonObject | None = None
    errors: tuple[JsonObject, ...] = ()


class OutputStyleList(Reply, frozen=True):
    """The names of the output styles."""

    available_output_styles: tuple[str, ...] = ()


# ------------------------------------------------------------------------- files


class FileContents(Reply, rename="camel", frozen=True):
    """The contents of a file."""

    #: Text, or base64 if `encoding` is `base64`.
    contents: str = ""
    abs_path: str = ""
    #: Whether the file is longer than `max_bytes`.
    truncated: bool = False
    encoding: str | None = None
    #: Whether bytes that are not UTF-8 were replaced. None if the CLI does not say.
    lossy: bool | None = None


class FileSuggestions(Reply, frozen=True):
    """Files that match a query."""

    suggestions: tuple[Any, ...] = ()
    cwd: str | None = None


class RegisteredDirectory(Reply, frozen=True):
    """A directory that was added to the session."""

    directory: str = ""


class RewindResult(Reply, rename="camel", frozen=True):
    """What a rewind of files changed, or would change."""

    can_rewind: bool = False
    #: Why the files cannot be rewound.
    error: str | None = None
    #: Only with `dry_run=True`.
    files_changed: tuple[str, ...] = ()
    insertions: int | None = None
    deletions: int | None = None
    #: Number of symbolic links that were left unchanged. Newer CLIs only.
    skipped_links: int | None = None


class WorkspaceDiff(Reply, rename="camel", frozen=True):
    """The uncommitted changes in the working directory."""

    #: Statistics and hunks. None if there is no diff.
    diff: JsonObject | None = None
    #: Why there is no diff, such as `no-repository`.
    no_diff_reason: str | None = None


# ------------------------------------------------------------------------- plugins and skills


class CommandInfo(_Part, rename="camel", frozen=True):
    """A slash command or a skill."""

    name: str = ""
    description: str = ""
    argument_hint: str = ""
    aliases: tuple[str, ...] = ()
    #: Whether it belongs to the CLI itself. Newer CLIs only.
    builtin: bool = False


class AgentInfo(_Part, frozen=True):
    """A subagent that the model can start."""

    name: str = ""
    description: str = ""
    model: str | None = None


class PluginInfo(_Part, frozen=True):
    """A plugin."""

    name: str = ""
    path: str = ""
    source: str | None = None
    version: str | None = None


class PluginReload(Reply, frozen=True):
    """The commands, agents, plugins and MCP servers after plugins were reloaded."""

    commands: tuple[CommandInfo, ...] = ()
    agents: tuple[AgentInfo, ...] = ()
    plugins: tuple[PluginInfo, ...] = ()
    mcp_servers: tuple[McpServerInfo, ...] = field(name="mcpServers", default=())
    error_count: int = 0
    #: Whether the reload was not applied. None unless `hold_on_cache_impact` was set.
    held: bool | None = None
    #: What a held reload would change.
    cache_impact: JsonObject | None = None


class SkillList(Reply, frozen=True):
    """The skills of a session."""

    skills: tuple[CommandInfo, ...] = ()


# ------------------------------------------------------------------------- the conversation


class PromptCancellation(Reply, frozen=True):
    """Whether a queued prompt was cancelled."""

    cancelled: bool = False
    message_uuid: str | None = None


class SessionTitle(Reply, frozen=True):
    """A title for the session. None if the model did not provide one."""

    title: str | None = None


class SideAnswer(Reply, frozen=True):
    """The answer to a question that is not part of the conversation."""

    response: str | None = None
    #: Whether the CLI wrote the answer, not the model.
    synthetic: bool = False


class ConversationExport(Reply, frozen=True):
    """The conversation as text."""

    text: str = ""
    default_filename: str | None = None


class ConversationPlan(Reply, frozen=True):
    """The plan of plan mode."""

    exists: bool = False
    #: The text of the plan.
    content: str | None = None
    path: str | None = None


# ------------------------------------------------------------------------- the session and the CLI


class BinaryVersion(Reply, rename="camel", frozen=True):
    """The version of the CLI."""

    version: str = ""
    build_time: str | None = None


class SessionCost(Reply, frozen=True):
    """The cost of the session as text for people."""

    text: str = ""


class ReportedUsage(_Part, frozen=True):
    """Cost and usage of a session."""

    total_cost_usd: float = 0.0
    total_api_duration_ms: float = 0.0
    total_duration_ms: float = 0.0
    total_lines_added: int = 0
    total_lines_removed: int = 0
    #: Token counts and cost by model, as JSON.
    model_usage: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])


class UsageReport(Reply, frozen=True):
    """Cost and usage of the session, and the limits of the subscription."""

    session: ReportedUsage = field(default_factory=ReportedUsage)
    #: None if an API key is used.
    subscription_type: str | None = None
    rate_limits_available: bool = False
    rate_limits: JsonObject | None = None
    behaviors: JsonObject | None = None


class StatusRow(_Part, frozen=True):
    """One line of the status."""

    label: str = ""
    value: Any = None


class StatusSection(_Part, frozen=True):
    """A section of the status."""

    title: str = ""
    rows: tuple[StatusRow, ...] = ()


class SessionStatus(Reply, frozen=True):
    """The status of the session as the CLI shows it to people."""

    sections: tuple[StatusSection, ...] = ()
