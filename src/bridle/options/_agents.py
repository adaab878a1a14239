"""`AgentConfig`, the record that describes a subagent, and the check of `CliOptions.agents`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from bridle._records.fields import (
    Channel,
    Record,
    boolean,
    initialize,
    integer,
    is_mapping,
    json_object,
    line,
    many,
    option,
    record,
    required,
    text,
)
from bridle.errors import OptionsError
from bridle.options import _checks as forms
from bridle.options._checks import Effort, PermissionMode, SettingSource


def _server(field: str, value: object) -> object:
    return line(field, value) if isinstance(value, str) else json_object(field, value)


def _effort_or_tokens(field: str, value: object) -> object:
    return forms.name(field, value) if isinstance(value, str) else integer(1)(field, value)


def _extra(field: str, value: object) -> object:
    """Check fields that have no option. They must not replace one that has."""
    kept = json_object(field, value)
    for name in kept:
        if name in _OUR_NAMES or name in AgentConfig.fields:
            fix = f"Use the field {_OUR_NAMES.get(name, name)}."
            raise OptionsError(field, f"contains {name}", fix=fix)
    return kept


class AgentConfig(Record):
    """A subagent that the model can delegate work to."""

    name: str = required(line, initialize("name"), "Name that the model uses for the subagent.")
    description: str = required(
        text,
        initialize("description"),
        "When the model should use the subagent, in a sentence or two.",
    )
    prompt: str = required(text, initialize("prompt"), "System prompt of the subagent.")
    tools: Sequence[str] | None = option(
        many(forms.rule), initialize("tools"), "Tools that the subagent has. Default: all tools."
    )
    disallowed_tools: Sequence[str] | None = option(
        many(forms.rule), initialize("disallowedTools"), "Tools that the subagent must not use."
    )
    model: str | None = option(
        line, initialize("model"), "Model of the subagent. Default: the model of the session."
    )
    skills: Sequence[str] | None = option(
        many(line), initialize("skills"), "Skills that are loaded into the subagent."
    )
    memory: SettingSource | str | None = option(
        forms.name,
        initialize("memory"),
        "Where the subagent stores its memory: 'user', 'project' or 'local'.",
    )
    mcp_servers: Sequence[str | Mapping[str, object]] | None = option(
        many(_server),
        initialize("mcpServers"),
        "MCP servers of the subagent: names of configured servers, or configurations.",
    )
    initial_prompt: str | None = option(
        text, initialize("initialPrompt"), "First prompt of the subagent."
    )
    max_turns: int | None = option(
        integer(1), initialize("maxTurns"), "Maximum number of model calls of the subagent."
    )
    background: bool | None = option(
        boolean, initialize("background"), "Run the subagent in the background."
    )
    effort: Effort | str | int | None = option(
        _effort_or_tokens,
        initialize("effort"),
        "Reasoning effort: 'low' to 'max', or a number of tokens.",
    )
    permission_mode: PermissionMode | str | None = option(
        forms.name, initialize("permissionMode"), "Permission mode of the subagent."
    )
    auto_compact_window: int | None = option(
        integer(1),
        initialize("autoCompactWindow"),
        "Number of tokens at which the subagent compacts its conversation.",
    )
    omit_claude_md: bool | None = option(
        boolean,
        initialize("omitClaudeMd"),
        "Leave the CLAUDE.md files of user and project out of the subagent's prompt.",
    )
    observer: str | None = option(
        line,
        initialize("observer"),
        "Name of an agent that watches the subagent. The CLI sends this agent digests of the "
        "subagent's work, and the agent can report problems. Separate several names with commas.",
    )
    observer_message: str | None = option(
        text,
        initialize("observerMessage"),
        "Text that the CLI adds to each digest for the observer.",
    )
    critical_system_reminder: str | None = option(
        text,
        initialize("criticalSystemReminder_EXPERIMENTAL"),
        "Reminder that the CLI adds to the subagent's prompt. Experimental.",
    )
    extra: Mapping[str, object] | None = option(
        _extra,
        Channel("initialize"),
        "Other fields of the subagent, by the names that the CLI's protocol uses. Bridle passes "
        "them to the CLI and warns.",
    )


_OUR_NAMES = {
    row.channel.name: name for name, row in AgentConfig.fields.items() if row.channel.name
}


def _agent(field: str, value: object, **known: object) -> AgentConfig:
    """Return an agent from a record, or from a mapping with Python or wire names.

    Keys of a mapping that are neither become `extra`.
    """
    if isinstance(value, AgentConfig):
        return value.replace(**known)
    if not is_mapping(value):
        problem = f"must be an AgentConfig or a mapping, got {type(value).__name__}"
        fix = "Use AgentConfig(name=..., description=..., prompt=...)."
        raise OptionsError(field, problem, fix=fix)
    fields: dict[object, object] = {}
    extra: dict[object, object] = {}
    for key, item in value.items():
        name = _OUR_NAMES.get(str(key), key)
        (fields if name in AgentConfig.fields else extra)[name] = item
    given = fields.get("extra", {})
    if extra and is_mapping(given):
        fields["extra"] = {**extra, **given}
    return cast("AgentConfig", record(AgentConfig)(field, fields | known))


def agents(field: str, value: object) -> tuple[AgentConfig, ...]:
    """Check a list of agents, or a mapping from name to agent; return a tuple."""
    if is_mapping(value):
        return tuple(_agent(f"{field}[{name!r}]", item, name=name) for name, item in value.items())
    listed = cast("tuple[AgentConfig, ...]", many(_agent)(field, value))
    names = [agent.name for agent in listed]
    for name in names:
        if names.count(name) > 1:
            raise OptionsError(field, f"has two agents named {name!r}", fix="Rename one of them.")
    return listed
