"""The permission policy of a run: a TOML file with rules, checked in order.

    default = "ask"              # if no rule matches: allow, deny, or ask (the default)

    [[rule]]
    tool = ["Read", "mcp__docs__*"]
    decision = "allow"

    [[rule]]
    tool = "Bash"
    input.command = "git diff *" # all input keys of the rule must match
    decision = "allow"

    [[rule]]
    tool = "*"
    input.file_path = "*.env"
    decision = "deny"
    reason = "Secrets stay unread."

The first rule that matches decides. A rule that denies or asks also applies to calls that the CLI
would run without asking. A rule that allows answers permission requests of the CLI. If no rule
matches, ``default`` decides: ``deny`` denies every call, ``ask`` and ``allow`` apply only to
permission requests.

A rule that allows matches as little as possible: paths are resolved, a command must be one simple
command with literal words, and URLs are compared by their parts. A rule that denies or asks
matches as much as possible. If it is unclear whether it matches, the user is asked. A rule that
denies cannot have a command: a shell has too many ways to write one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from bridle._spi import names_of
from bridle.cli._policy.command_patterns import CommandPattern
from bridle.cli._policy.path_patterns import PathPattern, Place, here
from bridle.cli._policy.url_patterns import UrlConcern, UrlPattern
from bridle.cli._policy.wildcards import compiled
from bridle.errors import OptionsError

Decision = Literal["allow", "deny", "ask"]
Kind = Literal["command", "path", "url", "text"]

_PLAIN = r"(?!\.\.(?:/|$))[^;&|`$()<>\n\r\\]"
"""A character that a wildcard matches in a rule that allows, for input keys of unknown kind."""

# Tools of the CLI, used to detect mistakes in rules. The list is not complete, and MCP servers
# add tools.
_TOOLS = (
    *("Agent", "AskUserQuestion", "Bash", "Edit", "EnterPlanMode", "ExitPlanMode", "Glob", "Grep"),
    *("LSP", "ListAgents", "ListMcpResourcesTool", "Monitor", "MultiEdit", "NotebookEdit"),
    *("PowerShell", "REPL", "Read", "ReadMcpResourceDirTool", "ReadMcpResourceTool"),
    *("SendUserMessage", "Skill", "SlashCommand", "TaskCreate", "TaskGet", "TaskList"),
    *("TaskOutput", "TaskStop", "TaskUpdate", "TodoWrite", "ToolSearch", "WebFetch", "WebSearch"),
    *("Workflow", "Write"),
)
_BY_LOWER = {name.lower(): name for tool in _TOOLS for name in names_of(tool)}
_NOT_FILE_PATH: Mapping[str, str] = dict.fromkeys(
    ("path", "file", "filename", "filepath", "filePath"), "file_path"
)
_MISNAMED: Mapping[str, Mapping[str, str]] = {
    "Bash": dict.fromkeys(("cmd", "commands", "shell"), "command"),
    "Edit": _NOT_FILE_PATH,
    "Read": _NOT_FILE_PATH,
    "Write": _NOT_FILE_PATH,
    "WebFetch": dict.fromkeys(("uri", "link", "domain"), "url"),
}
"""Wrong names of input keys, and the right ones."""


_PATHS = ("file_path", "notebook_path", "path")
"""Input keys in which the tools of the CLI have a path."""

# A Glob pattern that begins with "/" or contains ".." can list files outside of its path. Braces,
# brackets and backslashes are removed before the check.
_GLOB_SIGNS = re.compile(r"[{}\[\]()\\,|!]")
_LEAVES = re.compile(r"\s*[/~]|[A-Za-z]:|.*\.\.", re.DOTALL)
_BRANCH_LEAVES = re.compile(r"\s*[{(!\\]|.*[{(,|]\s*[/~\\]", re.DOTALL)

_UNSANDBOXED = "dangerouslyDisableSandbox"
"""The input key of Bash that runs a command outside the CLI's sandbox."""


class RuleTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A rule as written in the file."""

    tool: str | list[str]
    decision: Decision
    input: dict[str, str] = {}
    reason: str = ""

    def __post_init__(self) -> None:
        # Reject a rule that can never match, because it only seems to protect something.
        if not self.tools:
            raise ValueError("tool is an empty list, so the rule never matches")
        for name in self.tools:
            _check_name(name)
            for field in self.input:
                _check_field(name, field)
        names_glob = any(_matches(name, "Glob") for name in self.tools)
        if self.decision == "deny" and "command" in self.input:
            # A shell has more ways to write a command than a pattern can name: r[m], env -S "rm".
            raise ValueError(
                "a rule that denies cannot have input.command: a pattern misses ways to write one. "
                'Allow what may run: tool = "Bash", input.command = "ls *", decision = "allow". '
                f"Then deny the rest: tool = {msgspec.json.encode(self.tool).decode()}, "
                'decision = "deny". To be asked about a command, use decision = "ask"'
            )
        if self.decision == "allow" and "pattern" in self.input and names_glob:
            raise ValueError("input.pattern of Glob does not limit the directory: write input.path")

    @property
    def tools(self) -> list[str]:
        """Return the tool names of the rule. They may contain wildcards."""
        return [self.tool] if isinstance(self.tool, str) else self.tool


class PolicyTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A policy as written in the file."""

    default: Decision = "ask"
    rule: list[RuleTable] = []


