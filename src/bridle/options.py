"""The option records: what a caller can say, where each thing goes, and what is refused.

Every class body below is a table, one row per option: its type, the check of its value, its
channel to the reader, one line of documentation. Launch planning, precedence, the documentation
and the check of `extra_args` all read these tables; an option is spelled in one place.

`weakens` marks what can weaken a gate, so that the environment cannot say it (see `precedence`).
It stands on every option that lets a tool run which a callback of the program would have been asked
about, or that decides for a callback: rules and modes that allow, timeouts of callbacks, whatever
brings settings, flags, agents or plugins that could do the same, and the version check. It is
absent from options that choose what the model does (model, prompts, budgets, tools, servers: their
tool calls pass the gates), that only end a session earlier, and from `cli_path`, `cwd` and
`inherit_env`: without them PATH, the shell and the environment decide the same thing.

Rules: None is "not said" and an empty list is "said: none"; values are checked and copied when a
record is made; contradictions inside a record are refused there too, those between records by
`check_session`. Nothing here reads a file or the environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypeAlias, cast

from bridle import _forms as forms
from bridle._agents import AgentConfig
from bridle._agents import agents as check_agents
from bridle._fields import (
    Channel,
    Field,
    Record,
    always,
    anything,
    boolean,
    callback,
    document,
    each,
    flag,
    initialize,
    integer,
    json_object,
    json_or_path,
    line,
    many,
    mapping,
    one_of,
    option,
    path,
    positive,
    record,
    text,
)
from bridle._forms import Effort, PermissionMode, SettingSource
from bridle.errors import OptionsError
from bridle.events import SdkWarning, SessionEvent
from bridle.hooks import Hook, HookCallback
from bridle.permissions import (
    CanUseToolCallback,
    ElicitationCallback,
    PlanCallback,
    QuestionCallback,
)
from bridle.telemetry import Telemetry

__all__ = [
    "AgentConfig",
    "BidirOptions",
    "CliOptions",
    "Effort",
    "Json",
    "Limits",
    "PermissionMode",
    "SdkOptions",
    "SettingSource",
    "StrPath",
]

StrPath: TypeAlias = str | PathLike[str]
"""A path in the file system."""

Json: TypeAlias = Mapping[str, object]
"""A JSON object."""

STDIO = "stdio"  # the CLI's name for "ask over the pipe" where an MCP tool could stand
_MIB = 1024 * 1024
_SDK = Channel("sdk")

GATE_VARIABLES: tuple[str, ...] = ("CLAUDE_CODE_SIMPLE",)
"""Variables with which a CLI starts but calls no hook of the program.

The CLI inherits none of them. Found by setting, on 2.1.325 and 2.1.197, every variable that the
binary names and looking whether a PreToolUse hook and a permission callback were still called.
"""

_ASKING_MODES = frozenset({"default", "manual", "plan", "dontAsk"})


def _allows_unasked(mode: str) -> bool:
    """Whether tools run in this permission mode that the program would have been asked about."""
    return mode not in _ASKING_MODES


WEAKENING_VARIABLES: tuple[str, ...] = (*GATE_VARIABLES, "CLAUDE_CONFIG_DIR", "HOME")
"""Variables that switch hooks off, or choose the user settings that the CLI reads."""


def _sets_weakening_variable(env: Mapping[str, str]) -> bool:
    return any(name in env for name in WEAKENING_VARIABLES)


def switch(
    channel: Channel,
    doc: str,
    *,
    env: Callable[[str], object] | None = None,
    weakens: Callable[[Any], bool] | None = None,
) -> Any:
    """A row for something that is off unless said."""
    return option(boolean, channel, doc, default=False, env=env, weakens=weakens)


def handler(channel: Channel, doc: str) -> Any:
    """A row for a function of the caller's, which no file can name."""
    return option(callback, channel, doc, config=False)


def managed_flags() -> dict[str, str]:
    """The flags that have an option, and its name."""
    return {
        spelling: f"Use {row.name}."
        for row in CliOptions.fields.values()
        for spelling in (row.channel.name, *row.channel.also)
        if spelling.startswith("--")
    }


# ---------------------------------------------------------------- what reaches the CLI


