"""Types of the keywords that `Agent` and the doors take.

Generated from the option records by tools/build_keywords.py. Do not edit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from bridle._agents import AgentConfig
from bridle._cli_options import Json, StrPath
from bridle._option_checks import Effort, PermissionMode, SettingSource, ThinkingType
from bridle.events import SdkWarning, SessionEvent
from bridle.hooks import Hook, HookCallback
from bridle.options import Limits, SessionStore
from bridle.permissions import (
    CanUseToolCallback,
    ElicitationCallback,
    PlanCallback,
    QuestionCallback,
    UserDialogCallback,
)
from bridle.telemetry import Telemetry
from bridle.tools import Tool


class AgentOptions(TypedDict, total=False):
    """The options of an `Agent`: the fields of the option records by name."""

    model: str | None
    fallback_model: str | None
    max_turns: int | None
    max_budget_usd: float | None
    task_budget: int | None
    effort: Effort | str | None
    thinking: ThinkingType | str | Json | None
    max_thinking_tokens: int | None
    betas: Sequence[str] | None
    system_prompt: str | Sequence[str] | Callable[[Any], str] | None
    append_system_prompt: str | Callable[[Any], str] | None
    system_prompt_file: StrPath | None
    exclude_dynamic_sections: bool | None
    system_prompt_snapshot: bool | None
    plan_mode_instructions: str | None
    json_schema: str | Json | None
    agents: Sequence[AgentConfig] | Mapping[str, AgentConfig | Json] | None
    agent: str | None
    skills: Sequence[str] | Literal["all"] | None
    tools: Sequence[str | Tool[..., Any] | Callable[..., Any]] | Literal["default"] | None
    allowed_tools: Sequence[str] | None
    disallowed_tools: Sequence[str] | None
    tool_aliases: Mapping[str, str] | None
    tool_config: Mapping[str, Json] | None
    permission_mode: PermissionMode | str | None
    permission_prompt_tool_name: str | None
    permission_prompts: Literal["host", "none", "cli"] | None
    allow_dangerously_skip_permissions: bool
    mcp_config: StrPath | Json | None
    mcp_config_delivery: Literal["file", "initialize"] | None
    strict_mcp_config: bool
    no_session_persistence: bool
    title: str | None
    verbatim_prompts: bool
    include_partial_messages: bool
    include_hook_events: bool
    forward_subagent_text: bool
    prompt_suggestions: bool
    agent_progress_summaries: bool
    per_task_stop: bool
    session_mirror: bool
    debug: bool | str
    debug_file: StrPath | None
    cli_path: StrPath | None
    cwd: StrPath | None
    add_dirs: Sequence[StrPath] | None
    user: str | None
    project_config_root: StrPath | None
    env: Mapping[str, str] | None
    settings: StrPath | Json | None
    managed_settings: Json | None
    sandbox: Json | None
    setting_sources: Sequence[SettingSource | str] | None
    plugins: Sequence[StrPath | Json] | None
    plugin_delivery: Literal["argv", "initialize"] | None
    client_app: str | None
    extra_args: Sequence[str] | None
    extra_initialize: Json | None
    max_buffer_size: int
    max_unread_bytes: int
    control_timeout: float
    init_timeout: float
    limits: Limits
    on_stderr: Callable[[str], object] | None
    on_warning: Callable[[SdkWarning], object] | None
    skip_version_check: bool
    permissive_version_check: bool
    inherit_env: bool | Sequence[str]
    config_file: StrPath | None
    runner: object | None
    recorder: object | None
    telemetry: Telemetry | None
    store: SessionStore | None
    load_timeout: float
    on_pre_tool_use: HookCallback | None
    on_post_tool_use: HookCallback | None
    on_user_prompt_submit: HookCallback | None
    on_stop: HookCallback | None
    on_subagent_stop: HookCallback | None
    on_pre_compact: HookCallback | None
    hooks: Mapping[str, Sequence[Hook]] | None
    parallel_hooks: bool
    hook_timeouts: Mapping[str, float] | None
    callback_timeout: float
    on_can_use_tool: CanUseToolCallback | None
    approve: Sequence[str] | None
    on_question: QuestionCallback | None
    on_plan: PlanCallback | None
    on_elicitation: ElicitationCallback | None
    on_user_dialog: UserDialogCallback | None
    supported_dialog_kinds: Sequence[str] | None
    permission_timeout: float | None
    mcp_servers: Mapping[str, object] | Sequence[tuple[str, object]] | None
    file_checkpointing_enabled: bool
    on_event: Callable[[SessionEvent], object] | None
    transport_factory: Callable[..., object] | None


class AgentChanges(TypedDict, total=False):
    """The changes of `Agent.replace`: the options of an agent. None unsets one."""

    model: str | None
    fallback_model: str | None
    max_turns: int | None
    max_budget_usd: float | None
    task_budget: int | None
    effort: Effort | str | None
    thinking: ThinkingType | str | Json | None
    max_thinking_tokens: int | None
    betas: Sequence[str] | None
    system_prompt: str | Sequence[str] | Callable[[Any], str] | None
    append_system_prompt: str | Callable[[Any], str] | None
    system_prompt_file: StrPath | None
    exclude_dynamic_sections: bool | None
    system_prompt_snapshot: bool | None
    plan_mode_instructions: str | None
    json_schema: str | Json | None
    agents: Sequence[AgentConfig] | Mapping[str, AgentConfig | Json] | None
    agent: str | None
    skills: Sequence[str] | Literal["all"] | None
    tools: Sequence[str | Tool[..., Any] | Callable[..., Any]] | Literal["default"] | None
    allowed_tools: Sequence[str] | None
    disallowed_tools: Sequence[str] | None
    tool_aliases: Mapping[str, str] | None
    tool_config: Mapping[str, Json] | None
    permission_mode: PermissionMode | str | None
    permission_prompt_tool_name: str | None
    permission_prompts: Literal["host", "none", "cli"] | None
    allow_dangerously_skip_permissions: bool | None
    mcp_config: StrPath | Json | None
    mcp_config_delivery: Literal["file", "initialize"] | None
    strict_mcp_config: bool | None
    no_session_persistence: bool | None
    title: str | None
    verbatim_prompts: bool | None
    include_partial_messages: bool | None
    include_hook_events: bool | None
    forward_subagent_text: bool | None
    prompt_suggestions: bool | None
    agent_progress_summaries: bool | None
    per_task_stop: bool | None
    session_mirror: bool | None
    debug: bool | str | None
    debug_file: StrPath | None
    cli_path: StrPath | None
    cwd: StrPath | None
    add_dirs: Sequence[StrPath] | None
    user: str | None
    project_config_root: StrPath | None
    env: Mapping[str, str] | None
    settings: StrPath | Json | None
    managed_settings: Json | None
    sandbox: Json | None
    setting_sources: Sequence[SettingSource | str] | None
    plugins: Sequence[StrPath | Json] | None
    plugin_delivery: Literal["argv", "initialize"] | None
    client_app: str | None
    extra_args: Sequence[str] | None
    extra_initialize: Json | None
    max_buffer_size: int | None
    max_unread_bytes: int | None
    control_timeout: float | None
    init_timeout: float | None
    limits: Limits | None
    on_stderr: Callable[[str], object] | None
    on_warning: Callable[[SdkWarning], object] | None
    skip_version_check: bool | None
    permissive_version_check: bool | None
    inherit_env: bool | Sequence[str] | None
    config_file: StrPath | None
    runner: object | None
    recorder: object | None
    telemetry: Telemetry | None
    store: SessionStore | None
    load_timeout: float | None
    on_pre_tool_use: HookCallback | None
    on_post_tool_use: HookCallback | None
    on_user_prompt_submit: HookCallback | None
    on_stop: HookCallback | None
    on_subagent_stop: HookCallback | None
    on_pre_compact: HookCallback | None
    hooks: Mapping[str, Sequence[Hook]] | None
    parallel_hooks: bool | None
    hook_timeouts: Mapping[str, float] | None
    callback_timeout: float | None
    on_can_use_tool: CanUseToolCallback | None
    approve: Sequence[str] | None
    on_question: QuestionCallback | None
    on_plan: PlanCallback | None
    on_elicitation: ElicitationCallback | None
    on_user_dialog: UserDialogCallback | None
    supported_dialog_kinds: Sequence[str] | None
    permission_timeout: float | None
    mcp_servers: Mapping[str, object] | Sequence[tuple[str, object]] | None
    file_checkpointing_enabled: bool | None
    on_event: Callable[[SessionEvent], object] | None
    transport_factory: Callable[..., object] | None


class ConversationOptions(TypedDict, total=False):
    """The options that choose a conversation. None counts as not given."""

    session_id: str | None
    resume_session_id: str | None
    continue_session: bool | None
    fork_session: bool | None
    resume_session_at: str | None
    resume_drops_turn: str | None
    wait: float | None


class Options(AgentOptions, ConversationOptions, total=False):
    """All options by name, for the calls that are not methods of an agent."""
