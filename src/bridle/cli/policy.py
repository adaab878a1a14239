"""The permission policy of a run: a TOML file of rules, tried from the top.

    default = "ask"              # where no rule fits: allow, deny, or ask (which is the default)

    [[rule]]
    tool = ["Read", "mcp__docs__*"]
    decision = "allow"

    [[rule]]
    tool = "Bash"
    input.command = "git *"      # every member named here must fit
    decision = "allow"

    [[rule]]
    tool = "*"
    input.file_path = "*.env"
    decision = "deny"
    reason = "Secrets stay unread."

The first rule that fits decides. A rule that denies or asks does so even where the CLI would have
let the call pass unasked; one that allows answers the CLI's question, if there is one. ``default``
speaks where no rule fits: ``deny`` denies all of it, the other two answer what the CLI asks about.

``*`` stands for any characters, ``?`` for any one, everything
else for itself. A rule that allows is read narrowly: there, the two do not stand for what would
make a command or a path mean more than the rule shows (``;``, ``&``, ``|``, a newline, ``../``…).

Nothing here reads a file: the text is given.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from bridle.errors import OptionsError

Decision = Literal["allow", "deny", "ask"]

_ANY = {"*": ".*", "?": "."}
_PLAIN = r"(?!\.\.(?:/|$))[^;&|`$()<>\n\r\\]"
_NARROW = {"*": f"(?:{_PLAIN})*", "?": f"(?:{_PLAIN})"}


# Tools of the CLI. Others exist, and servers bring their own: this is for catching mistakes only.
_TOOLS = (
    *("Agent", "AskUserQuestion", "Bash", "BashOutput", "Edit", "EnterPlanMode", "ExitPlanMode"),
    *("Glob", "Grep", "KillShell", "LSP", "ListMcpResourcesTool", "MultiEdit", "NotebookEdit"),
    *("Read", "ReadMcpResourceTool", "Skill", "SlashCommand", "Task", "TodoWrite", "ToolSearch"),
    *("WebFetch", "WebSearch", "Write"),
)
_BY_LOWER = {name.lower(): name for name in _TOOLS}
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
"""Names that members of an input do not have, and those they have."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is decided about calls of these tools, with such an input."""

    tool: str | list[str]
    decision: Decision
    input: dict[str, str] = {}
    reason: str = ""

    def __post_init__(self) -> None:
        # A rule that can never fit is worse than none: it looks as if it protected something.
        if not self.tools:
            raise ValueError("tool is an empty list, so the rule never fits")
        for name in self.tools:
            _check_name(name)
            for field in self.input:
                _check_field(name, field)

    @property
    def tools(self) -> list[str]:
        """The names, with wildcards, of the tools that are meant."""
        return [self.tool] if isinstance(self.tool, str) else self.tool

    def fits(self, tool_name: str, tool_input: Mapping[str, Any]) -> bool:
        """Whether a call is meant."""
        return any(_matches(name, tool_name) for name in self.tools) and all(
            field in tool_input and self._fits_value(pattern, tool_input[field])
            for field, pattern in self.input.items()
        )

    def _fits_value(self, pattern: str, value: object) -> bool:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if self.decision == "allow":
            return _matches(pattern, text, narrow=True)
        # The CLI resolves paths before it asks, but for slashes at the end that change nothing.
        return _matches(pattern, text) or _matches(pattern, text.rstrip("/"))


class Ruling(msgspec.Struct, frozen=True):
    """What a policy says about a call, and which rule said so: its number, or 0 for none."""

    decision: Decision
    rule: int = 0
    reason: str = ""

    @property
    def is_binding(self) -> bool:
        """Whether it holds even for a call that the CLI would let pass unasked."""
        return self.decision == "deny" or (self.decision == "ask" and self.rule > 0)


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rules, and what holds where none fits."""

    default: Decision = "ask"
    rule: list[Rule] = []

    @property
    def can_bind(self) -> bool:
        """Whether some ruling may be a binding one."""
        return self.default == "deny" or any(rule.decision != "allow" for rule in self.rule)

    def decide(self, tool_name: str, tool_input: Mapping[str, Any]) -> Ruling:
        """The ruling on a call."""
        for number, rule in enumerate(self.rule, 1):
            if rule.fits(tool_name, tool_input):
                return Ruling(rule.decision, number, rule.reason)
        return Ruling(self.default)


def parse_policy(text: str, name: str) -> Policy:
    """The policy in a file's text; ``name`` is what an error calls it.

    Raises:
        OptionsError: it is none; says where and why.
    """
    try:
        return msgspec.convert(tomllib.loads(text), Policy)
    except tomllib.TOMLDecodeError as error:
        raise OptionsError(name, f"is not TOML: {error}", fix="Mend that line.") from None
    except msgspec.ValidationError as error:
        what, where = _located(str(error), text)
        fix = (
            "A rule has tool, decision (allow, deny or ask) and, if you like, input and reason; "
            "outside of rules there is only default."
        )
        raise OptionsError(f"{name}{where}", what, fix=fix) from None


def _check_name(name: str) -> None:
    """Refuse what no tool is called, wildcards or not."""
    if "(" in name:
        tool, _, pattern = name.partition("(")
        meant = pattern.rstrip(")").replace(":*", " *")
        member = next(iter(_MISNAMED.get(tool, {}).values()), None)
        fix = f'tool = "{tool}" and input.{member} = "{meant}"' if member else f'tool = "{tool}"'
        raise ValueError(f"tool = {name!r} never fits: write {fix}")
    if re.fullmatch(r"[^\s,|()]+", name) is None:
        listed = [part for part in re.split(r"[\s,|()]+", name) if part]
        meant = f"write tool = {msgspec.json.encode(listed).decode()}" if listed else "name a tool"
        raise ValueError(f"tool = {name!r} never fits: {meant}")
    known = _BY_LOWER.get(name.lower(), name)
    if known != name:
        raise ValueError(f"tool = {name!r} never fits: write tool = {known!r}")


def _check_field(name: str, field: str) -> None:
    """Refuse a member that a well-known tool does not have, but has under another name."""
    known = _MISNAMED.get(name, {}).get(field)
    if known is not None:
        raise ValueError(f"input.{field} never fits, {name} has none: write input.{known}")


def _located(problem: str, text: str) -> tuple[str, str]:
    """A complaint about a value, and where in the file that value is."""
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
    """The line where a rule begins; None where rules are not written as tables."""
    heads = re.compile(r"\s*\[\[\s*rule\s*\]\]")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if heads.match(line)]
    return lines[index] if index < len(lines) else None


def _matches(pattern: str, text: str, *, narrow: bool = False) -> bool:
    return _compiled(pattern, narrow).fullmatch(text) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str, narrow: bool) -> re.Pattern[str]:  # noqa: FBT001  # cached by position
    stands_for = _NARROW if narrow else _ANY
    parts: Sequence[str] = [stands_for.get(char) or re.escape(char) for char in pattern]
    return re.compile("".join(parts), re.DOTALL)