class CliOptions(Record):
    """What reaches the CLI. Sessions and queries take it alike."""

    # the model and its limits
    model: str | None = option(
        line, flag("--model"), "Alias (opus, sonnet, haiku) or full name of the model.", env=str
    )
    fallback_model: str | None = option(
        line, flag("--fallback-model"), "Used when the model is overloaded; a comma list.", env=str
    )
    max_turns: int | None = option(
        integer(1), flag("--max-turns"), "Model calls before the CLI gives up a prompt.", env=int
    )
    max_budget_usd: float | None = option(
        positive, flag("--max-budget-usd"), "Dollars before the CLI gives up.", env=float
    )
    task_budget: int | None = option(
        integer(1), flag("--task-budget"), "Tokens the model is told it has for the task.", env=int
    )
    effort: Effort | None = option(
        forms.effort, flag("--effort"), "How hard the model works.", env=str
    )
    thinking: Literal["adaptive", "enabled", "disabled"] | Json | None = option(
        forms.thinking,
        flag("--thinking", "--thinking-display"),
        "How it thinks: a word, or a mapping of type, budget_tokens, display.",
    )
    max_thinking_tokens: int | None = option(
        integer(0), flag("--max-thinking-tokens"), "Thinking budget; 0 turns it off.", env=int
    )
    betas: Sequence[str] | None = option(many(forms.name), each("--betas"), "Beta headers to send.")

    # what the model is told
    system_prompt: str | Sequence[str] | None = option(
        forms.system_prompt,
        initialize("systemPrompt", "--system-prompt"),
        "Replaces the CLI's system prompt; '' for none.",
    )
    append_system_prompt: str | None = option(
        text,
        initialize("appendSystemPrompt", "--append-system-prompt", "--append-system-prompt-file"),
        "Added at the end of the system prompt.",
    )
    system_prompt_file: StrPath | None = option(
        path, flag("--system-prompt-file"), "The system prompt, from a file the CLI reads."
    )
    exclude_dynamic_sections: bool | None = option(
        boolean,
        initialize("excludeDynamicSections", "--exclude-dynamic-system-prompt-sections"),
        "Keep what differs per machine out of the system prompt.",
    )
    system_prompt_snapshot: bool | None = option(
        boolean,
        initialize("systemPromptSnapshot", "--system-prompt-snapshot"),
        "Record the system prompt once and reuse it on resume.",
    )
    plan_mode_instructions: str | None = option(
        text,
        initialize("planModeInstructions", "--plan-mode-instructions"),
        "Replaces the workflow part of plan mode.",
    )
    json_schema: str | Json | None = option(
        json_object,
        initialize("jsonSchema", "--json-schema"),
        "Schema of the answer: a mapping or JSON text.",
    )
    agents: Sequence[AgentConfig] | Mapping[str, AgentConfig | Json] | None = option(
        check_agents,
        initialize("agents", "--agents"),
        "Subagents: a list, or a mapping from their names.",
        weakens=always,  # an agent can bring a permission mode
    )
    agent: str | None = option(
        line, flag("--agent"), "The agent that leads the session.", weakens=always
    )
    skills: Sequence[str] | None = option(
        many(line), initialize("skills"), "Skills in sight; using them is a permission of its own."
    )

    # tools and permissions
    tools: Sequence[str] | Literal["default"] | None = option(
        forms.tools, flag("--tools"), "Built-in tools there are; [] for none."
    )
    allowed_tools: Sequence[str] | None = option(
        many(forms.rule),
        each("--allowedTools", "--allowed-tools"),
        "Rules for what runs unasked.",
        weakens=bool,
    )
    disallowed_tools: Sequence[str] | None = option(
        many(forms.rule),
        each("--disallowedTools", "--disallowed-tools"),
        "Rules for what never runs.",
    )
    tool_aliases: Mapping[str, str] | None = option(
        mapping(line),
        initialize("toolAliases"),
        "Other tools to take for built-in names.",
        weakens=always,  # guards go by the names of tools
    )
    permission_mode: PermissionMode | None = option(
        forms.permission_mode,
        flag("--permission-mode"),
        "When the CLI asks for permission: 'default', 'plan', 'acceptEdits', and so on.",
        env=str,
        weakens=_allows_unasked,
    )
    permission_prompt_tool_name: str | None = option(
        line,
        flag("--permission-prompt-tool"),
        "An MCP tool that answers instead of your code.",
        weakens=always,
    )
    permission_prompts: Literal["host", "none"] | None = option(
        one_of("host", "none"), flag("--permission-prompts"), "'none': deny instead of asking."
    )
    allow_dangerously_skip_permissions: bool = switch(
        flag("--allow-dangerously-skip-permissions"),
        "Let the session switch to bypassPermissions later.",
        weakens=bool,
    )
    mcp_config: StrPath | Json | None = option(
        forms.mcp_config, document("--mcp-config"), "MCP servers: a path, JSON text or a mapping."
    )
    strict_mcp_config: bool = switch(flag("--strict-mcp-config"), "Only those servers.")

    # which conversation
    session_id: str | None = option(
        forms.uuid, flag("--session-id"), "The id of the new session; Bridle makes one if not said."
    )
    resume_session_id: str | None = option(
        line, flag("--resume"), "Go on with this session (id or title)."
    )
    continue_session: bool = switch(
        flag("--continue"), "Go on with the directory's latest session."
    )
    fork_session: bool = switch(flag("--fork-session"), "Resume as a copy with a new id.")
    resume_session_at: str | None = option(
        line, flag("--resume-session-at"), "Resume up to this message only."
    )
    resume_drops_turn: str | None = option(
        line, flag("--resume-drops-turn"), "The turn a resume at a message leaves out."
    )
    no_session_persistence: bool = switch(flag("--no-session-persistence"), "Write no transcript.")
    title: str | None = option(text, initialize("title"), "The session's title.")

    # what comes back
    include_partial_messages: bool = switch(
        flag("--include-partial-messages"), "Stream events while the model writes.", env=forms.truth
    )
    include_hook_events: bool = switch(
        flag("--include-hook-events"), "Messages about hooks at work."
    )
    forward_subagent_text: bool = switch(
        initialize("forwardSubagentText", "--forward-subagent-text"),
        "Text and thinking of subagents too.",
    )
    prompt_suggestions: bool = switch(
        initialize("promptSuggestions", "--prompt-suggestions"),
        "A guess at the next prompt after each turn.",
    )
    agent_progress_summaries: bool = switch(
        initialize("agentProgressSummaries"), "What subagents are doing."
    )
    session_mirror: bool = switch(flag("--session-mirror"), "The transcript's lines as messages.")
    debug: bool | str = option(
        forms.debug, flag("--debug"), "Debug log of the CLI, or its categories.", default=False
    )
    debug_file: StrPath | None = option(path, flag("--debug-file"), "Where that log goes.")

    # where it runs and what it finds there
    cli_path: StrPath | None = option(
        path, Channel("process", "executable"), "The CLI; found by itself when not said."
    )
    cwd: StrPath | None = option(
        path, Channel("process", "working directory"), "Where the CLI works."
    )
    add_dirs: Sequence[StrPath] | None = option(
        many(path),
        each("--add-dir"),
        "More directories its tools may enter.",
        merge="append",
        weakens=bool,  # files in there are read unasked
    )
    project_config_root: StrPath | None = option(
        path,
        flag("--project-config-root"),
        "Where project configuration is looked for.",
        weakens=always,
    )
    env: Mapping[str, str] | None = option(
        mapping(forms.variable_value, key=forms.settable_variable),
        Channel("process", "environment"),
        "Variables of the CLI, over those it inherits.",
        merge="deep",
        weakens=_sets_weakening_variable,
    )
    settings: StrPath | Json | None = option(
        json_or_path,
        document("--settings"),
        "Settings: a path, JSON text or a mapping.",
        merge="deep",
        weakens=always,  # modes, rules, command hooks and variables
    )
    sandbox: Json | None = option(
        json_object,
        Channel("settings", "sandbox"),
        "Sandbox settings, over those in `settings`.",
        weakens=always,  # commands in a sandbox can be allowed unasked
    )
    setting_sources: Sequence[SettingSource] | None = option(
        many(forms.setting_source),
        flag("--setting-sources"),
        "Settings files to load; [] for none.",
        weakens=always,  # a file that is left out may be the one that denies
    )
    plugins: Sequence[StrPath | Json] | None = option(
        many(forms.plugin),
        each("--plugin-dir", "--plugin-dir-no-mcp"),
        "Directories of plugins.",
        weakens=bool,  # their hooks can allow
    )
    client_app: str | None = option(
        line,
        Channel("variable", "CLAUDE_AGENT_SDK_CLIENT_APP"),
        "Your application, as name/version.",
    )
    extra_args: Sequence[str] | None = option(
        forms.extra_args(managed_flags),
        Channel("process", "arguments"),
        "Further flags of the CLI, as --flag, --flag=value or --flag followed by its value.",
        merge="append",
        weakens=bool,  # --bare, --dangerously-skip-permissions
    )

    def _check(self) -> None:
        resumes = self.resume_session_id is not None or self.continue_session
        _refuse_together(self, "resume_session_id", "continue_session")
        _refuse_together(self, "system_prompt", "system_prompt_file")
        _refuse_together(self, "thinking", "max_thinking_tokens")
        if self.fork_session and not resumes:
            fix = "Set resume_session_id or continue_session as well."
            raise OptionsError("fork_session", "has nothing to fork", fix=fix)
        if self.session_id is not None and resumes and not self.fork_session:
            fix = "A resumed session keeps its id: leave session_id out, or set fork_session."
            raise OptionsError("session_id", "cannot rename a resumed session", fix=fix)
        if self.resume_session_at is not None and self.resume_session_id is None:
            fix = "Set resume_session_id as well."
            raise OptionsError("resume_session_at", "has no session to resume", fix=fix)
        if self.resume_drops_turn is not None and self.resume_session_at is None:
            fix = "Set resume_session_at as well."
            raise OptionsError("resume_drops_turn", "has no place to resume at", fix=fix)
        name = CliOptions.fields["client_app"].channel.name
        if self.client_app is not None and name in (self.env or {}):
            raise OptionsError("client_app", f"is also set as env[{name!r}]", fix="Use one.")


