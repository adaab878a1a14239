"""Describe option values that this version of Bridle does not know.

The CLI often gets new permission modes, hook events and other names. Bridle passes a name that it
does not know on to the CLI, with a warning, because the name may also be a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import cast

from bridle._records.fields import close_to, is_mapping, shown
from bridle._records.matchers import compile_matcher
from bridle.hooks import HOOK_EVENTS
from bridle.options import BidirOptions, CliOptions
from bridle.options._agents import AgentConfig
from bridle.options._checks import (
    EFFORTS,
    PERMISSION_MODES,
    SETTING_SOURCES,
    THINKING_DISPLAYS,
    THINKING_TYPES,
)
from bridle.tools._cli_tools import BUILT_IN_TOOLS, MCP_PREFIX, TOOL_EVENTS, tool_of_rule

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
    yield from _unknown_tools("CliOptions.tools", wanted_tools(cli))
    yield from _unknown_tools("CliOptions.allowed_tools", cli.allowed_tools)
    yield from _unknown_tools("CliOptions.disallowed_tools", cli.disallowed_tools)
    for agent in cast("Sequence[AgentConfig]", cli.agents or ()):
        yield from _unknown_in_agent(agent)
    yield from _unknown_tools("BidirOptions.approve", bidir.approve)
    for event in bidir.hooks or {}:
        yield from _unknown("BidirOptions.hooks", event, HOOK_EVENTS)
    yield from _useless_matchers(bidir)
    for event in bidir.hook_timeouts or {}:
        yield from _unknown("BidirOptions.hook_timeouts", event, HOOK_EVENTS)


def wanted_tools(cli: CliOptions) -> list[str]:
    """Return the names of the CLI's own tools that the options ask for."""
    names = () if cli.tools is None or isinstance(cli.tools, str) else cli.tools
    refused = frozenset(cli.disallowed_tools or ())
    return [name for name in names if not (name in refused or name.startswith(MCP_PREFIX))]


def _unknown_tools(field: str, rules: Sequence[str] | None) -> Iterator[str]:
    """Yield a text about each rule for a tool that is neither one of the CLI nor one of MCP."""
    for name in map(tool_of_rule, rules or ()):
        if not name.startswith(MCP_PREFIX) and "*" not in name:
            yield from _unknown(field, name, BUILT_IN_TOOLS)


def _useless_matchers(bidir: BidirOptions) -> Iterator[str]:
    """Yield a text about each matcher that cannot match any tool, as far as Bridle can tell."""
    for event, hooks in bidir.all_hooks().items():
        for matcher in dict.fromkeys(hook.matcher for hook in hooks):
            field = f"BidirOptions.hooks[{event!r}]: the matcher"
            try:
                compiled = compile_matcher(matcher)
            except ValueError:  # only with parallel_hooks
                yield (
                    f"{field} {shown(matcher)} is not a Python regular expression. With "
                    "parallel_hooks the CLI reads it as one of JavaScript. If it is not valid "
                    "there either, the CLI never calls the hook."
                )
                continue
            if event not in TOOL_EVENTS or compiled is None:
                continue
            if isinstance(compiled, frozenset):
                for name in sorted(compiled):
                    yield from _useless_name(field, name)
            else:
                yield from _useless_expression(field, compiled)


def _useless_name(field: str, name: str) -> Iterator[str]:
    server, has_tool, _ = name.removeprefix(MCP_PREFIX).partition("__")
    if not name.startswith(MCP_PREFIX):
        if name not in BUILT_IN_TOOLS:
            yield unknown_value(field, name, BUILT_IN_TOOLS, what="names")
    elif not has_tool:
        fix = f"For all tools of the server use {f'^{MCP_PREFIX}{server}__'!r}."
        yield f"{field} {shown(name)} names an MCP server and no tool, so it never matches. {fix}"


_RULE = re.compile(r"(\w+)\(.*\)")
_WILDCARD = re.compile(r"[.\[\\]")


def _useless_expression(field: str, expression: re.Pattern[str]) -> Iterator[str]:
    """Yield a text about an expression that matches no tool of the CLI.

    An expression with wildcards, or one about MCP, may match tools that Bridle does not know.
    """
    matcher = expression.pattern
    if any(map(expression.search, BUILT_IN_TOOLS)) or MCP_PREFIX in matcher:
        return
    if rule := _RULE.fullmatch(matcher):
        yield (
            f"{field} {shown(matcher)} is a regular expression that matches no tool. It looks like "
            f"a permission rule: use {rule[1]!r}, and check context.tool_input in the hook."
        )
    elif not _WILDCARD.search(matcher):
        yield unknown_value(field, matcher, BUILT_IN_TOOLS, what="matches")


def _unknown_in_agent(agent: AgentConfig) -> Iterator[str]:
    field = f"CliOptions.agents[{agent.name!r}]"
    # With such a value in one agent, a CLI that does not know it starts with none of the agents.
    risk = "A CLI that does not know it ignores all agents."
    yield from _unknown(f"{field}.permission_mode", agent.permission_mode, PERMISSION_MODES, risk)
    yield from _unknown(f"{field}.memory", agent.memory, SETTING_SOURCES, risk)
    if isinstance(agent.effort, str):
        yield from _unknown(f"{field}.effort", agent.effort, EFFORTS, risk)
    yield from _unknown_tools(f"{field}.tools", agent.tools)
    yield from _unknown_tools(f"{field}.disallowed_tools", agent.disallowed_tools)
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