class Rule:
    """A rule: the decision on calls of certain tools with certain inputs.

    Raises:
        ValueError: the rule would allow more than its text suggests.
    """

    def __init__(self, table: RuleTable, place: Place) -> None:
        self.decision: Decision = table.decision
        self.reason = table.reason
        self._tools = table.tools
        self._names_sandbox = _UNSANDBOXED in table.input
        make = _allowing if table.decision == "allow" else _concerning
        self._members = {field: make(field, text, place) for field, text in table.input.items()}

    def fits(self, tool_name: str, tool_input: Mapping[str, Any], cwd: str | None) -> bool | None:
        """Return whether the rule matches a call; None if that is unclear."""
        if self.decision == "allow":
            return self._allows(tool_name, tool_input, cwd)
        if not any(_matches(name, alias) for name in self._tools for alias in names_of(tool_name)):
            return False
        answers = [
            _any(test(value, cwd) for value in _values(field, tool_name, tool_input))
            for field, test in self._members.items()
        ]
        if False in answers:
            return False
        return None if None in answers else True

    def _allows(self, tool_name: str, tool_input: Mapping[str, Any], cwd: str | None) -> bool:
        known = names_of(tool_name)
        is_meant = any(name in known or _matches(name, tool_name) for name in self._tools)
        if not is_meant:
            return False
        if self._members and tool_input.get(_UNSANDBOXED) and not self._names_sandbox:
            return False
        if self._members and tool_name == "Glob" and not _stays(tool_input.get("pattern")):
            return False
        return all(
            field in tool_input and test(tool_input[field], cwd) is True
            for field, test in self._members.items()
        )


class Ruling(msgspec.Struct, frozen=True):
    """The decision of a policy on a call, and the number of the rule, or 0 for the default."""

    decision: Decision
    rule: int = 0
    reason: str = ""

    @property
    def is_binding(self) -> bool:
        """True if the decision also applies to a call that the CLI would run without asking."""
        return self.decision == "deny" or (self.decision == "ask" and self.rule > 0)


class Policy:
    """The rules, and the default decision."""

    def __init__(self, default: Decision = "ask", rules: Sequence[Rule] = ()) -> None:
        self.default: Decision = default
        self.rules = rules

    @property
    def is_given(self) -> bool:
        """True if the policy has a rule or a default of its own."""
        return self.default != "ask" or bool(self.rules)

    def decide(
        self, tool_name: str, tool_input: Mapping[str, Any], cwd: str | None = None
    ) -> Ruling:
        """Return the decision on a call.

        ``cwd`` is the working directory of the call. If it is None (unknown), rules that allow do
        not match relative paths.
        """
        doubt = 0
        for number, rule in enumerate(self.rules, 1):
            fits = rule.fits(tool_name, tool_input, cwd)
            if fits is None:
                doubt = doubt or number
            elif fits and (rule.decision != "allow" or not doubt):
                return Ruling(rule.decision, number, rule.reason)
            elif fits:
                break
        if doubt and self.default != "deny":
            return Ruling("ask", doubt, f"it is unclear whether policy rule {doubt} matches")
        return Ruling(self.default)


def parse_policy(text: str, name: str, place: Place | None = None) -> Policy:
    """Parse the text of a policy file.

    ``name`` is the name of the file in errors. ``place`` is the directory of the run, by default
    the working directory. Paths in rules are resolved now.

    Raises:
        OptionsError: the text is not a policy, a rule can never match, or a rule would allow more
            than its text suggests.
    """
    fix = (
        "A rule has tool, decision (allow, deny or ask) and optionally input and reason. The only "
        "other key of a policy is default."
    )
    try:
        table = msgspec.convert(tomllib.loads(text), PolicyTable)
    except tomllib.TOMLDecodeError as error:
        raise OptionsError(name, f"is not valid TOML: {error}", fix="Correct that line.") from None
    except msgspec.ValidationError as error:
        what, where = _located(str(error), text)
        raise OptionsError(f"{name}{where}", f"is invalid: {what}", fix=fix) from None
    rules: list[Rule] = []
    for number, rule in enumerate(table.rule):
        try:
            rules.append(Rule(rule, place or here()))
        except ValueError as error:
            _, where = _located(f" - at `$.rule[{number}]`", text)
            fix = "Write exactly what may run, or use the decision 'ask'."
            raise OptionsError(f"{name}{where}", f"is invalid: {error}", fix=fix) from None
    return Policy(table.default, rules)


# ---------------------------------------------------------------- input keys

_Test = Callable[[object, str | None], bool | None]


