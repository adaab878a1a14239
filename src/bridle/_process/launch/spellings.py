"""Spell the values of options in the form of the CLI: as flags, variables and handshake fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

from bridle._records.fields import Field, Record, is_list, is_mapping
from bridle.options import AgentConfig


def plain(value: object) -> object:
    """Convert a stored value to plain JSON."""
    if is_mapping(value):
        return {str(key): plain(item) for key, item in value.items()}
    if is_list(value):
        return [plain(item) for item in value]
    return value


def given_fields(record: Record, *kinds: str) -> Iterator[tuple[Field, object]]:
    """Yield the fields of these channels whose value is not the default."""
    for name, row in record.fields.items():
        value: object = getattr(record, name)
        if row.channel.kind in kinds and value is not None and value is not row.default:
            yield row, value


def spell_variable(name: str, value: object) -> str | None:
    """Return the value of the variable of an option. None if the variable is not needed."""
    if name == "tool_config":
        tools = cast("Mapping[str, Mapping[str, str]]", value)
        return tools.get("ask_user_question", {}).get("preview_format")
    return "true" if value is True else str(value)


def spell_agent(agent: AgentConfig) -> dict[str, object]:
    """Return an agent in the form of the handshake."""
    known = {
        row.channel.name: plain(value)
        for row, value in given_fields(agent, "initialize")
        if row.name not in ("name", "extra")
    }
    return {**cast("dict[str, object]", plain(agent.extra or {})), **known}


def spell_plugin(plugin: object) -> dict[str, object]:
    """Return a plugin in the form of the handshake."""
    if is_mapping(plugin):
        return {"type": "local", "path": plugin["path"], "skipMcpDiscovery": True}
    return {"type": "local", "path": plugin}


def _thinking(value: object) -> Iterator[str]:
    """Pass a token budget without the type "enabled": with it the CLI would ignore the budget."""
    said = cast("Mapping[str, object]", value)
    if "budget_tokens" in said:
        yield f"--max-thinking-tokens={said['budget_tokens']}"
    if "budget_tokens" not in said or said["type"] != "enabled":
        yield f"--thinking={said['type']}"
    if "display" in said:
        yield f"--thinking-display={said['display']}"


def _plugins(value: object) -> Iterator[str]:
    for plugin in cast("Sequence[object]", value):
        if is_mapping(plugin):
            yield f"--plugin-dir-no-mcp={plugin['path']}"
        else:
            yield f"--plugin-dir={plugin}"


def _permission_mode(value: object) -> Iterator[str]:
    """Pass the newer name of a mode under its older name, which every CLI knows."""
    yield f"--permission-mode={'default' if value == 'manual' else value}"


def _permission_prompts(value: object) -> Iterator[str]:
    """Pass no flag for "cli": it is what the CLI does without one."""
    if value != "cli":
        yield f"--permission-prompts={value}"


FLAGS: dict[str, Callable[[object], Iterator[str]]] = {
    "thinking": _thinking,
    "plugins": _plugins,
    "permission_mode": _permission_mode,
    "permission_prompts": _permission_prompts,
}
"""How options are written whose value is not simply that of their flag."""


def join_arguments(args: Sequence[str]) -> Iterator[str]:
    """Join raw arguments with their values, because a lone value could be read as a subcommand."""
    flag = bare = ""
    for arg in args:
        if arg.startswith("--"):
            if bare:
                yield bare
            flag = bare = arg
        else:
            yield f"{flag}={arg}"
            bare = ""
    if bare:
        yield bare
