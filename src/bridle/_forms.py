"""Checks of the values that have a form of their own, as the CLI reads them.

The rule of the file: what the CLI would quietly misread, ignore or take for something else is
refused here, with the reason. The contract is that of the checks in `bridle._fields`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias, cast

from bridle._fields import (
    boolean,
    close_to,
    integer,
    is_list,
    is_mapping,
    items,
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
from bridle.hooks import HOOK_EVENTS, Hook

Effort: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]
PermissionMode: TypeAlias = Literal[
    "default", "acceptEdits", "plan", "dontAsk", "auto", "bypassPermissions", "manual"
]
SettingSource: TypeAlias = Literal["user", "project", "local"]

# ---------------------------------------------------------------- words and names

effort = one_of("low", "medium", "high", "xhigh", "max")
permission_mode = one_of(
    "default", "acceptEdits", "plan", "dontAsk", "auto", "bypassPermissions", "manual"
)
setting_source = one_of("user", "project", "local")
UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
uuid = matching(UUID, "a UUID")
name = matching(r"[^\s,()]+", "one name, without spaces, commas or parentheses")
# The CLI splits rules at commas and spaces, except from a "(" to the very next ")". What it would
# take for two rules is refused, or "Bash(f(x),Write,y)" would permit Write.
rule = matching(
    r"[^\s,()](?:[^\s,()]|\([^)]*\)|\))*",
    "one rule, such as 'Read' or 'Bash(git log:*)', with no space or comma after its first ')'",
)
# Tools are called mcp__<server>__<tool>, so a server's name may not look like that seam.
server_name = matching(
    r"(?!.*__)[A-Za-z0-9_-]{1,64}", "1 to 64 letters, digits, '-' or '_', and no '__'"
)

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


def truth(word: str) -> bool:
    """Read a boolean the way environment variables spell it."""
    if word.lower() not in _TRUE + _FALSE:
        raise ValueError(word)
    return word.lower() in _TRUE


# ---------------------------------------------------------------- one form or another


def system_prompt(field: str, value: object) -> object:
    """Text, or a list of texts that become its paragraphs."""
    return text(field, value) if isinstance(value, str) else many(text)(field, value)


def tools(field: str, value: object) -> object:
    """A list of names, or the word for the CLI's own choice."""
    return one_of("default")(field, value) if isinstance(value, str) else many(name)(field, value)


def debug(field: str, value: object) -> object:
    """On or off, or the categories to log."""
    return line(field, value) if isinstance(value, str) else boolean(field, value)


def thinking(field: str, value: object) -> Mapping[str, object]:
    """How the model thinks: a word, or a mapping with type, budget_tokens and display."""
    said: dict[object, object] = (
        {"type": value} if isinstance(value, str) else dict(pairs(field, value))
    )
    checks = {
        "type": one_of("adaptive", "enabled", "disabled"),
        "budget_tokens": integer(1),
        "display": one_of("summarized", "omitted", "highlights"),
    }
    _only(field, said, *checks)
    if "type" not in said:
        raise OptionsError(field, "has no type", fix="Say adaptive, enabled or disabled.")
    kept = {key: check(f"{field}.{key}", said[key]) for key, check in checks.items() if key in said}
    if "budget_tokens" in kept and kept["type"] != "enabled":
        raise OptionsError(field, f"is {kept['type']} with a budget", fix="Use type 'enabled'.")
    if "display" in kept and kept["type"] == "disabled":
        raise OptionsError(field, "is disabled with a display", fix="Leave the display out.")
    return MappingProxyType(kept)


def plugin(field: str, value: object) -> object:
    """The directory of a plugin, or a mapping that says more about it."""
    if not is_mapping(value):
        return path(field, value)
    said = dict(value)
    _only(field, said, "type", "path", "skip_mcp_discovery")
    one_of("local")(f"{field}.type", said.get("type", "local"))
    where = path(f"{field}.path", said.get("path"))
    quiet = boolean(f"{field}.skip_mcp_discovery", said.get("skip_mcp_discovery", False))
    return MappingProxyType({"path": where, "skip_mcp_discovery": True}) if quiet else where


def _only(field: str, said: Mapping[object, object], *known: str) -> None:
    for key in said:
        if key not in known:
            raise OptionsError(f"{field}.{key}", "is unknown", fix=f"Known: {', '.join(known)}.")


# ---------------------------------------------------------------- servers, hooks, variables


def mcp_config(field: str, value: object) -> str | Mapping[str, object]:
    """A path, or a configuration in the CLI's form, which it would refuse or thin out otherwise."""
    config = json_or_path(field, value)
    if isinstance(config, str):
        return config
    servers = config.get("mcpServers")
    if not is_mapping(servers):
        fix = 'Write {"mcpServers": {name: {...}}}.'
        raise OptionsError(field, "has no object named mcpServers", fix=fix)
    for server, details in servers.items():
        if not is_mapping(details):
            fix = 'Write {"command": ...} or {"type": "http", "url": ...}.'
            raise OptionsError(f"{field}.mcpServers.{server}", "is not an object", fix=fix)
        if details.get("type") == "sdk":
            fix = "Give its handler in BidirOptions.mcp_servers; nothing is needed here."
            raise OptionsError(f"{field}.mcpServers.{server}", "is of type sdk", fix=fix)
    return config


def mcp_servers(field: str, value: object) -> Mapping[str, object]:
    """Servers of this process by name, in order. What a server is, is not decided here."""
    servers: dict[str, object] = {}
    for pair in value.items() if is_mapping(value) else items(field, value):
        if not is_list(pair) or len(pair) != 2:
            fix = "Give a mapping, or a list of (name, handler) pairs."
            raise OptionsError(field, f"has {shown(pair)} in it", fix=fix)
        key, server = pair
        known = cast("str", server_name(f"{field} name", key))
        if known in servers:
            raise OptionsError(field, f"has two servers named {known!r}", fix="Rename one of them.")
        if server is None or isinstance(server, str) or is_mapping(server):
            fix = "Give its handler; a server outside this process goes into CliOptions.mcp_config."
            raise OptionsError(f"{field}[{known!r}]", "is not a server of this process", fix=fix)
        servers[known] = server
    return MappingProxyType(servers)