def _refuse_together(options: Record, one: str, other: str) -> None:
    """Two fields that answer the same question: saying both is a mistake."""
    said = [options.given().get(name) for name in (one, other)]
    if all(value is not None and value is not False for value in said):
        raise OptionsError(one, f"cannot be used together with {other}", fix="Choose one of them.")


# ---------------------------------------------------------------- how Bridle behaves


class Limits(Record):
    """Limits Bridle itself enforces on a turn. Everything is off unless said."""

    first_event: float | None = option(positive, _SDK, "Seconds until the first sign of life.")
    idle: float | None = option(positive, _SDK, "Seconds between two signs of life.")
    total: float | None = option(positive, _SDK, "Seconds for the whole turn.")
    turns: int | None = option(integer(1), _SDK, "Model calls.")
    usd: float | None = option(
        positive,
        _SDK,
        "Dollars of model calls, those of subagents included, by the CLI's own account.",
    )


class SdkOptions(Record):
    """How Bridle behaves, for sessions and queries alike."""

    max_buffer_size: int = option(
        integer(1024),
        _SDK,
        "Longest line read from the CLI, in bytes.",
        default=16 * _MIB,
        weakens=always,  # a hook request that is longer is not read
    )
    max_unread_bytes: int = option(
        integer(1024),
        _SDK,
        "Unread messages before a warning; four times that ends the session.",
        default=64 * _MIB,
    )
    control_timeout: float = option(
        positive, _SDK, "Seconds an operation waits for its answer.", default=30.0, env=float
    )
    init_timeout: float = option(
        positive, _SDK, "Seconds the CLI has for the handshake.", default=60.0, env=float
    )
    limits: Limits = option(record(Limits), _SDK, "Limits of a turn.", default=Limits())
    on_stderr: Callable[[str], object] | None = handler(
        _SDK, "Called with every line of the CLI's stderr."
    )
    on_warning: Callable[[SdkWarning], object] | None = handler(
        _SDK, "Called with every warning of level info, warning or error."
    )
    skip_version_check: bool = switch(_SDK, "Do not ask for the CLI's version.", weakens=bool)
    permissive_version_check: bool = switch(
        _SDK,
        "Let a query go on, with a warning, when the CLI's version is not known.",
        weakens=bool,
    )
    inherit_env: bool | Sequence[str] = option(
        forms.inherit_env,
        Channel("process", "environment"),
        "Variables the CLI inherits: all, none, or these names.",
        default=True,
    )
    config_file: StrPath | None = option(
        path, _SDK, "The configuration file to read.", config=False
    )
    runner: object | None = option(
        anything, _SDK, "Takes the place of the CLI in queries, for tests.", config=False
    )
    recorder: object | None = option(
        forms.recorder, _SDK, "Takes down all that passes between us and the CLI.", config=False
    )
    telemetry: Telemetry | None = option(
        forms.telemetry, _SDK, "Observes what happens: spans, metrics.", config=False
    )


