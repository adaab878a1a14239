"""Decide which tool calls wait for approval, by the rules of the option `approve`.

A command runs without waiting only if its words show that it does not run what a rule names. What
the programs in it do, such as ``make`` or an installed script, is not looked into.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import msgspec

from bridle._records.fields import is_mapping
from bridle.approvals._shell_words import (
    INTERPRETERS,
    OPAQUE,
    SHELLS,
    Simple,
    family,
    named,
    simple_commands,
)
from bridle.errors import OptionsError

COMMAND_TOOLS = frozenset({"Bash", "Monitor", "PowerShell", "REPL"})
"""The tools that run commands. A rule for Bash or for its commands applies to all of them."""

_RUN_TEXT = (
    SHELLS
    | INTERPRETERS
    | OPAQUE
    | named("ed emacs eval ex exec gdb gsed m4 nvim sed trap vi view vim xargs")
    | named("cargo docker go ipython jshell pipx podman r uv")
)
"""Programs and builtins that may run what their arguments or their input say."""

_WRAPPERS = named("env flock nohup script strace sudo timeout watch")
"""Programs that run the program that their arguments name."""

_NEARBY = ("./", "../", "/tmp/")
"""Beginnings of the path of a program that may be new, or a copy of another one."""

_COMPOSE = INTERPRETERS | named("gsed parallel scp sed sftp ssh xargs")
"""Programs that can compose the name of a program from plain words. They may follow another one."""

_RUN_NOTHING = named(
    "basename cat cd cut dirname echo egrep false fgrep file grep head ls mkdir nl pwd stat tail "
    "test touch tr true uniq wc which"
)
"""Programs that run no other program, whatever their arguments and their input say."""

_FILTERS = _RUN_NOTHING | {"sort"}
"""Only these may follow a pipe. Others may run what they read."""

_PLAIN = re.compile(r"[A-Za-z0-9_./:=@%+, -]*")
"""A word in which even another shell would find nothing to expand or to join."""

_GLUED = r"(?<![A-Za-z0-9_-])-[A-Za-z0-9]+?"
"""Short options, of which the last one is followed by its value without a space."""


def _any_of(names: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(names)))


_COMPOSES = re.compile(
    rf"(?:(?<![A-Za-z0-9_.-])(?:{_any_of(_COMPOSE | SHELLS)})|{_GLUED}(?:{_any_of(_COMPOSE)}))"
    r"[0-9.]*(?![A-Za-z0-9_./:-])",
    re.IGNORECASE,
)
"""Finds such programs, and shells, in a command. Files such as ``index.php`` are not meant."""

_RULE = re.compile(r"(?P<tool>[^()\s]+)(?:\((?P<pattern>[^()]*)\))?")
_TOOL = re.compile(r"mcp__[A-Za-z0-9_-]+?(?:__\*)?|[A-Za-z][A-Za-z0-9_]*")
_WORDS = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./:@%+-]*(?: [A-Za-z0-9_./][A-Za-z0-9_./:@%+-]*)*")

_FIX = "Use a tool, such as 'Write' or 'mcp__tools__refund', or commands, such as 'Bash(rm *)'."


class ApprovalRule(msgspec.Struct, frozen=True):
    """One rule of the option `approve`."""

    #: The name of a tool; for a server of MCP, the beginning of the names of its tools.
    tool: str
    #: Find the words of the rule in a command. Empty: the rule is about every call of the tool.
    words: tuple[re.Pattern[str], ...] = ()

    def concerns(self, names: Collection[str], tool_input: object, *, is_known: bool) -> bool:
        """Return True if a call waits.

        Args:
            names: the current and earlier names of the tool.
            tool_input: the input of the call.
            is_known: False for a tool that Bridle does not know. It may run commands.
        """
        may_run_commands = not is_known or not COMMAND_TOOLS.isdisjoint(names)
        if not self.words:
            if self.tool == "Bash":
                return may_run_commands
            is_server = self.tool.endswith("__")
            return (
                any(name.startswith(self.tool) for name in names)
                if is_server
                else (self.tool in names)
            )
        if not may_run_commands:
            return False
        command = tool_input.get("command") if is_mapping(tool_input) else None
        if not isinstance(command, str) or not {"Bash", "Monitor"}.intersection(names):
            return True
        found = simple_commands(command)
        return found is None or any(map(self._may_run, found))

    def _may_run(self, command: Simple) -> bool:
        """Return True unless a simple command certainly does not run what the rule names."""
        program, text = command.words[0], " ".join(command.words)
        programs = command.words if family(program) in _WRAPPERS else (program,)
        return (
            any(family(one) in _RUN_TEXT or one.startswith(_NEARBY) for one in programs)
            or (command.is_piped and program not in _FILTERS)
            or not all(map(_PLAIN.fullmatch, command.words))
            or (program not in _RUN_NOTHING and _COMPOSES.search(text) is not None)
            or self._is_in(text)
        )

    def _is_in(self, text: str) -> bool:
        """Return True if a text has the words of the rule in their order, with others between."""
        position = 0
        for word in self.words:
            found = word.search(text, position)
            if found is None:
                return False
            position = found.end()
        return True


def read_rule(field: str, value: object) -> str:
    """Check a rule of the option `approve` and return it.

    Raises:
        OptionsError: it is not a rule.
    """
    _ = _read(field, value)
    return str(value)


def rules_of(values: Iterable[str]) -> tuple[ApprovalRule, ...]:
    """Return the rules of the option `approve`, which were checked before."""
    return tuple(_read("approve", value) for value in values)


def _read(field: str, value: object) -> ApprovalRule:
    found = _RULE.fullmatch(value) if isinstance(value, str) else None
    if found is None or _TOOL.fullmatch(found["tool"]) is None:
        raise OptionsError(field, f"must be a rule, got {value!r:.80}", fix=_FIX)
    tool, pattern = found["tool"], found["pattern"]
    if tool.startswith("mcp__"):
        if pattern is not None:
            problem = f"has a pattern for the input of {tool!r:.80}, which is not supported"
            raise OptionsError(field, problem, fix="Leave the pattern out: every call waits.")
        name = tool.removesuffix("__*").removeprefix("mcp__")
        return ApprovalRule(tool if "__" in name and tool[-1] != "*" else f"mcp__{name}__")
    if pattern is None or pattern == "*":
        return ApprovalRule(tool)
    if tool != "Bash":
        problem = f"has a pattern for the input of {tool!r:.80}; only Bash can have one"
        fix = f"Use {tool!r:.80}, so that every call waits, or a PreToolUse hook."
        raise OptionsError(field, problem, fix=fix)
    text = re.sub(r"(?: |:)\*$", "", pattern)
    if _WORDS.fullmatch(text) is None:
        problem = f"has the pattern {pattern!r:.80}, which is not a program with fixed words"
        fix = (
            "Name the program and its subcommands, such as 'Bash(rm *)' or 'Bash(git push *)', "
            "without options and wildcards. Use 'Bash' to let every command wait."
        )
        raise OptionsError(field, problem, fix=fix)
    return ApprovalRule(tool, _finders(text))


def _finders(text: str) -> tuple[re.Pattern[str], ...]:
    """Return what finds each word of a rule in a command."""
    program, *others = text.split(" ")
    words = [program.rpartition("/")[2] or program, *others]
    return tuple(
        re.compile(
            rf"(?:(?<![A-Za-z0-9_])|{_GLUED}){re.escape(word)}(?![A-Za-z0-9_])", re.IGNORECASE
        )
        for word in words
    )
