"""Generate parts of the documentation from the code, so that they are always correct.

Every public function returns Markdown. `tools/build_docs.py` inserts it into the pages, between
the comments ``<!-- begin generated: name -->`` and ``<!-- end generated -->``.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import bridle
from bridle._engine.incoming.hook_rules import RULES, EventRule
from bridle._engine.incoming.mcp.messages_of_servers import MAX_EARLY
from bridle._engine.incoming.open_requests import MAX_OPEN_REQUESTS
from bridle._engine.outgoing.operations import OPERATIONS
from bridle._engine.outgoing.requests import MAX_PENDING_REQUESTS, MAX_QUEUED
from bridle._records.fields import Channel, Field, Record, always
from bridle.cli import COMMANDS
from bridle.cli.diagnosis import Problem
from bridle.cli.exits import ExitCode
from bridle.events import WarningKind
from bridle.hooks import CONTEXTS
from bridle.options import WEAKENING_VARIABLES, AgentConfig, Limits, Retry, option_rows
from bridle.options._precedence import variable_of
from bridle.outcomes import OUTCOME_ERRORS, OutcomeReason
from bridle.testing.fake_cli import PROMPT_WORDS
from bridle.testing.recording import read_recording

REPOSITORY = Path(__file__).resolve().parent.parent
GOLDEN = REPOSITORY / "tests/wire/golden"

Row = Sequence[str]


def table(head: Row, rows: Iterable[Row]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    for row in lines:
        assert not any("|" in cell for cell in row), row  # Markdown parsers escape it differently
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def code(text: str) -> str:
    """Return inline code; an empty string for an empty text."""
    return f"`{text}`" if text else ""


# ---------------------------------------------------------------- options

_SIZES = {1024 * 1024: "MiB"}


def _default(row: Field) -> str:
    value = row.default
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        for size, unit in _SIZES.items():
            if value >= size and value % size == 0:
                return f", {value // size} {unit}"
    return f", {code(repr(value))}"


def _type(annotation: object) -> str:
    """Return a type in words: its alternatives, without the None that means "not set"."""
    parts = [""]
    depth = 0
    for character in str(annotation):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += " or " if character == "|" else character
    words = [re.sub(" +", " ", part.strip()) for part in parts]
    return " or ".join(code(word) for word in words if word != "None")


_CHANNELS: Mapping[str, Callable[[Channel], str]] = {
    "flag": lambda channel: f"flag {_names(channel)}",
    "each": lambda channel: f"flag {_names(channel)}, once per item",
    "document": lambda channel: f"flag {_names(channel)}, the content in a private file",
    "initialize": lambda channel: f"initialize {code(channel.name)}",
    "prompt": lambda channel: f"field {code(channel.name)} of each prompt",
    "settings": lambda channel: f"settings {code(channel.name)}",
    "variable": lambda channel: f"variable {code(channel.name)}",
    "process": lambda channel: f"process: {channel.name}",
    "sdk": lambda channel: "stays in Bridle",
}


def _names(channel: Channel) -> str:
    return code(channel.name)


_MERGES = {"replace": "", "append": " (appends)", "deep": " (merges)"}


def _sources(row: Field) -> str:
    """Return the other sources that can set an option, besides the program."""
    variable = code(variable_of(row)) if _counts_from_variable(row) else ""
    file = "file that the program names" if row.weakens is not None else "file"
    if row.weakens not in (None, always, bool):  # it depends on the value
        file = "file (with restrictions)"
    words = ", ".join(filter(None, [variable, file if row.config else ""]))
    return f"also: {words}{_MERGES[row.merge]}" if words else "program only"


def _counts_from_variable(row: Field) -> bool:
    return row.env is not None and row.weakens is not always


def _options(record: type[Record], rows: Iterable[Field]) -> str:
    types = record.__annotations__
    return table(
        ["option", "meaning and type", "how it reaches the CLI, and other sources that can set it"],
        [
            [
                f'<span id="{record.__name__}.{row.name}"></span>`{row.name}`',
                f"{row.doc}<br>{_type(types[row.name])}{_default(row)}",
                f"{_CHANNELS[row.channel.kind](row.channel)}<br>{_sources(row)}",
            ]
            for row in rows
        ],
    )


def _from_table(name: str) -> str:
    rows = [row for record, row in option_rows() if record == name]
    from bridle import options

    return _options(getattr(options, name), rows)


def cli_options() -> str:
    """Return the table of `CliOptions`."""
    return _from_table("CliOptions")


def sdk_options() -> str:
    """Return the table of `SdkOptions`."""
    return _from_table("SdkOptions")


def bidir_options() -> str:
    """Return the table of `BidirOptions`."""
    return _from_table("BidirOptions")


def limits() -> str:
    """Return the table of the fields of `Limits`."""
    return table(
        ["limit", "type", "meaning"],
        [
            [
                f'<span id="Limits.{name}"></span>`{name}`',
                _type(Limits.__annotations__[name]),
                row.doc,
            ]
            for name, row in Limits.fields.items()
        ],
    )


def retry() -> str:
    """Return the table of the fields of `Retry`."""
    return table(
        ["field", "type", "meaning"],
        [
            [
                f'<span id="Retry.{name}"></span>`{name}`',
                f"{_type(Retry.__annotations__[name])}, `{row.default!r}`",
                row.doc,
            ]
            for name, row in Retry.fields.items()
        ],
    )


_AGENT_KEYS = {"name": "the key of the mapping", "extra": "its own keys"}
"""Where fields of `AgentConfig` go that have no key of their own."""


def agent_config() -> str:
    """Return the table of the fields of `AgentConfig`."""
    return table(
        ["field", "type", "name in the CLI", "meaning"],
        [
            [
                code(name),
                _type(AgentConfig.__annotations__[name]),
                {"name": "the key of the mapping", "extra": "its own keys"}.get(name)
                or code(row.channel.name),
                row.doc + (" Required." if row.required else ""),
            ]
            for name, row in AgentConfig.fields.items()
        ],
    )


def variables() -> str:
    """Return the table of environment variables that set options."""
    return table(
        ["variable", "option", "meaning"],
        [
            [code(variable_of(row)), code(f"{record}.{row.name}"), row.doc]
            for record, row in option_rows()
            if _counts_from_variable(row)
        ],
    )


def gate_options() -> str:
    """List the options that can weaken hooks or permissions, so the environment cannot set them."""
    return "\n".join(
        f"- {code(f'{record}.{row.name}')}{_EXCEPT.get(row.name, '')}"
        for record, row in option_rows()
        if row.weakens is not None
    )


_EXCEPT = {
    "permission_mode": ", except `default`, `manual`, `plan` and `dontAsk`",
    "env": f", if it sets {' or '.join(map(code, WEAKENING_VARIABLES))}",
}


def merged_options() -> str:
    """Return the table of options whose sources are combined instead of replaced."""
    meanings = {
        "append": "the file's items first, then the program's",
        "deep": "key by key, also in nested objects; for the same key, the program wins",
    }
    return table(
        ["option", "how its sources are combined"],
        [
            [code(f"{record}.{row.name}"), meanings[row.merge]]
            for record, row in option_rows()
            if row.merge != "replace"
        ],
    )


# ---------------------------------------------------------------- outcomes, events, exit codes


def outcomes() -> str:
    """Return the table of all reasons of an outcome, with error class and advice."""
    rows = []
    for reason in OutcomeReason:
        error = OUTCOME_ERRORS.get(reason)
        if error is None:
            rows.append([code(reason), "none", "The turn ended normally.", ""])
        else:
            kind = " (`TimeoutError`)" if issubclass(error, TimeoutError) else ""
            meaning = " ".join((error.__doc__ or "").split())
            rows.append([code(reason), code(error.__name__) + kind, meaning, error.advice])
    return table(["reason", "error class", "what happened", "what to do"], rows)


def warnings() -> str:
    """Return the table of all kinds of warnings."""
    return table(
        ["kind", "level", "what happened, and what Bridle did"],
        [[code(kind), kind.level, kind.meaning] for kind in WarningKind],
    )


def exit_codes() -> str:
    """Return the table of exit codes of `bridle run`."""
    return table(["code", "meaning"], [[str(int(one)), one.meaning] for one in ExitCode])


def doctor_codes() -> str:
    """Return the table of exit codes of `bridle doctor`."""
    rows = [["0", "healthy"], *([str(int(one)), one.meaning] for one in Problem)]
    return table(["code", "meaning"], rows)


def command(name: str) -> str:
    """Return the table of arguments of a command."""
    parser = argparse.ArgumentParser(add_help=False)
    import_module(COMMANDS[name][0]).arguments(parser)
    rows = []
    for action in parser._actions:
        words = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        takes = f" {action.metavar}" if action.option_strings and action.metavar else ""
        rows.append([code(words + takes), action.help or ""])
    return table(["argument", "meaning"], rows)


def prompt_words() -> str:
    """Return the table of words that control an automatic fake CLI."""
    rows = (words.partition(": ") for words in PROMPT_WORDS.values())
    return table(["line of the prompt", "what the model does"], [[code(a), b] for a, _, b in rows])


# ---------------------------------------------------------------- hooks and operations


def _can_block(rule: EventRule) -> str:
    if rule.block is None:
        return "no; Bridle warns"
    return "yes" if rule.surely_blocks else "not reliably; Bridle always warns"


def hook_events() -> str:
    """Return the table of hook events: context, field of the matcher, whether `Block` works."""
    return table(
        ["event", "context", "a matcher is compared with", "`Block` works", "can add context"],
        [
            [
                code(event),
                f"[`{context.__name__}`][{public_path('bridle.hooks', context.__name__)}]",
                code(RULES[event].subject or "") or "nothing; it has no effect",
                _can_block(RULES[event]),
                "yes" if "additionalContext" in RULES[event].specific else "",
            ]
            for event, context in CONTEXTS.items()
        ],
    )


def operations() -> str:
    """Return the table of control requests whose fields are checked before they are sent."""
    return table(
        ["subtype", "fields"],
        [
            [
                code(subtype),
                "; ".join(
                    f"`{field.name}`: {field.expected}{'' if field.required else ' (optional)'}"
                    for field in operation.fields
                ),
            ]
            for subtype, operation in OPERATIONS.items()
            if operation.fields
        ],
    )


_RESULTS = REPOSITORY / "tests" / "wire" / "control_operations.json"


def control_operations() -> str:
    """Return the table of typed operations, with what each tested CLI did with them."""
    recorded: dict[str, dict[str, str]] = json.loads(_RESULTS.read_text("utf-8"))
    versions = sorted(recorded, key=lambda version: [*map(int, version.split("."))], reverse=True)
    rows = []
    for row in OPERATIONS.values():
        reply = (
            "" if row.reply is type(None) else f"[{code(row.reply.__name__)}][{_path(row.reply)}]"
        )
        shown = [recorded[version].get(row.method, "not tested") for version in versions]
        wait = "" if row.timeout_factor == 1 else f"{row.timeout_factor} times"
        rows.append([code(f"session.{row.method}()"), code(row.subtype), reply, wait, *shown])
    return table(["operation", "subtype", "reply", "default timeout", *versions], rows)


def _path(reply: type) -> str:
    return f"bridle.controls.{reply.__name__}"


def bounds() -> str:
    """Return the table of limits of the engine."""
    return table(
        ["what waits", "at most", "what happens to the next one"],
        [
            ["operations issued before the session runs", str(MAX_QUEUED), "`InitQueueOverflow`"],
            [
                "control requests that the CLI has not answered",
                str(MAX_PENDING_REQUESTS),
                "`TooManyPendingRequests`",
            ],
            [
                "open requests of the CLI: hooks, permissions, tool calls",
                str(MAX_OPEN_REQUESTS),
                "it is rejected: a hook that decides blocks, a permission is denied, "
                "a tool call gets an error",
            ],
            [
                "messages for in-process servers before the session runs",
                str(MAX_EARLY),
                "the oldest one is answered with an error and dropped",
            ],
        ],
    )


# ---------------------------------------------------------------- names


PUBLIC_MODULES = {
    "bridle": "`Agent`, `run`, `query`, sessions, and the names that most programs need",
    "bridle.agent": "`Agent` and its pools, their blocking versions, and the types of keywords",
    "bridle.options": "option records",
    "bridle.outcomes": "outcomes",
    "bridle.approvals": "tool calls that wait for a person",
    "bridle.errors": "exceptions",
    "bridle.events": "events and warnings",
    "bridle.messages": "messages, stream events, token usage",
    "bridle.content": "content blocks and prompts",
    "bridle.hooks": "contexts and results of hooks",
    "bridle.permissions": "contexts and results of permission, question and plan callbacks",
    "bridle.terminal": "callbacks that ask on the terminal of your program",
    "bridle.tools": "tools in your process",
    "bridle.operations": "groups of typed operations of a session",
    "bridle.controls": "replies to operations, control requests and responses",
    "bridle.telemetry": "observations",
    "bridle.otel": "OpenTelemetry",
    "bridle.sync": "blocking versions of `run`, `query` and sessions",
    "bridle.sessions": "stored sessions: list, read, change, export; session stores",
    "bridle.compat": "programs for the official SDK",
    "bridle.testing": "scripted model, fake CLI",
    "bridle.testing.recording": "recordings",
    "bridle.testing.replaying": "replay of recordings",
    "bridle.testing.comparing": "differences between a replay and its recording",
    "bridle.testing.cassette": "cassettes",
    "bridle.testing.stores": "checks for session stores",
}
"""The public modules, with a description of each."""


def public_path(module: str, name: str) -> str:
    """Return the shortest public path of a name: in `bridle` if it is exported there."""
    value = getattr(import_module(module), name)
    is_common = name in bridle.__all__ and getattr(bridle, name) is value
    return f"bridle.{name}" if is_common else f"{module}.{name}"


def modules() -> str:
    """Return the table of public modules, with the names that `bridle` does not export."""
    rows = []
    for module, meaning in PUBLIC_MODULES.items():
        paths = [public_path(module, name) for name in import_module(module).__all__]
        own = [path for path in paths if path.rpartition(".")[0] == module]
        rows.append([code(module), meaning, ", ".join(f"[{_last(path)}][{path}]" for path in own)])
    return table(["module", "contains", "names that you import from this module"], rows)


def _last(path: str) -> str:
    return code(path.rpartition(".")[2])


def names(source: str, module: str | None = None) -> str:
    """Return a reference entry for every public name that a module defines, in order.

    `module` is the public module that exports the names, if it is a different one.
    """
    face = module or source
    here, exported = import_module(source), import_module(face).__all__
    path = Path(here.__file__ or "")
    defined = (name for node in ast.parse(path.read_text("utf-8")).body for name in _named(node))
    # Two modules may define the same name, but only one of them is public.
    public = (
        name
        for name in dict.fromkeys(defined)
        if name in exported and getattr(import_module(face), name) is getattr(here, name)
    )
    return "\n\n".join(f"::: {public_path(face, name)}" for name in public)


def _named(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef(name=name):
            return [name]
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            is_overload = any(ast.unparse(one) == "overload" for one in node.decorator_list)
            return [] if is_overload else [node.name]
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return [name]
        case ast.ImportFrom(names=passed):  # passed on: from below import NAME as NAME
            return [one.name for one in passed if one.asname == one.name]
        case ast.If(body=body):
            return [name for inner in body for name in _named(inner)]
        case _:
            return []


# ---------------------------------------------------------------- frames

_LONGEST_TEXT = 60
_LONGEST_LIST = 2
_WIDTH = 90
_MORE = "…"


def _short(value: Any) -> Any:
    """Shorten a JSON value, but keep its structure."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}{_MORE}"
    if isinstance(value, list):
        kept = [_short(item) for item in value[:_LONGEST_LIST]]
        return kept if len(value) <= _LONGEST_LIST else [*kept, _MORE]
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return value