# ---------------------------------------------------------------- what only a session can do

_SINGLE_HOOKS = {
    "PreToolUse": "on_pre_tool_use",
    "PostToolUse": "on_post_tool_use",
    "UserPromptSubmit": "on_user_prompt_submit",
    "Stop": "on_stop",
    "SubagentStop": "on_subagent_stop",
    "PreCompact": "on_pre_compact",
}
_HOOKS = initialize("hooks")


class BidirOptions(Record):
    """What only a session can do: your code answers while the CLI works."""

    on_pre_tool_use: HookCallback | None = handler(_HOOKS, "Before every tool call.")
    on_post_tool_use: HookCallback | None = handler(_HOOKS, "After every tool call.")
    on_user_prompt_submit: HookCallback | None = handler(_HOOKS, "Before a prompt is taken.")
    on_stop: HookCallback | None = handler(_HOOKS, "Before a turn ends.")
    on_subagent_stop: HookCallback | None = handler(_HOOKS, "Before a subagent ends.")
    on_pre_compact: HookCallback | None = handler(_HOOKS, "Before the conversation is compacted.")
    hooks: Mapping[str, Sequence[Hook]] | None = option(
        mapping(many(forms.hook), key=forms.hook_event),
        _HOOKS,
        "Hooks by event, after the ones above.",
        config=False,
    )
    hook_timeouts: Mapping[str, float] | None = option(
        mapping(positive, key=forms.hook_event),
        _SDK,
        "Seconds for the hooks of an event.",
        weakens=always,
    )
    callback_timeout: float = option(
        positive,
        _SDK,
        "Seconds for a hook without its own.",
        default=60.0,
        env=float,
        weakens=always,
    )
    on_can_use_tool: CanUseToolCallback | None = handler(_SDK, "Decides whether a tool may run.")
    on_question: QuestionCallback | None = handler(_SDK, "Answers questions of the model.")
    on_plan: PlanCallback | None = handler(_SDK, "Decides about a plan.")
    on_elicitation: ElicitationCallback | None = handler(_SDK, "Answers what an MCP server asks.")
    permission_timeout: float | None = option(
        positive,
        _SDK,
        "Seconds for those four; people take their time, so none by default.",
        env=float,
        weakens=always,
    )
    mcp_servers: Mapping[str, object] | Sequence[tuple[str, object]] | None = option(
        forms.mcp_servers,
        initialize("sdkMcpServers"),
        "Servers in this process, by name.",
        config=False,
    )
    file_checkpointing_enabled: bool = switch(
        Channel("variable", "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING"),
        "Keep what rewind_files needs.",
    )
    on_event: Callable[[SessionEvent], object] | None = handler(
        _SDK, "Called with every session event."
    )
    transport_factory: Callable[..., object] | None = handler(
        _SDK, "Takes the place of the process, for tests."
    )

    def all_hooks(self) -> dict[str, tuple[Hook, ...]]:
        """Hooks by event in the order they run: the single callback first, then the list."""
        found: dict[str, tuple[Hook, ...]] = {}
        for event, name in _SINGLE_HOOKS.items():
            if (single := getattr(self, name)) is not None:
                found[event] = (Hook(single),)
        for event, listed in (self.hooks or {}).items():
            if listed:
                found[event] = (*found.get(event, ()), *listed)
        return found

    def server_names(self) -> tuple[str, ...]:
        """The names of the servers in this process, in order."""
        return tuple(cast("Mapping[str, object]", self.mcp_servers or {}))


