"""Subagents: the record that describes one, and the forms in which an application may give many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from bridle import _forms as forms
from bridle._fields import (
    Record,
    boolean,
    initialize,
    integer,
    is_mapping,
    json_object,
    line,
    many,
    option,
    pairs,
    record,
    required,
    text,
)
from bridle._forms import Effort, PermissionMode, SettingSource
from bridle.errors import OptionsError

__all__ = ["AgentConfig"]


def _server(field: str, value: object) -> object:
    return line(field, value) if isinstance(value, str) else json_object(field, value)


def _effort_or_tokens(field: str, value: object) -> object:
    return forms.effort(field, value) if isinstance(value, str) else integer(1)(field, value)


class AgentConfig(Record):
    """A subagent the model may hand work to."""

    name: str = required(line, initialize("name"), "What the model calls it.")
    description: str = required(text, initialize("description"), "When to use it.")
    prompt: str = required(text, initialize("prompt"), "Its system prompt.")
    tools: Sequence[str] | None = option(
        many(forms.rule), initialize("tools"), "The tools it has; all when not said."
    )
    disallowed_tools: Sequence[str] | None = option(
        many(forms.rule), initialize("disallowedTools"), "Tools it does not get."
    )
    model: str | None = option(line, initialize("model"), "Its model; the session's if not said.")
    skills: Sequence[str] | None = option(many(line), initialize("skills"), "Skills it knows.")
    memory: SettingSource | None = option(
        forms.setting_source, initialize("memory"), "Where it keeps its memory."
    )
    mcp_servers: Sequence[str | Mapping[str, object]] | None = option(
        many(_server), initialize("mcpServers"), "Its MCP servers: names, or configurations."
    )
    initial_prompt: str | None = option(text, initialize("initialPrompt"), "Its first prompt.")
    max_turns: int | None = option(integer(1), initialize("maxTurns"), "Its limit of turns.")
    background: bool | None = option(boolean, initialize("background"), "Run it in the background.")
    effort: Effort | int | None = option(
        _effort_or_tokens, initialize("effort"), "How hard it works."
    )
    permission_mode: PermissionMode | None = option(
        forms.permission_mode, initialize("permissionMode"), "Its permission mode."
    )


_OUR_NAMES = {row.channel.name: name for name, row in AgentConfig.fields.items()}


def _agent(field: str, value: object, **known: object) -> AgentConfig:
    """An agent given as a record, or as a mapping with our names or those of the wire."""
    if isinstance(value, AgentConfig):
        return value.replace(**known)
    said: dict[object, object] = {
        _OUR_NAMES.get(str(key), key): item for key, item in pairs(field, value)
    }
    return cast("AgentConfig", record(AgentConfig)(field, said | known))


def agents(field: str, value: object) -> tuple[AgentConfig, ...]:
    """Check for a list of agents, or a mapping from their names; kept as a tuple."""
    if is_mapping(value):
        return tuple(_agent(f"{field}[{name!r}]", item, name=name) for name, item in value.items())
    listed = cast("tuple[AgentConfig, ...]", many(_agent)(field, value))
    names = [agent.name for agent in listed]
    for name in names:
        if names.count(name) > 1:
            raise OptionsError(field, f"has two agents named {name!r}", fix="Rename one of them.")
    return listed