def _kind(field: str) -> Kind:
    """Return the kind of value of an input key, derived from its name."""
    if field == "command":
        return "command"
    if field in ("url", "uri"):
        return "url"
    is_path = re.search(r"(?:^|_)(?:path|file|filename|dir|directory|folder|cwd)$|Path$", field)
    return "path" if is_path else "text"


def _allowing(field: str, pattern: str, place: Place) -> _Test:
    """Return the test of an input key in a rule that allows."""
    match _kind(field):
        case "command":
            command = CommandPattern(pattern, place, allows=True)
            return lambda value, cwd: isinstance(value, str) and command.allows(value, cwd)
        case "path":
            path = PathPattern(pattern, place)
            return lambda value, cwd: isinstance(value, str) and path.allows(value, cwd)
        case "url":
            url = UrlPattern(pattern)
            return lambda value, _: isinstance(value, str) and url.allows(value)
        case "text":
            return lambda value, _: _matches(pattern, _told(value), narrow=True)


def _concerning(field: str, pattern: str, place: Place) -> _Test:
    """Return the test of an input key in a rule that denies or asks. Only asking has commands."""
    match _kind(field):
        case "command":
            command = CommandPattern(pattern, place, allows=False)
            return lambda value, _: command.concerns(_told(value))
        case "path":
            path = PathPattern(pattern, place)
            return lambda value, cwd: path.concerns(_told(value), cwd)
        case "url":
            url = UrlConcern(pattern)
            return lambda value, _: url.concerns(_told(value))
        case "text":
            folded = pattern.casefold()
            return lambda value, _: _matches(folded, _told(value).casefold())


def _stays(pattern: object) -> bool:
    """Return whether a Glob with this pattern lists only files below its path."""
    if not isinstance(pattern, str) or not pattern:
        return False
    bare = _GLOB_SIGNS.sub("", pattern)
    return _LEAVES.match(bare) is None and _BRANCH_LEAVES.match(pattern) is None


def _values(field: str, tool_name: str, tool_input: Mapping[str, Any]) -> list[object]:
    """Return the values that an input key refers to in a rule that denies.

    A path key also refers to the other path keys, and to the pattern of a Glob.
    """
    fields: tuple[str, ...] = _PATHS if field in _PATHS else (field,)
    if tool_name == "Glob" and field in _PATHS:
        fields = (*fields, "pattern")
    return [tool_input[name] for name in fields if name in tool_input]


def _any(answers: Iterable[bool | None]) -> bool | None:
    known = list(answers)
    if True in known:
        return True
    return None if None in known else False


def _told(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# ---------------------------------------------------------------- mistakes in rules


def _check_name(name: str) -> None:
    """Reject a tool name, with or without wildcards, that no tool can have."""
    if "(" in name:
        tool, _, pattern = name.partition("(")
        meant = pattern.rstrip(")").replace(":*", " *")
        member = next(iter(_MISNAMED.get(tool, {}).values()), None)
        fix = f'tool = "{tool}" and input.{member} = "{meant}"' if member else f'tool = "{tool}"'
        raise ValueError(f"tool = {name!r} never matches: write {fix}")
    if re.fullmatch(r"[^\s,|()]+", name) is None:
        listed = [part for part in re.split(r"[\s,|()]+", name) if part]
        meant = f"write tool = {msgspec.json.encode(listed).decode()}" if listed else "name a tool"
        raise ValueError(f"tool = {name!r} never matches: {meant}")
    known = _BY_LOWER.get(name.lower(), name)
    if known != name:
        raise ValueError(f"tool = {name!r} never matches: write tool = {known!r}")


def _check_field(name: str, field: str) -> None:
    """Reject an input key that a known tool has under another name."""
    known = _MISNAMED.get(name, {}).get(field)
    if known is not None:
        raise ValueError(f"{name} has no input.{field}: write input.{known}")


def _located(problem: str, text: str) -> tuple[str, str]:
    """Return the problem with a value, and the place of the value in the file."""
    what, _, path = problem.partition(" - at `$")
    path = path.rstrip("`")
    indexed = re.match(r"\.rule\[(\d+)\]\.?", path)
    if indexed is None:
        return what, f", {path[1:]}" if path else ""
    number = int(indexed[1])
    line = _line_of_rule(number, text)
    place = f", rule {number + 1}" + (f" (line {line})" if line else "")
    field = path[indexed.end() :]
    return what, f"{place}, {field}" if field else place


def _line_of_rule(index: int, text: str) -> int | None:
    """Return the line where a rule begins; None if the rules are not written as tables."""
    heads = re.compile(r"\s*\[\[\s*rule\s*\]\]")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if heads.match(line)]
    return lines[index] if index < len(lines) else None


def _matches(pattern: str, text: str, *, narrow: bool = False) -> bool:
    return _compiled(pattern, narrow).fullmatch(text) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str, narrow: bool) -> re.Pattern[str]:  # noqa: FBT001  # cached by position
    return compiled(pattern, star=_PLAIN, mark=_PLAIN) if narrow else compiled(pattern)