def hook_event(field: str, value: object) -> str:
    """The name of a hook event."""
    event = line(field, value)
    if event not in HOOK_EVENTS:
        fix = close_to(event, sorted(HOOK_EVENTS)) or "See HOOK_EVENTS for the names."
        raise OptionsError(field, f"is {shown(event)}, which is no hook event", fix=fix)
    return event


def hook(field: str, value: object) -> Hook:
    """A registered hook."""
    if not isinstance(value, Hook):
        fix = "Give a list of Hook(callback, ...)."
        raise OptionsError(field, f"is of type {type(value).__name__}", fix=fix)
    return value


# Bridle sets these itself; whoever sets them by hand makes it wrong about the session.
RESERVED_VARIABLES = {
    "CLAUDECODE": "Leave it out: it makes the CLI believe it runs inside another session.",
    "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING": "Use BidirOptions.file_checkpointing_enabled.",
}


def variable_name(field: str, value: object) -> str:
    """The name of an environment variable."""
    variable = line(field, value)
    if "=" in variable:
        raise OptionsError(field, "has a '=' in a name", fix="Give the name without its value.")
    return variable


def settable_variable(field: str, value: object) -> str:
    """The name of an environment variable that is the caller's to set."""
    variable = variable_name(field, value)
    if variable in RESERVED_VARIABLES:
        fix = RESERVED_VARIABLES[variable]
        raise OptionsError(f"env[{variable!r}]", "is managed by Bridle", fix=fix)
    return variable


def variable_value(field: str, value: object) -> str:
    """The value of an environment variable; never shown, it may be a secret."""
    if not isinstance(value, str):
        raise OptionsError(field, f"is of type {type(value).__name__}", fix="Give a string.")
    if "\0" in value:
        raise OptionsError(field, "has a NUL", fix="No environment variable can hold one.")
    return str.__str__(value)


def inherit_env(field: str, value: object) -> object:
    """All, none, or a list of names."""
    return value if isinstance(value, bool) else many(variable_name)(field, value)


# ---------------------------------------------------------------- objects of the application


def telemetry(field: str, value: object) -> object:
    """Something that observes, right away."""
    fix = "Give bridle.otel.OpenTelemetry(), or an object with a method observe(observation)."
    if isinstance(value, type):
        raise OptionsError(field, f"is the class {value.__name__}", fix=f"Use {value.__name__}().")
    observe = getattr(value, "observe", None)
    if not callable(observe):
        raise OptionsError(field, f"of type {type(value).__name__} cannot observe", fix=fix)
    from inspect import iscoroutinefunction  # not needed, so not loaded, without telemetry

    if iscoroutinefunction(observe):
        raise OptionsError(field, "has an async observe", fix="Make it a plain function.")
    return value


def recorder(field: str, value: object) -> object:
    """Something that takes down what passes."""
    if isinstance(value, type) or not callable(getattr(value, "wrap", None)):
        fix = "Give bridle.testing.recording.Recorder(path)."
        raise OptionsError(field, f"of type {type(value).__name__} cannot record", fix=fix)
    return value


# ---------------------------------------------------------------- raw arguments

# Flags that belong to Bridle, or would end the conversation before it begins.
_OWN_FLAGS = {
    "--": "Prompts are not arguments: use query() or send_user_message().",
    "--input-format": "Bridle always speaks stream-json.",
    "--output-format": "Bridle always speaks stream-json; for a schema use json_schema.",
    "--verbose": "It is always on.",
    "--print": "It is implied.",
    "--replay-user-messages": "Sessions always have it.",
    "--dangerously-skip-permissions": "Use permission_mode='bypassPermissions'.",
    "--bg": "Bridle needs the CLI in the foreground.",
    "--background": "Bridle needs the CLI in the foreground.",
    "--help": "Run the CLI yourself to read it.",
    "--version": "Run the CLI yourself to read it.",
}
_LONG_FLAG = r"--[A-Za-z][\w-]*"


def extra_args(managed: Callable[[], Mapping[str, str]]) -> Callable[[str, object], object]:
    """A check for flags Bridle does not manage: alone, with `=value`, or followed by the value.

    `managed` tells what to use instead of a flag that has an option. Short flags are refused since
    they can be written together and hide one another; so is a value that follows no flag, since the
    CLI would take it for a prompt or, worse, for a subcommand.
    """

    def check(field: str, value: object) -> tuple[str, ...]:
        refused = {**managed(), **_OWN_FLAGS}
        kept = tuple(text(field, item) for item in items(field, value))
        may_follow = False
        for index, item in enumerate(kept):
            name, equals, _ = item.partition("=")
            # Errors say where, and never what: a value may be a secret.
            if "\0" in item:
                raise OptionsError(field, f"has a NUL in item {index}", fix="Remove it.")
            if name in refused:
                raise OptionsError(field, f"contains {name}", fix=refused[name])
            if re.fullmatch(_LONG_FLAG, name) is not None:
                may_follow = not equals
            elif item.startswith("-"):
                fix = "Use long flags, and --flag=value for a value that begins with '-'."
                raise OptionsError(field, f"has no long flag in item {index}", fix=fix)
            elif not may_follow:
                fix = "Write --flag=value; prompts are not arguments."
                raise OptionsError(field, f"has a value without a flag in item {index}", fix=fix)
        return kept

    return check
