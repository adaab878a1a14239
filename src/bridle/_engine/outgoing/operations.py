"""The table of control operations, and the check of their fields before anything is written.

Each row has the subtype on the wire, the method of a session that sends it, the class of the reply
and the checks of the fields. The methods are in `bridle.operations`.

Older CLIs do not answer a request with invalid fields: their reader fails and the process hangs
until it is killed. So an invalid request is never sent. Subtypes without a row are not checked,
because the CLI supports many more and new ones are added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Generic, NamedTuple, TypeVar

from bridle import controls
from bridle._records.fields import is_mapping, positive
from bridle.errors import OptionsError
from bridle.options._checks import PERMISSION_MODES
from bridle.options._cli_options import GATE_VARIABLES
from bridle.options._unknown_values import unknown_value

Check = Callable[[object], bool]

Result = TypeVar("Result")

_MISSING = object()  # fails every check


class Field(NamedTuple):
    """One field of an operation: the check of its value, and the text for a failed check."""

    name: str
    is_valid: Check
    expected: str
    required: bool = True


class Operation(NamedTuple, Generic[Result]):
    """A control operation with a typed method."""

    #: The name on the wire.
    subtype: str
    #: The method of a session that sends it, such as `mcp.status`.
    method: str
    #: The class of the reply. NoneType if the CLI only acknowledges the request.
    reply: type[Result]
    fields: tuple[Field, ...] = ()
    #: The default timeout is `control_timeout` times this factor.
    timeout_factor: int = 1
    #: Whether the session has the same options afterwards.
    keeps_options: bool = False


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_any_text(value: object) -> bool:
    return isinstance(value, str)


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_model(value: object) -> bool:
    return value is None or _is_text(value)


def _is_token_count(value: object) -> bool:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value is None or is_count


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_subscriber_flag(value: object) -> bool:
    return value is None or _is_flag(value)


def _text(name: str, *, required: bool = True) -> Field:
    return Field(name, _is_text, "a non-empty string", required)


def _any_text(name: str) -> Field:
    return Field(name, _is_any_text, "a string")


def _mapping(name: str, *, required: bool = True) -> Field:
    return Field(name, _is_mapping, "a mapping", required)


def _flag(name: str, *, required: bool = True) -> Field:
    return Field(name, _is_flag, "True or False", required)


INTERRUPT = Operation(
    "interrupt",
    "interrupt",
    NoneType,
    (_flag("cancel_queued", required=False),),
    keeps_options=True,
)
SET_MODEL = Operation(
    "set_model",
    "set_model",
    NoneType,
    (Field("model", _is_model, "a model name, or None for the default"),),
)
SET_PERMISSION_MODE = Operation(
    "set_permission_mode",
    "set_permission_mode",
    NoneType,
    (Field("mode", _is_text, f"a permission mode, such as {', '.join(PERMISSION_MODES)}"),),
)

MCP_STATUS = Operation("mcp_status", "mcp.status", controls.McpServerList, keeps_options=True)
MCP_RECONNECT = Operation(
    "mcp_reconnect", "mcp.reconnect", NoneType, (_text("serverName"),), timeout_factor=2
)
MCP_TOGGLE = Operation(
    "mcp_toggle", "mcp.toggle", NoneType, (_text("serverName"), _flag("enabled")), timeout_factor=2
)
MCP_SET_SERVERS = Operation(
    "mcp_set_servers",
    "mcp.set_servers",
    controls.McpServerChanges,
    (_mapping("servers"),),
    timeout_factor=2,
)
MCP_CALL = Operation(
    "mcp_call",
    "mcp.call",
    controls.McpCallResult,
    (_text("tool"), _mapping("arguments", required=False)),
    timeout_factor=4,
    keeps_options=True,
)
MCP_MESSAGE = Operation(
    "mcp_message",
    "mcp.notify",
    NoneType,
    (_text("server_name"), _mapping("message")),
    keeps_options=True,
)
MCP_READ_RESOURCE = Operation(
    "mcp_read_resource",
    "mcp.read_resource",
    controls.McpResource,
    (_text("serverName"), _text("uri")),
    keeps_options=True,
)

STOP_TASK = Operation("stop_task", "tasks.stop", NoneType, (_text("task_id"),), keeps_options=True)
GET_TASK_OUTPUT = Operation(
    "get_task_output", "tasks.output", controls.TaskOutput, (_text("task_id"),), keeps_options=True
)
BACKGROUND_TASKS = Operation(
    "background_tasks",
    "tasks.background",
    NoneType,
    (_text("tool_use_id", required=False),),
    keeps_options=True,
)

GET_CONTEXT_USAGE = Operation(
    "get_context_usage",
    "context.usage",
    controls.ContextUsage,
    (_text("detail", required=False),),
    timeout_factor=2,
    keeps_options=True,
)

LIST_MODELS = Operation("list_models", "models.list", controls.ModelList, keeps_options=True)
SET_MAX_THINKING_TOKENS = Operation(
    "set_max_thinking_tokens",
    "models.set_max_thinking_tokens",
    NoneType,
    (Field("max_thinking_tokens", _is_token_count, "a number of tokens, or None"),),
)

GET_SETTINGS = Operation(
    "get_settings", "settings.get", controls.SettingsReport, keeps_options=True
)
APPLY_FLAG_SETTINGS = Operation(
    "apply_flag_settings", "settings.apply", NoneType, (_mapping("settings"),)
)
UPDATE_SETTINGS = Operation(
    "update_settings", "settings.update", NoneType, (_text("source"), _mapping("settings"))
)
LIST_PERMISSION_RULES = Operation(
    "list_permission_rules",
    "settings.permission_rules",
    controls.PermissionRuleList,
    keeps_options=True,
)
GET_HOOKS_LISTING = Operation(
    "get_hooks_listing", "settings.hooks", controls.HookList, keeps_options=True
)
RELOAD_OUTPUT_STYLES = Operation(
    "reload_output_styles", "settings.reload_output_styles", controls.OutputStyleList
)

READ_FILE = Operation(
    "read_file",
    "files.read",
    controls.FileContents,
    (
        _text("path"),
        Field("max_bytes", _is_token_count, "a number of bytes", required=False),
        _text("encoding", required=False),
    ),
    keeps_options=True,
)
FILE_SUGGESTIONS = Operation(
    "file_suggestions",
    "files.suggest",
    controls.FileSuggestions,
    (_any_text("query"),),
    keeps_options=True,
)
SEED_READ_STATE = Operation(
    "seed_read_state",
    "files.mark_read",
    NoneType,
    (_text("path"), Field("mtime", _is_number, "milliseconds since 1970")),
    keeps_options=True,
)
REGISTER_REPO_ROOT = Operation(
    "register_repo_root",
    "files.add_directory",
    controls.RegisteredDirectory,
    (
        _text("directory"),
        _flag("reload_claude_md", required=False),
        _flag("reload_plugins", required=False),
        _flag("reload_skills", required=False),
    ),
    timeout_factor=2,
)
REWIND_FILES = Operation(
    "rewind_files",
    "files.rewind",
    controls.RewindResult,
    (_text("user_message_id"), _flag("dry_run", required=False)),
    timeout_factor=4,
    keeps_options=True,
)
GET_WORKSPACE_DIFF = Operation(
    "get_workspace_diff", "files.diff", controls.WorkspaceDiff, keeps_options=True
)

RELOAD_PLUGINS = Operation(
    "reload_plugins",
    "plugins.reload",
    controls.PluginReload,
    (
        _flag("hold_on_cache_impact", required=False),
        _flag("refuse_if_busy", required=False),
        Field("add_plugins", _is_list, "a list of plugins", required=False),
    ),
    timeout_factor=2,
)
RELOAD_SKILLS = Operation("reload_skills", "plugins.reload_skills", controls.SkillList)

CANCEL_ASYNC_MESSAGE = Operation(
    "cancel_async_message",
    "conversation.cancel_prompt",
    controls.PromptCancellation,
    (_text("message_uuid"),),
    keeps_options=True,
)
RENAME_SESSION = Operation(
    "rename_session", "conversation.rename", NoneType, (_text("title"),), keeps_options=True
)
GENERATE_SESSION_TITLE = Operation(
    "generate_session_title",
    "conversation.generate_title",
    controls.SessionTitle,
    (_text("description"), _flag("persist", required=False)),
    timeout_factor=4,
    keeps_options=True,
)
SIDE_QUESTION = Operation(
    "side_question",
    "conversation.ask_aside",
    controls.SideAnswer,
    (_text("question"),),
    timeout_factor=4,
    keeps_options=True,
)
EXPORT_CONVERSATION = Operation(
    "export_conversation", "conversation.export", controls.ConversationExport, keeps_options=True
)
GET_PLAN = Operation("get_plan", "conversation.plan", controls.ConversationPlan, keeps_options=True)
END_SESSION = Operation(
    "end_session", "conversation.end", NoneType, (_text("reason", required=False),)
)

GET_STATUS = Operation("get_status", "info.status", controls.SessionStatus, keeps_options=True)
GET_BINARY_VERSION = Operation(
    "get_binary_version", "info.version", controls.BinaryVersion, keeps_options=True
)
GET_SESSION_COST = Operation(
    "get_session_cost", "info.cost", controls.SessionCost, keeps_options=True
)
GET_USAGE = Operation(
    "get_usage",
    "info.usage",
    controls.UsageReport,
    (_flag("skip_behaviors", required=False),),
    keeps_options=True,
)
SET_HAS_SUBSCRIBERS = Operation(
    "set_has_subscribers",
    "info.set_has_subscribers",
    NoneType,
    (Field("has_subscribers", _is_subscriber_flag, "True, False, or None"),),
)

# Every row above: a second list of them could miss one.
OPERATIONS: dict[str, Operation[object]] = {
    row.subtype: row for row in tuple(globals().values()) if isinstance(row, Operation)
}
"""All rows by subtype, in the order above."""

CHANGE_NOTHING = frozenset(
    {"claim_session", *(row.subtype for row in OPERATIONS.values() if row.keeps_options)}
)
"""Operations after which the session has the same options as before. Any other may change them."""

_SETTING = (APPLY_FLAG_SETTINGS.subtype, UPDATE_SETTINGS.subtype)


def default_timeout(operation: str, control_timeout: float) -> float:
    """Return the seconds that an operation waits for its response by default."""
    row = OPERATIONS.get(operation)
    return control_timeout if row is None else control_timeout * row.timeout_factor


def check_timeout(timeout: object) -> None:
    """Raise OptionsError if ``timeout`` is not a positive number or None."""
    if timeout is not None:
        positive("timeout", timeout)


def prepare_operation(
    operation: object,
    fields: Mapping[str, object],
    timeout: float | None = None,
    *,
    has_gates: bool = False,
) -> Mapping[str, object]:
    """Return the fields to send, after checking that the CLI can accept the request.

    ``has_gates``: the session has hooks or permission callbacks, which settings must not switch
    off.

    Raises:
        OptionsError: the operation is not for callers, a field is missing or of the wrong type,
            the timeout is not positive, or settings would switch off the hooks of the program.
    """
    if not isinstance(operation, str) or not operation:
        problem = f"must be the name of a control request, got {operation!r:.80}"
        raise OptionsError("subtype", problem, fix="Pass a name such as 'interrupt'.")
    if "subtype" in fields:
        raise OptionsError("subtype", "is given twice", fix="Remove it from the fields.")
    check_timeout(timeout)
    if operation == "initialize":
        raise OptionsError(
            "subtype",
            "is 'initialize', which only the session itself sends",
            fix="Set hooks, agents and servers in the options of a new session.",
        )
    row = OPERATIONS.get(operation)
    for name, is_valid, expected, required in () if row is None else row.fields:
        value = fields.get(name, _MISSING)
        if is_valid(value) or (value is _MISSING and not required):
            continue
        problem = "is missing" if value is _MISSING else f"is {value!r:.80}"
        raise OptionsError(f"{operation}.{name}", problem, fix=f"Pass {expected}.")
    if has_gates and operation in _SETTING:
        _check_gates(operation, fields["settings"])
    if operation == "set_permission_mode" and fields["mode"] == "manual":
        # "manual" is the newest name of the default mode. Older CLIs accept it and do nothing.
        return {**fields, "mode": "default"}
    return fields


def _check_gates(operation: str, settings: object) -> None:
    """Reject settings with a variable that makes the CLI skip hooks."""
    env = settings.get("env") if is_mapping(settings) else None
    for name in GATE_VARIABLES:
        if is_mapping(env) and name in env:
            problem = f"sets env.{name}, which switches off the hooks of this session"
            fix = "Remove it, or start a session without callbacks."
            raise OptionsError(f"{operation}.settings", problem, fix=fix)


def unknown_mode(operation: str, fields: Mapping[str, object]) -> str | None:
    """Return the text of a warning if this sets a permission mode that Bridle does not know."""
    if operation != "set_permission_mode" or fields["mode"] in PERMISSION_MODES:
        return None
    return unknown_value("set_permission_mode: mode", fields["mode"], PERMISSION_MODES)
