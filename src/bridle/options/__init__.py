"""The option records: `CliOptions` (CLI), `SdkOptions` (Bridle) and `BidirOptions` (sessions).

The body of each class is a table with one row per option: its type, the check of its value, the
channel on which it reaches its reader, and its documentation. Launch planning, precedence, the
documentation and the check of `extra_args` read these tables.

`weakens` marks options that can weaken a gate. The environment cannot set them (see `precedence`).
An option has it if the option can let a tool run for which a callback would have been called, or
can decide in place of a callback: rules and modes that allow, timeouts of callbacks, everything
that can bring settings, flags, agents or plugins, and the version check. Options that choose what
the model does (model, prompts, budgets, tools, servers) do not have it, because their tool calls
pass the gates. Options that only end a session earlier do not have it either. Nor do `cli_path`,
`cwd` and `inherit_env`: PATH, the shell and the environment control the same things.

None means that an option is not set; an empty list is a value. Values are checked and copied when
a record is created. A record checks for contradictions between its own options, `check_session`
for contradictions between two records. This module reads no file and no environment variable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from bridle._records.fields import (
    Channel,
    Field,
    Record,
    always,
    anything,
    boolean,
    callback,
    initialize,
    integer,
    many,
    mapping,
    not_negative,
    option,
    path,
    positive,
    record,
)
from bridle._records.matchers import compile_matcher
from bridle._records.session_store import SessionStore as SessionStore
from bridle.approvals._rules import read_rule
from bridle.errors import OptionsError
from bridle.events import SdkWarning, SessionEvent
from bridle.hooks import Hook, HookCallback, check_hooks
from bridle.options import _checks as forms
from bridle.options._agents import AgentConfig
from bridle.options._checks import Effort, PermissionMode, SettingSource, ThinkingType
from bridle.options._cli_options import GATE_VARIABLES as GATE_VARIABLES
from bridle.options._cli_options import WEAKENING_VARIABLES as WEAKENING_VARIABLES
from bridle.options._cli_options import CliOptions, Json, StrPath, switch
from bridle.options._cli_options import managed_flags as managed_flags
from bridle.permissions import (
    CanUseToolCallback,
    ElicitationCallback,
    PlanCallback,
    QuestionCallback,
    UserDialogCallback,
)
from bridle.telemetry import Telemetry
from bridle.tools import ToolServer

__all__ = [
    "AgentConfig",
    "BidirOptions",
    "CliOptions",
    "Effort",
    "Json",
    "Limits",
    "PermissionMode",
    "Retry",
    "SdkOptions",
    "SettingSource",
    "StrPath",
    "ThinkingType",
]

STDIO = "stdio"
"""Value of `permission_prompt_tool_name` that makes the CLI send permission requests to Bridle."""

_MIB = 1024 * 1024
_SDK = Channel("sdk")


def handler(channel: Channel, doc: str) -> Any:
    """Return the row of an option that takes a callback. A configuration file cannot set it."""
    return option(callback, channel, doc, config=False)


# ---------------------------------------------------------------- Bridle


class Limits(Record):
    """Limits that Bridle enforces on a turn. By default there are none."""

    first_event: float | None = option(
        positive,
        _SDK,
        "Maximum seconds from the prompt to the first message or request of the CLI, such as 30.",
    )
    idle: float | None = option(
        positive,
        _SDK,
        "Maximum seconds without a message or request of the CLI, such as 120. Time in which a "
        "tool or a callback runs does not count.",
    )
    total: float | None = option(positive, _SDK, "Maximum seconds for the whole turn, such as 600.")
    turns: int | None = option(integer(1), _SDK, "Maximum number of model calls in the turn.")
    usd: float | None = option(
        positive,
        _SDK,
        "Maximum cost of the turn in US dollars, including subagents, as reported by the CLI. If "
        "the CLI does not report its cost, the turn ends as `limit_usd`.",
    )


class Retry(Record):
    """How `run` continues after an outcome that is `retryable`.

    The CLI itself repeats failed API requests for some minutes before the turn fails. `Retry` is
    for failures that last longer. Bridle sends a new prompt in the same conversation, which asks
    the model to continue. If the CLI crashed, a new process does that. The prompt then names the
    tool calls without a recorded result. A prompt that is not in the transcript is sent again.
    """

    attempts: int = option(
        integer(1), _SDK, "Number of attempts, including the first one.", default=3
    )
    wait_for_reset: bool = option(
        boolean,
        _SDK,
        "Wait until the rate limit resets, if the API says when. False ends the run instead.",
        default=True,
    )
    max_wait: float = option(
        positive,
        _SDK,
        "Longest wait before an attempt, in seconds. If the rate limit resets only after this "
        "time, the run ends without another attempt.",
        default=600.0,
    )


class SdkOptions(Record):
    """Options that configure Bridle itself. Sessions and queries accept the same ones."""

    max_buffer_size: int = option(
        integer(1024),
        _SDK,
        "Maximum length of a line from the CLI, in bytes. A session drops a longer line with a "
        "warning; a query fails with `BufferOverflow`.",
        default=16 * _MIB,
        weakens=always,  # a hook request in a longer line is not read
    )
    max_unread_bytes: int = option(
        integer(1024),
        _SDK,
        "Bytes of unread messages at which Bridle warns. At four times this size the session ends.",
        default=64 * _MIB,
    )
    control_timeout: float = option(
        positive,
        _SDK,
        "Seconds that an operation waits for the CLI's response.",
        default=30.0,
        env=float,
    )
    init_timeout: float = option(
        positive,
        _SDK,
        "Seconds that the CLI has to complete the handshake.",
        default=60.0,
        env=float,
    )
    limits: Limits = option(
        record(Limits), _SDK, "Limits for each turn, such as Limits(total=600).", default=Limits()
    )
    on_stderr: Callable[[str], object] | None = handler(
        _SDK, "Callback for each line that the CLI writes to stderr."
    )
    on_warning: Callable[[SdkWarning], object] | None = handler(
        _SDK, "Callback for each warning of level info, warning or error."
    )
    skip_version_check: bool = switch(
        _SDK,
        "Start the CLI without checking that its version is supported.",
        weakens=bool,
    )
    permissive_version_check: bool = switch(
        _SDK,
        "If a query cannot read the CLI's version, warn and continue. Default: the query fails.",
        weakens=bool,
    )
    inherit_env: bool | Sequence[str] = option(
        forms.inherit_env,
        Channel("process", "environment"),
        "Environment variables that the CLI inherits: True for all, False for none, or a list of "
        "names.",
        default=True,
    )
    config_file: StrPath | None = option(
        path,
        _SDK,
        "Configuration file to read, such as 'bridle.toml'. Default: the file that the variable "
        "BRIDLE_CONFIG names.",
        config=False,
    )
    runner: object | None = option(
        anything, _SDK, "Replacement for the CLI process of a query, for tests.", config=False
    )
    recorder: object | None = option(
        forms.recorder,
        _SDK,
        "Records everything that Bridle and the CLI send each other: "
        "`bridle.testing.recording.Recorder(path)`.",
        config=False,
    )
    telemetry: Telemetry | None = option(
        forms.telemetry,
        _SDK,
        "Receives observations for spans and metrics, such as `bridle.otel.OpenTelemetry()`.",
        config=False,
    )
    store: SessionStore | None = option(
        forms.store,
        _SDK,
        "Store that gets a copy of every conversation, such as "
        "`bridle.sessions.SqliteStore('sessions.db')`. `resume_session_id` then resumes from it, "
        "on any machine. Objects for the official SDK's store protocol are accepted.",
        config=False,
    )
    load_timeout: float = option(
        positive,
        _SDK,
        "Maximum seconds for loading a conversation from `store`.",
        default=60.0,
    )
    wait: float | None = option(
        not_negative,
        _SDK,
        "Seconds to wait while another session or program uses the conversation. Then "
        "`SessionInUseError` is raised. None raises it at once.",
        config=False,
    )


# ---------------------------------------------------------------- sessions

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
    """Callbacks, in-process tools and other options for two-way communication.

    `run`, `query` and `start_session` accept it.
    """

    on_pre_tool_use: HookCallback | None = handler(
        _HOOKS, "Hook that the CLI calls before every tool call."
    )
    on_post_tool_use: HookCallback | None = handler(
        _HOOKS, "Hook that the CLI calls after every tool call that succeeded."
    )
    on_user_prompt_submit: HookCallback | None = handler(
        _HOOKS, "Hook that the CLI calls before a prompt goes to the model."
    )
    on_stop: HookCallback | None = handler(_HOOKS, "Hook that the CLI calls before a turn ends.")
    on_subagent_stop: HookCallback | None = handler(
        _HOOKS, "Hook that the CLI calls before a subagent ends."
    )
    on_pre_compact: HookCallback | None = handler(
        _HOOKS, "Hook that the CLI calls before it compacts the conversation."
    )
    hooks: Mapping[str, Sequence[Hook]] | None = option(
        mapping(many(forms.hook), key=forms.name),
        _HOOKS,
        "Hooks by event, such as {'PreToolUse': [Hook(check, on_error='block')]}. They run after "
        "the hooks in options such as `on_stop`.",
        config=False,
    )
    parallel_hooks: bool = switch(
        _HOOKS,
        "Let the CLI call all hooks of an event at the same time and combine their results. "
        "Default: Bridle calls them in order, and the first decision wins. With a store or a "
        "retry, or to resume a call that waits for approval, PreToolUse can have one hook.",
    )
    hook_timeouts: Mapping[str, float] | None = option(
        mapping(positive, key=forms.name),
        _SDK,
        "Timeout in seconds for the hooks of an event, such as {'PreToolUse': 5}.",
        weakens=always,
    )
    callback_timeout: float = option(
        positive,
        _SDK,
        "Timeout in seconds for hooks without a `Hook.timeout` and without a value in "
        "`hook_timeouts`.",
        default=60.0,
        env=float,
        weakens=always,
    )
    on_can_use_tool: CanUseToolCallback | None = handler(
        _SDK, "Callback that decides whether a tool may run."
    )
    approve: Sequence[str] | None = option(
        many(read_rule),
        _SDK,
        "Tool calls that wait for a person, such as ['mcp__tools__refund', 'Bash(rm *)']: the turn "
        "ends as `tool_deferred`, and `Agent.resume` decides. A command that Bridle cannot read, "
        "or that runs text or a program in `./`, `../` or `/tmp`, waits, too.",
        weakens=lambda value: not value,
    )
    on_question: QuestionCallback | None = handler(
        _SDK, "Callback that answers the model's AskUserQuestion tool."
    )
    on_plan: PlanCallback | None = handler(
        _SDK, "Callback that approves or denies a plan (the model's ExitPlanMode tool)."
    )
    on_elicitation: ElicitationCallback | None = handler(
        _SDK, "Callback that answers elicitations of MCP servers."
    )
    on_user_dialog: UserDialogCallback | None = handler(
        _SDK,
        "Callback that shows a dialog of the CLI to the user and returns the choice. The CLI sends "
        "only the kinds in `supported_dialog_kinds`.",
    )
    supported_dialog_kinds: Sequence[str] | None = option(
        many(forms.name),
        initialize("supportedDialogKinds"),
        "Kinds of dialogs that `on_user_dialog` can show, such as ['refusal_fallback_prompt'].",
        config=False,
    )
    permission_timeout: float | None = option(
        positive,
        _SDK,
        "Timeout in seconds for `on_can_use_tool`, `on_question`, `on_plan`, `on_elicitation` and "
        "`on_user_dialog`. Default: none, because a person may answer.",
        env=float,
        weakens=always,
    )
    mcp_servers: Mapping[str, object] | Sequence[tuple[str, object]] | None = option(
        forms.mcp_servers,
        initialize("sdkMcpServers"),
        "In-process MCP servers by name, such as {'calc': ToolServer([add])}.",
        config=False,
    )
    file_checkpointing_enabled: bool = switch(
        Channel("variable", "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING"),
        "Save files before they change, so that `rewind_files` can restore them.",
    )
    on_event: Callable[[SessionEvent], object] | None = handler(
        _SDK, "Callback for each session event."
    )
    transport_factory: Callable[..., object] | None = handler(
        _SDK, "Replacement for the CLI process of a session, for tests."
    )

    def _check(self) -> None:
        if self.supported_dialog_kinds and self.on_user_dialog is None:
            fix = "Set on_user_dialog, or remove supported_dialog_kinds."
            raise OptionsError("supported_dialog_kinds", "needs a callback", fix=fix)
        if self.on_user_dialog is not None and not self.supported_dialog_kinds:
            fix = "List the kinds that the callback can show: the CLI sends no others."
            raise OptionsError("on_user_dialog", "needs supported_dialog_kinds", fix=fix)
        if not self.parallel_hooks:
            check_hooks(self.all_hooks())
        elif self.on_can_use_tool or self.on_question or self.on_plan:
            _check_awaited(self.all_hooks().get("PermissionRequest", ()))

    def all_hooks(self) -> dict[str, tuple[Hook, ...]]:
        """Return the hooks by event, in the order in which they run."""
        found: dict[str, tuple[Hook, ...]] = {}
        for event, name in _SINGLE_HOOKS.items():
            if (single := getattr(self, name)) is not None:
                found[event] = (Hook(single),)
        for event, listed in (self.hooks or {}).items():
            if listed:
                found[event] = (*found.get(event, ()), *listed)
        return found

    def defers_calls(self) -> bool:
        """Return True if Bridle itself lets calls wait for approval."""
        return bool(self.approve) or any(one.approving() for one in self.tool_servers().values())

    def server_names(self) -> tuple[str, ...]:
        """Return the names of the in-process MCP servers, in order."""
        return tuple(cast("Mapping[str, object]", self.mcp_servers or {}))

    def tool_servers(self) -> dict[str, ToolServer]:
        """Return the in-process MCP servers that are tool servers, by name and in order."""
        servers = cast("Mapping[str, object]", self.mcp_servers or {})
        return {name: one for name, one in servers.items() if isinstance(one, ToolServer)}


def check_session(cli: CliOptions, bidir: BidirOptions) -> None:
    """Raise OptionsError if the two records contradict each other."""
    has_prompt_tool = cli.permission_prompt_tool_name not in (None, STDIO)
    for name in ("on_can_use_tool", "on_question", "on_plan"):
        if getattr(bidir, name) is None:
            continue
        if has_prompt_tool:
            fix = "The tool would answer in place of the callback. Set only one of them."
            problem = f"cannot be used together with {name}"
            raise OptionsError("permission_prompt_tool_name", problem, fix=fix)
        if cli.permission_prompts in ("none", "cli"):
            fix = "The CLI would never call the callback. Set only one of them."
            problem = f"cannot be {cli.permission_prompts!r} together with {name}"
            raise OptionsError("permission_prompts", problem, fix=fix)
    if isinstance(cli.mcp_config, Mapping):
        configured = cast("dict[str, object]", cli.mcp_config["mcpServers"])
        for name in bidir.server_names():
            if name in configured:
                fix = "Rename one of them: the CLI finds tools by the name of their server."
                problem = f"has a server named {name!r}, and so does mcp_config"
                raise OptionsError("mcp_servers", problem, fix=fix)


def check_store(cli: CliOptions, sdk: SdkOptions) -> None:
    """Raise OptionsError if an option of the CLI prevents copying to the store of the session."""
    if sdk.store is None:
        return
    if cli.no_session_persistence:
        fix = (
            "With it the CLI writes no transcript that Bridle could copy to the store. Remove "
            "no_session_persistence or store."
        )
        raise OptionsError("no_session_persistence", "cannot be used with a store", fix=fix)
    resumed = cli.resume_session_id
    if resumed is not None and not forms.is_uuid(resumed):
        fix = "Use the id of the session: a store does not know titles and paths."
        raise OptionsError("resume_session_id", f"is {resumed!r}, which is not an id", fix=fix)


RECORDS: Mapping[str, type[Record]] = {"cli": CliOptions, "sdk": SdkOptions, "bidir": BidirOptions}


def option_rows() -> list[tuple[str, Field]]:
    """Return every option as a pair: the name of its record, and its row."""
    return [(cls.__name__, row) for cls in RECORDS.values() for row in cls.fields.values()]


def _check_awaited(hooks: Sequence[Hook]) -> None:
    """Check the matchers of hooks that the CLI calls and that an allow has to wait for.

    Raises:
        OptionsError: a matcher is not a Python expression, so Bridle cannot know the tools.
    """
    for hook in hooks:
        try:
            compile_matcher(hook.matcher)
        except ValueError as error:
            problem = f"of PermissionRequest is not valid in Python: {error}"
            fix = "Write the matcher so that Python can read it too."
            raise OptionsError("Hook.matcher", problem, fix=fix) from error
