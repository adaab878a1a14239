"""Describe option values that this version of Bridle does not know.

The CLI often gets new permission modes, hook events and other names. Bridle passes a name that it
does not know on to the CLI, with a warning, because the name may also be a mistake.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import cast

from bridle._agents import AgentConfig
from bridle._fields import close_to, is_mapping, shown
from bridle._option_checks import (
    EFFORTS,
    PERMISSION_MODES,
    SETTING_SOURCES,
    THINKING_DISPLAYS,
    THINKING_TYPES,
)
from bridle.hooks import HOOK_EVENTS, compile_matcher
from bridle.options import BidirOptions, CliOptions

_PREVIEW_FORMATS = ("markdown", "html")


def unknown_values(cli: CliOptions, bidir: BidirOptions) -> Iterator[str]:
    """Yield a text about each value of the options that this version does not know."""
    yield from _unknown("CliOptions.permission_mode", cli.permission_mode, PERMISSION_MODES)
    yield from _unknown("CliOptions.effort", cli.effort, EFFORTS)
    thinking: Mapping[object, object] = cli.thinking if is_mapping(cli.thinking) else {}
    yield from _unknown("CliOptions.thinking.type", thinking.get("type"), THINKING_TYPES)
    yield from _unknown("CliOptions.thinking.display", thinking.get("display"), THINKING_DISPLAYS)
    for tool, fields in (cli.tool_config or {}).items():
        field = f"CliOptions.tool_config.{tool}.preview_format"
        yield from _unknown(field, fields.get("preview_format"), _PREVIEW_FORMATS)
    for source in cli.setting_sources or ():
        yield from _unknown("CliOptions.setting_sources", source, SETTING_SOURCES)
    for agent in cast("Sequence[AgentConfig]", cli.agents or ()):
        yield from _unknown_in_agent(agent)
    for event in bidir.hooks or {}:
        yield from _unknown("BidirOptions.hooks", event, HOOK_EVENTS)
    if bidir.parallel_hooks:
        yield from _unread_matchers(bidir)
    for event in bidir.hook_timeouts or {}:
        yield from _unknown("BidirOptions.hook_timeouts", event, HOOK_EVENTS)


def _unread_matchers(bidir: BidirOptions) -> Iterator[str]:
    """Yield a text about each matcher that the CLI reads and that is not valid in Python."""
    for event, hooks in bidir.all_hooks().items():
        for hook in hooks:
            try:
                compile_matcher(hook.matcher)
            except ValueError:
                yield (
                    f"BidirOptions.hooks[{event!r}]: the matcher {shown(hook.matcher)} is not a "
                    "Python regular expression. With parallel_hooks the CLI reads it as one of "
                    "JavaScript. If it is not valid there either, the CLI never calls the hook."
                )


def _unknown_in_agent(agent: AgentConfig) -> Iterator[str]:
    field = f"CliOptions.agents[{agent.name!r}]"
    # With such a value in one agent, a CLI that does not know it starts with none of the agents.
    risk = "A CLI that does not know it ignores all agents."
    yield from _unknown(f"{field}.permission_mode", agent.permission_mode, PERMISSION_MODES, risk)
    yield from _unknown(f"{field}.memory", agent.memory, SETTING_SOURCES, risk)
    if isinstance(agent.effort, str):
        yield from _unknown(f"{field}.effort", agent.effort, EFFORTS, risk)
    known = [name for name in AgentConfig.fields if name != "extra"]
    for name in agent.extra or {}:
        yield unknown_value(field, name, known, what="has the field")


def _unknown(field: str, value: object, known: Collection[str], risk: str = "") -> Iterator[str]:
    if value is not None and value not in known:
        text = unknown_value(field, value, known)
        yield f"{text} {risk}" if risk else text


def unknown_value(field: str, value: object, known: Collection[str], *, what: str = "is") -> str:
    """Return the text about a value that is not one of the known ones."""
    names = sorted(known)
    guess = close_to(str(value), names)
    parts = (
        f"{field} {what} {shown(value)}, which this version of Bridle does not know.",
        guess,
        f"Known: {', '.join(names)}.",
    )
    return " ".join(filter(None, parts))