def check_session(cli: CliOptions, bidir: BidirOptions) -> None:
    """Refuse what contradicts itself between the two records."""
    elsewhere = cli.permission_prompt_tool_name not in (None, STDIO)
    for name in ("on_can_use_tool", "on_question", "on_plan"):
        if getattr(bidir, name) is None:
            continue
        if elsewhere:
            fix = f"Permissions are answered in one place: leave out this one or {name}."
            raise OptionsError("permission_prompt_tool_name", f"stands beside {name}", fix=fix)
        if cli.permission_prompts == "none":
            fix = f"Nobody would ask {name}: leave one of them out."
            raise OptionsError("permission_prompts", f"is 'none' beside {name}", fix=fix)
    if isinstance(cli.mcp_config, Mapping):
        configured = cast("dict[str, object]", cli.mcp_config["mcpServers"])
        for name in bidir.server_names():
            if name in configured:
                fix = "Rename one of them: tools are found by their server's name."
                raise OptionsError("mcp_servers", f"has {name!r}, as mcp_config has", fix=fix)


RECORDS: Mapping[str, type[Record]] = {"cli": CliOptions, "sdk": SdkOptions, "bidir": BidirOptions}


def option_rows() -> list[tuple[str, Field]]:
    """The whole table, for the documentation: the record's class name and the row."""
    return [(cls.__name__, row) for cls in RECORDS.values() for row in cls.fields.values()]
