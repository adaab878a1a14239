"""`CliOptions`: the options that the CLI receives, one table row per option."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypeAlias

from bridle._records.fields import (
    Channel,
    Record,
    always,
    boolean,
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
    text,
)
from bridle.errors import OptionsError
from bridle.options import _checks as forms
from bridle.options._agents import AgentConfig
from bridle.options._agents import agents as check_agents
from bridle.options._checks import Effort, PermissionMode, SettingSource, ThinkingType

StrPath: TypeAlias = str | PathLike[str]
"""A path in the file system: a `str`, or a path object such as `pathlib.Path`."""

Json: TypeAlias = Mapping[str, object]
"""A JSON object, as a mapping."""

GATE_VARIABLES: tuple[str, ...] = ("CLAUDE_CODE_SIMPLE",)
"""Environment variables that stop the CLI from calling the hooks of the program.

Bridle removes them from the environment that the CLI inherits. To find them, every variable that
the binary names was set, on 2.1.325 and 2.1.197, and a test checked whether the CLI still called a
PreToolUse hook and a permission callback. The variables that are new in 2.1.326 and 2.1.327 were
tried there.
"""

WEAKENING_VARIABLES: tuple[str, ...] = (*GATE_VARIABLES, "CLAUDE_CONFIG_DIR", "HOME")
"""Environment variables that disable hooks, or select the user settings that the CLI reads."""

_ASKING_MODES = frozenset({"default", "manual", "plan", "dontAsk"})


def _allows_without_request(mode: str) -> bool:
    """Return whether this mode runs tools for which "default" sends a permission request."""
    return mode not in _ASKING_MODES


def _sets_weakening_variable(env: Mapping[str, str]) -> bool:
    return any(name in env for name in WEAKENING_VARIABLES)


def switch(
    channel: Channel,
    doc: str,
    *,
    env: Callable[[str], object] | None = None,
    weakens: Callable[[Any], bool] | None = None,
) -> Any:
    """Return the row of a boolean option whose default is False."""
    return option(boolean, channel, doc, default=False, env=env, weakens=weakens)


def managed_flags() -> dict[str, str]:
    """Map each CLI flag that has an option to the advice to use that option."""
    return {
        spelling: f"Use the option {row.name}."
        for row in CliOptions.fields.values()
        for spelling in (row.channel.name, *row.channel.also)
        if spelling.startswith("--")
    }


def managed_initialize_fields() -> dict[str, str]:
    """Map each field of the handshake that has an option to the advice to use that option."""
    return {
        row.channel.name: f"Use the option {row.name}."
        for row in CliOptions.fields.values()
        if row.channel.kind == "initialize"
    }


class CliOptions(Record):
    """Options that the CLI receives. Sessions and queries accept the same ones."""

    # model and limits
    model: str | None = option(
        line,
        flag("--model"),
        "Model to use: an alias ('opus', 'sonnet', 'haiku') or a full model name.",
        env=str,
    )
    fallback_model: str | None = option(
        line,
        flag("--fallback-model"),
        "Model to use when `model` is overloaded. Separate several names with commas.",
        env=str,
    )
    max_turns: int | None = option(
        integer(1),
        flag("--max-turns"),
        "Maximum number of model calls for one prompt. A turn that needs more ends as `max_turns`.",
        env=int,
    )
    max_budget_usd: float | None = option(
        positive,
        flag("--max-budget-usd"),
        "Maximum cost of the session in US dollars. The turn that exceeds it ends as `max_budget`.",
        env=float,
    )
    task_budget: int | None = option(
        integer(1),
        flag("--task-budget"),
        "Number of tokens that the model is told to spend on the task. No limit is enforced.",
        env=int,
    )
    effort: Effort | str | None = option(
        forms.name,
        flag("--effort"),
        "Reasoning effort of the model: 'low', 'medium', 'high', 'xhigh' or 'max'.",
        env=str,
    )
    thinking: ThinkingType | str | Json | None = option(
        forms.thinking,
        flag("--thinking", "--thinking-display"),
        "Extended thinking: 'adaptive', 'enabled' or 'disabled'. For a token budget, use a mapping "
        "such as {'type': 'enabled', 'budget_tokens': 4096}. The mapping may also have the key "
        "'display': 'summarized', 'omitted' or 'highlights'.",
    )
    max_thinking_tokens: int | None = option(
        integer(0),
        flag("--max-thinking-tokens"),
        "Token budget for thinking. 0 disables thinking. New programs should use `thinking`.",
        env=int,
    )
    betas: Sequence[str] | None = option(
        many(forms.name), each("--betas"), "Beta headers that the CLI sends to the model API."
    )

    # instructions for the model
    system_prompt: str | Sequence[str] | Callable[[Any], str] | None = option(
        forms.system_prompt,
        initialize("systemPrompt", "--system-prompt"),
        "System prompt that replaces the CLI's own, or a function that gets the `deps` of the "
        "session and returns the text. '' means no system prompt. Bridle calls the function before "
        "each start, on the event loop, so it should return quickly.",
    )
    append_system_prompt: str | Callable[[Any], str] | None = option(
        forms.appended_prompt,
        initialize("appendSystemPrompt", "--append-system-prompt", "--append-system-prompt-file"),
        "Text to add at the end of the system prompt, or a function that gets the `deps` of the "
        "session and returns the text. Bridle calls the function before each start, on the event "
        "loop, so it should return quickly.",
    )
    system_prompt_file: StrPath | None = option(
        path,
        flag("--system-prompt-file"),
        "File that contains the system prompt. The CLI reads it. Use this or `system_prompt`.",
    )
    exclude_dynamic_sections: bool | None = option(
        boolean,
        initialize("excludeDynamicSections", "--exclude-dynamic-system-prompt-sections"),
        "Leave machine-specific sections, such as the working directory, out of the system prompt. "
        "Set it to share a prompt cache between machines.",
    )
    system_prompt_snapshot: bool | None = option(
        boolean,
        initialize("systemPromptSnapshot", "--system-prompt-snapshot"),
        "Store the system prompt with the session, and use the stored one when it is resumed.",
    )
    plan_mode_instructions: str | None = option(
        text,
        initialize("planModeInstructions", "--plan-mode-instructions"),
        "Text that replaces the CLI's description of the plan mode workflow.",
    )
    json_schema: str | Json | None = option(
        json_object,
        initialize("jsonSchema", "--json-schema"),
        "JSON schema for structured output, as a mapping or JSON text.",
    )
    agents: Sequence[AgentConfig] | Mapping[str, AgentConfig | Json] | None = option(
        check_agents,
        initialize("agents", "--agents"),
        "Subagents: a list of `AgentConfig`, or a mapping from name to `AgentConfig`.",
        weakens=always,  # an agent can set a permission mode
    )
    agent: str | None = option(
        line,
        flag("--agent"),
        "Name of the agent to use for the main conversation, for example one from `agents`.",
        weakens=always,
    )
    skills: Sequence[str] | Literal["all"] | None = option(
        forms.skills,
        initialize("skills"),
        "Skills that the model can use: a list of names, or 'all', which is the CLI's default. The "
        "model uses a skill by calling the tool Skill. If the file of the skill sets "
        "`allowed-tools`, this call needs permission.",
    )

    # tools and permissions
    tools: Sequence[str] | Literal["default"] | None = option(
        forms.tools,
        flag("--tools"),
        "Built-in tools that the model can use, such as ['Read', 'Bash']. [] means no "
        "built-in tools. 'default' means the tools that the CLI chooses.",
    )
    allowed_tools: Sequence[str] | None = option(
        many(forms.rule),
        each("--allowedTools", "--allowed-tools"),
        "Rules for tool calls that run without a permission request, such as 'Bash(git log:*)'.",
        weakens=bool,
    )
    disallowed_tools: Sequence[str] | None = option(
        many(forms.rule),
        each("--disallowedTools", "--disallowed-tools"),
        "Rules for tool calls that the CLI always denies, such as 'WebFetch' or 'Bash(rm:*)'.",
    )
    tool_aliases: Mapping[str, str] | None = option(
        mapping(line),
        initialize("toolAliases"),
        "Tools to use in place of built-in ones: a mapping from built-in name to tool name.",
        weakens=always,  # hooks and rules select tools by name
    )
    tool_config: Mapping[str, Json] | None = option(
        forms.tool_config,
        Channel("variable", "CLAUDE_CODE_QUESTION_PREVIEW_FORMAT"),
        "Configuration of built-in tools. {'ask_user_question': {'preview_format': 'html'}} makes "
        "the model add an HTML preview to each choice of a question. 'markdown' is also possible.",
    )
    permission_mode: PermissionMode | str | None = option(
        forms.name,
        flag("--permission-mode"),
        "When the CLI asks for permission: 'default', 'acceptEdits', 'plan', 'dontAsk', 'auto', "
        "'bypassPermissions' or 'manual'.",
        env=str,
        weakens=_allows_without_request,
    )
    permission_prompt_tool_name: str | None = option(
        line,
        flag("--permission-prompt-tool"),
        "MCP tool that answers permission requests in place of `on_can_use_tool`, "
        "such as 'mcp__auth__approve'.",
        weakens=always,
    )
    permission_prompts: Literal["host", "none", "cli"] | None = option(
        one_of("host", "none", "cli"),
        flag("--permission-prompts"),
        "'host' sends permission requests to your callbacks. 'none' denies the tool call instead. "
        "'cli' leaves the answer to the CLI, which denies the call with its own text.",
    )
    allow_dangerously_skip_permissions: bool = switch(
        flag("--allow-dangerously-skip-permissions"),
        "Permit a later switch to the permission mode 'bypassPermissions'.",
        weakens=bool,
    )
    mcp_config: StrPath | Json | None = option(
        forms.mcp_config,
        document("--mcp-config"),
        "MCP servers outside this process: a path, JSON text, or a mapping such as "
        "{'mcpServers': {'files': {'command': 'npx', 'args': ['files-server']}}}.",
    )
    mcp_config_delivery: Literal["file", "initialize"] | None = option(
        one_of("file", "initialize"),
        Channel("process", "a file or initialize"),
        "How a mapping or JSON text in `mcp_config` reaches the CLI: 'file' (the default) writes a "
        "private file, which is removed when the CLI ends. 'initialize' passes the servers in the "
        "handshake, so that nothing is written to disk. This needs CLI 2.1.326 or newer; with an "
        "older one the start fails.",
    )
    strict_mcp_config: bool = switch(
        flag("--strict-mcp-config"),
        "Use only the servers in `mcp_config`, and ignore those in settings files.",
    )

    # which conversation
    session_id: str | None = option(
        forms.uuid,
        flag("--session-id"),
        "UUID for the new session. Default: Bridle generates one.",
    )
    resume_session_id: str | None = option(
        line,
        flag("--resume"),
        "Session to resume, by its id, its title or the path of its transcript.",
    )
    continue_session: bool = switch(
        flag("--continue"), "Resume the most recent session of the working directory."
    )
    fork_session: bool = switch(
        flag("--fork-session"), "Resume a copy of the session, with a new id."
    )
    resume_session_at: str | None = option(
        line,
        flag("--resume-session-at"),
        "UUID of a message. The session is resumed at this message. Later messages are discarded.",
    )
    resume_drops_turn: str | None = option(
        line,
        flag("--resume-drops-turn"),
        "Safety check for `resume_session_at`: UUID of the first prompt that you expect to be "
        "discarded. If the first discarded prompt is another one, the CLI refuses to resume.",
    )
    no_session_persistence: bool = switch(
        flag("--no-session-persistence"),
        "Do not write a transcript. The session cannot be resumed later.",
    )
    title: str | None = option(text, initialize("title"), "Title of the session.")

    # prompts
    verbatim_prompts: bool = switch(
        Channel("prompt", "client_composed"),
        "Send prompts to the model as they are: the CLI runs no slash commands and reads no "
        "`@path` in them. Set it if prompts contain text that other people wrote. For a CLI "
        "before 2.1.248, Bridle adds a last block, `End of the message.`, to each prompt.",
    )

    # output
    include_partial_messages: bool = switch(
        flag("--include-partial-messages"),
        "Get stream events while the model writes. Set it to show text as it arrives.",
        env=forms.truth,
    )
    include_hook_events: bool = switch(
        flag("--include-hook-events"),
        "Get a message when a command hook from the settings starts, writes output or ends.",
    )
    forward_subagent_text: bool = switch(
        initialize("forwardSubagentText", "--forward-subagent-text"),
        "Get the text and thinking of subagents too.",
    )
    prompt_suggestions: bool = switch(
        initialize("promptSuggestions", "--prompt-suggestions"),
        "Get a suggestion for the next prompt after each turn.",
    )
    agent_progress_summaries: bool = switch(
        initialize("agentProgressSummaries"), "Get summaries of what subagents are doing."
    )
    per_task_stop: bool = switch(
        initialize("perTaskStopAffordance"),
        "Keep background subagents running when a turn is interrupted. Set it if your program can "
        "stop each task separately. CLI 2.1.197 ignores it.",
    )
    session_mirror: bool = switch(
        flag("--session-mirror"), "Get the lines of the transcript as messages."
    )
    debug: bool | str = option(
        forms.debug,
        flag("--debug"),
        "Write the CLI's debug log: True for all of it, or the categories to log, such as 'api'.",
        default=False,
    )
    debug_file: StrPath | None = option(
        path, flag("--debug-file"), "File that the CLI's debug log is written to."
    )

    # process and environment
    cli_path: StrPath | None = option(
        path,
        Channel("process", "executable"),
        "Path of the CLI. Default: Bridle searches for it.",
    )
    cwd: StrPath | None = option(
        path,
        Channel("process", "working directory"),
        "Working directory of the CLI. Default: that of this process.",
    )
    add_dirs: Sequence[StrPath] | None = option(
        many(path),
        each("--add-dir"),
        "Additional directories that tools may access, besides `cwd`.",
        merge="append",
        weakens=bool,  # tools read files in these directories without a permission request
    )
    user: str | None = option(
        line,
        Channel("process", "system user"),
        "Name of the system user that the CLI runs as, with the groups and the home directory of "
        "that user. Needs the right to change users, which root has.",
        weakens=always,  # another home directory has other settings
    )
    project_config_root: StrPath | None = option(
        path,
        flag("--project-config-root"),
        "Directory in which the CLI looks for the project configuration.",
        weakens=always,
    )
    env: Mapping[str, str] | None = option(
        mapping(forms.variable_value, key=forms.settable_variable),
        Channel("process", "environment"),
        "Environment variables for the CLI. They override inherited ones (`inherit_env`).",
        merge="deep",
        weakens=_sets_weakening_variable,
    )
    settings: StrPath | Json | None = option(
        json_or_path,
        document("--settings"),
        "Settings of the CLI: a path, JSON text, or a mapping.",
        merge="deep",
        weakens=always,  # permission modes, rules, command hooks and variables
    )
    managed_settings: Json | None = option(
        json_object,
        initialize("managedSettings", "--managed-settings", "--managed-settings-in-initialize"),
        "Policy that other settings cannot override, such as {'permissions': {'deny': ['Bash']}}. "
        "The CLI applies only the restrictions in it. If the administrator of the machine has set "
        "a policy, the CLI ignores this option by default. CLI 2.1.197 does not start if you set "
        "this option.",
        weakens=always,  # they can switch off hooks
    )
    sandbox: Json | None = option(
        json_object,
        Channel("settings", "sandbox"),
        "Sandbox settings, such as {'enabled': True}. They override those in `settings`.",
        weakens=always,  # a sandbox can allow commands without a permission request
    )
    setting_sources: Sequence[SettingSource | str] | None = option(
        many(forms.name),
        flag("--setting-sources"),
        "Settings files to load: 'user', 'project', 'local'. [] means none. Default: all three.",
        weakens=always,  # an omitted file may contain the rule that denies a tool
    )
    plugins: Sequence[StrPath | Json] | None = option(
        many(forms.plugin),
        each("--plugin-dir", "--plugin-dir-no-mcp"),
        "Directories of plugins to load. To ignore the MCP servers of a plugin, use a mapping "
        "such as {'path': 'plugins/x', 'skip_mcp_discovery': True}.",
        weakens=bool,  # the hooks of a plugin can allow a tool
    )
    plugin_delivery: Literal["argv", "initialize"] | None = option(
        one_of("argv", "initialize"),
        Channel("process", "flags or initialize"),
        "How `plugins` reach the CLI: 'argv' (the default) passes one flag for each "
        "plugin. 'initialize' passes them in the handshake, which has no length limit. CLI 2.1.197 "
        "does not start if you set 'initialize'.",
    )
    client_app: str | None = option(
        line,
        Channel("variable", "CLAUDE_AGENT_SDK_CLIENT_APP"),
        "Name and version of your application, such as 'shop/1.2'.",
    )
    extra_args: Sequence[str] | None = option(
        forms.extra_args(managed_flags),
        Channel("process", "arguments"),
        "CLI flags that have no option here, as '--flag', '--flag=value', or '--flag' followed by "
        "its value.",
        merge="append",
        weakens=bool,  # --bare, --dangerously-skip-permissions
    )
    extra_initialize: Json | None = option(
        forms.extra_initialize(managed_initialize_fields),
        Channel("process", "fields of initialize"),
        "Fields of the CLI's initialize request that have no option here, by the names that the "
        "CLI's protocol uses, in camelCase.",
        weakens=bool,
    )

    def _check(self) -> None:
        resumes = self.resume_session_id is not None or self.continue_session
        _check_exclusive(self, "resume_session_id", "continue_session")
        _check_exclusive(self, "system_prompt", "system_prompt_file")
        _check_exclusive(self, "thinking", "max_thinking_tokens")
        if self.fork_session and not resumes:
            fix = "Set resume_session_id or continue_session as well."
            raise OptionsError("fork_session", "needs a session to fork", fix=fix)
        if self.session_id is not None and resumes and not self.fork_session:
            fix = "A resumed session keeps its id. Remove session_id, or set fork_session."
            raise OptionsError("session_id", "cannot change the id of a resumed session", fix=fix)
        if self.resume_session_at is not None and self.resume_session_id is None:
            fix = "Set resume_session_id as well."
            raise OptionsError("resume_session_at", "needs a session to resume", fix=fix)
        if self.resume_drops_turn is not None and self.resume_session_at is None:
            fix = "Set resume_session_at as well."
            raise OptionsError("resume_drops_turn", "needs a message to resume at", fix=fix)
        for row in CliOptions.fields.values():
            name = row.channel.name
            is_variable = row.channel.kind == "variable" and name in (self.env or {})
            if is_variable and self.given().get(row.name) is not None:
                fix = "Set only one of them."
                raise OptionsError(row.name, f"is also set as env[{name!r}]", fix=fix)


def _check_exclusive(options: Record, one: str, other: str) -> None:
    """Raise OptionsError if both fields are set."""
    values = [options.given().get(name) for name in (one, other)]
    if all(value is not None and value is not False for value in values):
        fix = "Set only one of them."
        raise OptionsError(one, f"cannot be used together with {other}", fix=fix)