def _pretty(value: Any, indent: str = "") -> str:
    """Format JSON on one line, or with one line for each member if it would be too long."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, list | dict) or len(indent) + len(line) <= _WIDTH:
        return line
    inner = f"{indent}  "
    if isinstance(value, list):
        parts = [_pretty(item, inner) for item in value]
    else:
        parts = [f'"{name}": {_pretty(item, inner)}' for name, item in value.items()]
    opening, closing = "[]" if isinstance(value, list) else "{}"
    return f"{opening}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{closing}"


def _only(body: dict[str, Any], names: str) -> dict[str, Any]:
    """Return the named members (all if none is named), and a mark if others were left out."""
    if not names:
        return body
    kept = {name: body[name] for name in names.split(",")}
    return kept if len(kept) == len(body) else {**kept, _MORE: _MORE}


def frame(path: str, direction: str, kind: str, subtype: str = "", members: str = "") -> str:
    """Return the first line of a recording with this direction, type and subtype.

    `members` names the members to show: of the line, of the request, or of the response.
    """
    for entry in read_recording(GOLDEN / f"{path}.ndjson"):
        line: Any = entry.members
        body = line.get("request") or line.get("response") or line
        if entry.direction != direction or line.get("type") != kind:
            continue
        if subtype not in ("", body.get("subtype")):
            continue
        line = _short(line)
        if "request" in line:
            line["request"] = _only(line["request"], members)
        elif "response" in line:
            answer = line["response"]
            line["response"] = {
                "subtype": answer["subtype"],
                "request_id": answer["request_id"],
                "response": _only(answer.get("response", {}), members),
            }
        else:
            line = _only(line, members)
        return f"```json\n{_pretty(line)}\n```"
    raise LookupError(f"{path} has no {direction} {kind} {subtype}")


# ---------------------------------------------------------------- examples


def examples() -> str:
    """Return a description and the source of every example."""
    parts = []
    for path in sorted((REPOSITORY / "examples").glob("*.py")):
        doc = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        lines = [line for line in doc.splitlines() if not line.startswith("$ ")]
        text = "\n".join(lines).strip()
        parts.append(
            f"## {path.name}\n\n{text}\n\n"
            f'??? quote "examples/{path.name}"\n\n'
            f'    ```python\n    --8<-- "examples/{path.name}"\n    ```'
        )
    return "\n\n".join(parts)
