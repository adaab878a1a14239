"""Checks for option values that have a special format, such as permission rules and MCP servers.

These checks reject every value that the CLI would ignore or misread without an error. They work as
the checks in `bridle._records.fields` do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias, cast, get_args

from bridle._records.fields import (
    boolean,
    integer,
    is_list,
    is_mapping,
    items,
    json_object,
    json_or_path,
    line,
    many,
    matching,
    one_of,
    pairs,
    path,
    shown,
    text,
)
from bridle.errors import OptionsError
from bridle.hooks import Hook

Effort: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]
PermissionMode: TypeAlias = Literal[
    "default", "acceptEdits", "plan", "dontAsk", "auto", "bypassPermissions", "manual"
]
SettingSource: TypeAlias = Literal["user", "project", "local"]
ThinkingType: TypeAlias = Literal["adaptive", "enabled", "disabled"]
ThinkingDisplay: TypeAlias = Literal["summarized", "omitted", "highlights"]

# The names that this version knows. The CLI gets new ones often, so the checks accept any name, and
# `bridle.options._unknown_values` warns about a name that is not listed here.
EFFORTS: tuple[str, ...] = get_args(Effort)
PERMISSION_MODES: tuple[str, ...] = get_args(PermissionMode)
SETTING_SOURCES: tuple[str, ...] = get_args(SettingSource)
THINKING_TYPES: tuple[str, ...] = get_args(ThinkingType)
THINKING_DISPLAYS: tuple[str, ...] = get_args(ThinkingDisplay)

# ---------------------------------------------------------------- names and choices

UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
uuid = matching(UUID, "a UUID")


def is_uuid(value: object) -> bool:
    """Return whether a value is the text of a UUID, as every session id of the CLI is."""
    return isinstance(value, str) and re.fullmatch(UUID, value) is not None


name = matching(r"[^\s,()]+", "one name, without spaces, commas or parentheses")
# The CLI splits rules at commas and spaces, except between a "(" and the next ")". Reject a text
# that it would split into two rules: otherwise "Bash(f(x),Write,y)" would permit Write.
rule = matching(
    r"[^\s,()](?:[^\s,()]|\([^)]*\)|\))*",
    "one rule per item, such as 'Read' or 'Bash(git log:*)'. Spaces and commas are allowed only "
    "between the parentheses",
)
# Tools are named mcp__<server>__<tool>, so the name of a server must not contain "__".
server_name = matching(
    r"(?!.*__)[A-Za-z0-9_-]{1,64}", "1 to 64 letters, digits, '-' or '_', without '__'"
)

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


def truth(word: str) -> bool:
    """Parse the value of a boolean environment variable. Raise ValueError for other words."""
    if word.lower() not in _TRUE + _FALSE:
        raise ValueError(word)
    return word.lower() in _TRUE


# ---------------------------------------------------------------- options with several types


def system_prompt(field: str, value: object) -> object:
    """Check a system prompt: text, a list of texts that become its paragraphs, or a function."""
    if isinstance(value, str) or callable(value):
        return appended_prompt(field, value)
    if not is_list(value):
        problem = f"must be text, a list of texts or a function, got {type(value).__name__}"
        raise OptionsError(field, problem, fix="Use text such as 'You are a careful reviewer.'.")
    return many(text)(field, value)


def appended_prompt(field: str, value: object) -> object:
    """Check a text, or a plain function that takes the deps and returns the text."""
    if not callable(value):
        return text(field, value)
    import inspect  # rarely needed, and slow to import

    if inspect.iscoroutinefunction(value) or isinstance(value, type):
        problem = "must be text, or a function that takes the session's deps and returns text"
        raise OptionsError(field, problem, fix="Use a plain `def` function.")
    return value


def tools(field: str, value: object) -> object:
    """Check a list of tool names, or the word "default"."""
    if isinstance(value, str):
        return _word(field, value, "default", "a list of tool names", ["Read", "Bash"])
    return many(name)(field, value)


def debug(field: str, value: object) -> object:
    """Check a boolean, or the text that lists the categories to log."""
    return line(field, value) if isinstance(value, str) else boolean(field, value)


def thinking(field: str, value: object) -> Mapping[str, object]:
    """Check a type of thinking, or a mapping with type, budget_tokens and display."""
    fields: dict[object, object] = (
        {"type": value} if isinstance(value, str) else dict(pairs(field, value))
    )
    checks = {
        "type": name,
        "budget_tokens": integer(1),
        "display": name,
    }
    _check_keys(field, fields, *checks)
    if "type" not in fields:
        fix = "Set type to adaptive, enabled or disabled."
        raise OptionsError(field, "has no type", fix=fix)
    kept = {
        key: check(f"{field}.{key}", fields[key]) for key, check in checks.items() if key in fields
    }
    if "budget_tokens" in kept and kept["type"] in ("adaptive", "disabled"):
        problem = f"has budget_tokens, but its type is {kept['type']!r}"
        raise OptionsError(field, problem, fix="Use type 'enabled', or remove budget_tokens.")
    if "display" in kept and kept["type"] == "disabled":
        problem = "has a display, but its type is 'disabled'"
        raise OptionsError(field, problem, fix="Remove display, or use another type.")
    return MappingProxyType(kept)


def skills(field: str, value: object) -> object:
    """Check a list of skill names, or the word "all"."""
    if isinstance(value, str):
        return _word(field, value, "all", "a list of skill names", ["pdf", "docx"])
    return many(line)(field, value)


def _word(field: str, value: str, word: str, others: str, example: list[str]) -> str:
    """Check a word that is accepted in place of a list."""
    kept = line(field, value)
    if kept != word:
        problem = f"must be {others} or {word!r}, got {shown(kept)}"
        raise OptionsError(field, problem, fix=f"Use a list such as {example}, or {word!r}.")
    return kept


def tool_config(field: str, value: object) -> Mapping[str, Mapping[str, object]]:
    """Check the configuration of built-in tools. Keys may have their Python or wire names."""
    tools = _renamed(field, value, askUserQuestion="ask_user_question")
    kept: dict[str, Mapping[str, object]] = {}
    for tool, fields in tools.items():
        inner = f"{field}.{tool}"
        given = _renamed(inner, fields, previewFormat="preview_format")
        kept[tool] = MappingProxyType(
            {key: name(f"{inner}.{key}", item) for key, item in given.items()}
        )
    return MappingProxyType(kept)


def _renamed(field: str, value: object, **names: str) -> dict[str, object]:
    """Return a mapping with Python names. Raise OptionsError for a key that is not in `names`."""
    given = {names.get(str(key), key): item for key, item in pairs(field, value)}
    _check_keys(field, given, *names.values())
    return cast("dict[str, object]", given)


def plugin(field: str, value: object) -> object:
    """Check the directory of a plugin, or a mapping with path, type and skip_mcp_discovery."""
    if not is_mapping(value):
        return path(field, value)
    fields = dict(value)
    _check_keys(field, fields, "type", "path", "skip_mcp_discovery")
    one_of("local")(f"{field}.type", fields.get("type", "local"))
    where = path(f"{field}.path", fields.get("path"))
    skips = boolean(f"{field}.skip_mcp_discovery", fields.get("skip_mcp_discovery", False))
    return MappingProxyType({"path": where, "skip_mcp_discovery": True}) if skips else where


def _check_keys(field: str, given: Mapping[object, object], *known: str) -> None:
    for key in given:
        if key not in known:
            fix = f"Known keys: {', '.join(known)}."
            raise OptionsError(f"{field}.{key}", "is unknown", fix=fix)


# ---------------------------------------------------------------- servers, hooks, variables


def mcp_config(field: str, value: object) -> str | Mapping[str, object]:
    """Check a path, or a configuration in the format that the CLI reads.

    The CLI would reject a configuration of another form, or ignore some of its servers.
    """
    config = json_or_path(field, value)
    if isinstance(config, str):
        return config
    servers = config.get("mcpServers")
    if not is_mapping(servers):
        fix = 'Use the form {"mcpServers": {name: {...}}}.'
        raise OptionsError(field, "has no object named mcpServers", fix=fix)
    for server, details in servers.items():
        if not is_mapping(details):
            fix = 'Use {"command": ...} or {"type": "http", "url": ...}.'
            raise OptionsError(f"{field}.mcpServers.{server}", "must be an object", fix=fix)
        if details.get("type") == "sdk":
            fix = "Remove it here, and pass the server in BidirOptions.mcp_servers."
            raise OptionsError(
                f"{field}.mcpServers.{server}",
                "has the type 'sdk', which is for in-process servers",
                fix=fix,
            )
    return config


def mcp_servers(field: str, value: object) -> Mapping[str, object]:
    """Check in-process servers, by name and in order. The session checks the servers themselves."""
    servers: dict[str, object] = {}
    for pair in value.items() if is_mapping(value) else items(field, value):
        if not is_list(pair) or len(pair) != 2:
            fix = "Use a mapping, or a list of (name, server) pairs."
            raise OptionsError(
                field, f"has an item that is not a (name, server) pair: {shown(pair)}", fix=fix
            )
        key, server = pair
        known = cast("str", server_name(f"{field} name", key))
        if known in servers:
            raise OptionsError(field, f"has two servers named {known!r}", fix="Rename one of them.")
        if server is None or isinstance(server, str) or is_mapping(server):
            fix = "Use a ToolServer or a handler. External servers belong in CliOptions.mcp_config."
            raise OptionsError(f"{field}[{known!r}]", "is not an in-process server", fix=fix)
        servers[known] = server
    return MappingProxyType(servers)


def hook(field: str, value: object) -> Hook:
    """Check that the value is a `Hook`."""
    if not isinstance(value, Hook):
        fix = "Use a list of Hook(callback, ...)."
        if hasattr(value, "hooks") or (is_mapping(value) and "hooks" in value):
            # the matcher of an official SDK
            fix = "Use Hook(callback, matcher='Bash') for each callback of the matcher."
        raise OptionsError(field, f"must be a Hook, got {type(value).__name__}", fix=fix)
    return value


# Bridle sets these itself. Other values would contradict what it knows about the session.
RESERVED_VARIABLES = {
    "CLAUDECODE": "Remove the variable. With it, the CLI acts as if it ran inside another session.",
    "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING": "Use BidirOptions.file_checkpointing_enabled.",
}


def variable_name(field: str, value: object) -> str:
    """Check the name of an environment variable."""
    variable = line(field, value)
    if "=" in variable:
        raise OptionsError(field, "contains '='", fix="Use the name without its value.")
    return variable


def settable_variable(field: str, value: object) -> str:
    """Check the name of an environment variable that the caller may set."""
    variable = variable_name(field, value)
    if variable in RESERVED_VARIABLES:
        fix = RESERVED_VARIABLES[variable]
        raise OptionsError(f"env[{variable!r}]", "is managed by Bridle", fix=fix)
    return variable


def variable_value(field: str, value: object) -> str:
    """Check the value of an environment variable. Errors never show it: it may be a secret."""
    if not isinstance(value, str):
        problem = f"must be a string, got {type(value).__name__}"
        raise OptionsError(field, problem, fix="Convert the value to a string.")
    if "\0" in value:
        fix = "Remove it: environment variables cannot contain NUL."
        raise OptionsError(field, "has a NUL character", fix=fix)
    return str.__str__(value)


def inherit_env(field: str, value: object) -> object:
    """Check True (all variables), False (none), or a list of names."""
    return value if isinstance(value, bool) else many(variable_name)(field, value)


# ---------------------------------------------------------------- objects of the application


def telemetry(field: str, value: object) -> object:
    """Check an object with a plain method observe()."""
    fix = "Use bridle.otel.OpenTelemetry(), or an object with a method observe(observation)."
    if isinstance(value, type):
        fix = f"Create an instance: {value.__name__}()."
        raise OptionsError(field, f"is the class {value.__name__}, not an instance", fix=fix)
    observe = getattr(value, "observe", None)
    if not callable(observe):
        raise OptionsError(
            field,
            f"is an object of type {type(value).__name__}, which has no method observe",
            fix=fix,
        )
    from inspect import iscoroutinefunction  # loaded only if telemetry is used

    if iscoroutinefunction(observe):
        raise OptionsError(
            field, "has an async method observe", fix="Use a plain function: def observe(...)."
        )
    return value


def recorder(field: str, value: object) -> object:
    """Check an object with a method wrap(), such as a Recorder."""
    if isinstance(value, type) or not callable(getattr(value, "wrap", None)):
        fix = "Use bridle.testing.recording.Recorder(path)."
        raise OptionsError(field, f"must be a recorder, got {type(value).__name__}", fix=fix)
    return value


def store(field: str, value: object) -> object:
    """Check an object with the methods append() and load(), such as a MemoryStore."""
    fix = "Use a store of bridle.sessions, such as SqliteStore(path)."
    if isinstance(value, type):
        fix = f"Create an instance: {value.__name__}(...)."
        raise OptionsError(field, f"is the class {value.__name__}, not an instance", fix=fix)
    for method in ("append", "load"):
        if not callable(getattr(value, method, None)):
            problem = f"is an object of type {type(value).__name__}, which has no method {method}"
            raise OptionsError(field, problem, fix=fix)
    return value


# ---------------------------------------------------------------- raw arguments and fields


# Fields of the handshake that Bridle sets from other records, or from several options.
_OWN_FIELDS = {
    "subtype": "Remove it: Bridle always sets it.",
    "hooks": "Use BidirOptions.hooks.",
    "sdkMcpServers": "Use BidirOptions.mcp_servers.",
    "sdkMcpServerManifests": "Use BidirOptions.mcp_servers.",
    "supportedDialogKinds": "Use BidirOptions.supported_dialog_kinds.",
    "plugins": "Use plugins with plugin_delivery='initialize'.",
    "mcpServers": "Use mcp_config with mcp_config_delivery='initialize'.",
}


def extra_initialize(managed: Callable[[], Mapping[str, str]]) -> Callable[[str, object], object]:
    """Return a check for fields of the handshake that Bridle does not manage.

    `managed` returns what to use in place of each field that has an option.
    """

    def check(field: str, value: object) -> Mapping[str, object]:
        kept = json_object(field, value)
        rejected = {**managed(), **_OWN_FIELDS}
        for name in kept:
            if name in rejected:
                raise OptionsError(field, f"contains {name}", fix=rejected[name])
        return kept

    return check


# Flags that Bridle sets itself, or with which the CLI would exit before the conversation.
_OWN_FLAGS = {
    "--": "To send a prompt, use query() or send_user_message().",
    "--input-format": "Bridle always uses stream-json.",
    "--output-format": "Bridle always uses stream-json. For structured output, use json_schema.",
    "--verbose": "Remove it. Bridle always sets it.",
    "--print": "Remove it. Bridle always runs the CLI in this mode.",
    "--replay-user-messages": "Remove it. Sessions always set it.",
    "--dangerously-skip-permissions": "Use permission_mode='bypassPermissions'.",
    "--bg": "Remove it: Bridle needs the CLI in the foreground.",
    "--background": "Remove it: Bridle needs the CLI in the foreground.",
    "--help": "To read its output, run the CLI yourself.",
    "--version": "To read its output, run the CLI yourself.",
}
_LONG_FLAG = r"--[A-Za-z][\w-]*"


def extra_args(managed: Callable[[], Mapping[str, str]]) -> Callable[[str, object], object]:
    """Return a check for flags that Bridle does not manage.

    A flag may stand alone, have `=value`, or be followed by its value. `managed` returns what to
    use in place of each flag that has an option. The check rejects short flags, because several
    can be combined into one argument. It rejects a value that follows no flag, because the CLI
    would read it as a prompt or as a subcommand.
    """

    def check(field: str, value: object) -> tuple[str, ...]:
        rejected = {**managed(), **_OWN_FLAGS}
        kept = tuple(text(field, item) for item in items(field, value))
        may_follow = False
        for index, item in enumerate(kept):
            name, equals, _ = item.partition("=")
            # Errors name the position, never the value: it may be a secret.
            if "\0" in item:
                raise OptionsError(field, f"has a NUL character in item {index}", fix="Remove it.")
            if name in rejected:
                raise OptionsError(field, f"contains {name}", fix=rejected[name])
            if re.fullmatch(_LONG_FLAG, name) is not None:
                may_follow = not equals
            elif item.startswith("-"):
                fix = "Use long flags, and --flag=value for a value that begins with '-'."
                raise OptionsError(field, f"has an invalid flag as item {index}", fix=fix)
            elif not may_follow:
                fix = "Use --flag=value. To send a prompt, use query() or send_user_message()."
                raise OptionsError(
                    field, f"has a value as item {index}, but no flag before it", fix=fix
                )
        return kept

    return check
