"""What each package offers: collect the names of options, flags, requests, messages and so on.

Every source has one method per kind of name, called as in `KINDS`. A source without the method
says nothing about that kind. All names are read from the packages at run time.
"""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from bridle import _pool, _session, sync
from bridle._engine.outgoing import operations
from bridle._process.launch import plan as launch
from bridle.content import Block
from bridle.controls import ControlFrame, IncomingRequest
from bridle.hooks import HOOK_EVENTS
from bridle.messages._message import Message
from bridle.messages._stream_objects import ApiEvent, Delta
from bridle.messages._system import SYSTEM_KINDS
from bridle.options import (
    BidirOptions,
    CliOptions,
    Effort,
    PermissionMode,
    SdkOptions,
    SettingSource,
    managed_flags,
    option_rows,
)
from bridle.options._agents import AgentConfig
from typescript_types import Declarations, literals

KINDS: dict[str, str] = {
    "options": "options",
    "flags": "command-line flags",
    "initialize_fields": "fields of initialize",
    "agent_fields": "fields of a subagent",
    "control_requests": "control requests",
    "hook_events": "hook events",
    "messages": "messages",
    "blocks": "content blocks",
    "stream_events": "stream events and deltas",
    "permission_modes": "permission modes",
    "efforts": "efforts",
    "setting_sources": "setting sources",
}
"""Every kind of name that is compared, with its title."""


def names(source: object, kind: str) -> set[str]:
    """Return the names of this kind that a source offers.

    Raises:
        LookupError: the source should have such names, but none were found. The package has
            changed, and this module must learn where they are now.
    """
    collect = getattr(source, kind, None)
    if collect is None:
        return set()
    if not (found := set(collect())):
        raise LookupError(f"{type(source).__name__} has no {KINDS[kind]}: adapt {__name__}")
    return found


def snake_case(name: str) -> str:
    """Return a camel-case name as Python spells it."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


# ---------------------------------------------------------------- Bridle


class Bridle:
    """The names in the tables and classes of this repository."""

    def options(self) -> Iterable[str]:
        return (row.name for _, row in option_rows())

    def flags(self) -> Iterable[str]:
        nil = "00000000-0000-4000-8000-000000000000"
        plan = launch.plan_session(CliOptions(), SdkOptions(), BidirOptions(), session_id=nil)
        return {*managed_flags(), *(argument.partition("=")[0] for argument in plan.argv)}

    def initialize_fields(self) -> Iterable[str]:
        """Return the fields that options set, and those that planning adds."""
        rows = {row.channel.name for _, row in option_rows() if row.channel.kind == "initialize"}
        planned = _keys_set(_parsed(Path(launch.__file__)), constants=vars(launch))
        return rows.union(planned)

    def agent_fields(self) -> Iterable[str]:
        return AgentConfig.fields

    def control_requests(self) -> Iterable[str]:
        """Return the requests that have a method, and those of the CLI that Bridle decodes.

        The subtype of a request is a literal, so every literal counts that is an argument of a
        call in the doors or in the module of the operations.
        """
        doors = [Path(str(one.__file__)).parent for one in (_pool, _session, sync)]
        modules = [path for door in doors for path in door.rglob("*.py")]
        paths = [Path(operations.__file__), *modules]
        sent = {text for path in paths for text in _arguments(_parsed(path))}
        return {"initialize", *sent, *_tags(IncomingRequest)}

    def hook_events(self) -> Iterable[str]:
        return HOOK_EVENTS

    def messages(self) -> Iterable[str]:
        lines = {*_tags(Message), *_tags(ControlFrame)} - {"system"}
        return {*lines, *(f"system/{subtype}" for subtype in SYSTEM_KINDS)}

    def blocks(self) -> Iterable[str]:
        return _tags(Block)

    def stream_events(self) -> Iterable[str]:
        return {*_tags(ApiEvent), *_tags(Delta)}

    def permission_modes(self) -> Iterable[str]:
        return _choices(PermissionMode)

    def efforts(self) -> Iterable[str]:
        return _choices(Effort)

    def setting_sources(self) -> Iterable[str]:
        return _choices(SettingSource)


def _tags(family: Any) -> Iterator[str]:
    """Yield the tags of all classes below a msgspec class."""
    for kind in family.__subclasses__():
        yield from _tags(kind)
        if isinstance(tag := kind.__struct_config__.tag, str):
            yield tag


def _choices(annotation: object) -> Iterator[str]:
    """Yield the values of the literals in a type."""
    for part in get_args(annotation):
        if isinstance(part, str):
            yield part
        else:
            yield from _choices(part)


# ---------------------------------------------------------------- the official Python package


class PythonSdk:
    """The installed package ``claude_agent_sdk``: its types, and literals in its source."""

    def __init__(self, package: ModuleType) -> None:
        self._types: Any = package.types
        self._root = Path(str(package.__file__)).parent
        self._trees = [_parsed(path) for path in sorted(self._root.rglob("*.py"))]

    @property
    def cli(self) -> Path:
        """Return the path of the CLI that the package contains."""
        return self._root / "_bundled" / "claude"

    def options(self) -> Iterable[str]:
        return (field.name for field in dataclasses.fields(self._types.ClaudeAgentOptions))

    def flags(self) -> Iterable[str]:
        for function in self._functions("_build_command"):
            for text in _texts(function):
                if found := re.fullmatch(r"(--[a-z][\w-]*)=?", text, re.IGNORECASE):
                    yield found[1]

    def initialize_fields(self) -> Iterable[str]:
        for function in self._functions("initialize"):
            for node in ast.walk(function):
                if isinstance(node, ast.Dict):
                    keys = _keys(node)
                    yield from {*keys} - {"subtype"} if "subtype" in keys else ()
            yield from _keys_set(function, "request")

    def agent_fields(self) -> Iterable[str]:
        fields = dataclasses.fields(self._types.AgentDefinition)
        return (snake_case(field.name) for field in fields)

    def control_requests(self) -> Iterable[str]:
        """Return the subtypes of the requests that the client sends, and of those it handles."""
        for tree in self._trees:
            for node in ast.walk(tree):
                if isinstance(node, ast.Dict):
                    keys = _keys(node)
                    if isinstance(keys.get("subtype"), str) and not {"type", "request_id"} & {
                        *keys
                    }:
                        yield str(keys["subtype"])
        for function in self._functions("_handle_control_request"):
            yield from _compared(function, "subtype")

    def hook_events(self) -> Iterable[str]:
        return _choices(self._types.HookEvent)

    def messages(self) -> Iterable[str]:
        for function in self._functions("parse_message"):
            yield from set(_cases(function, "message_type")) - {"system"}
            subtypes = {*_cases(function, "subtype"), *_compared(function, "data.get('subtype')")}
            yield from (f"system/{subtype}" for subtype in subtypes)

    def blocks(self) -> Iterable[str]:
        for function in self._functions("parse_message"):
            yield from _cases(function, "block['type']")

    def permission_modes(self) -> Iterable[str]:
        return _choices(self._types.PermissionMode)

    def efforts(self) -> Iterable[str]:
        return _choices(self._types.EffortLevel)

    def setting_sources(self) -> Iterable[str]:
        return _choices(self._types.SettingSource)

    def _functions(self, name: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Return the functions of this name. Raise LookupError if there is none."""
        found = [
            node
            for tree in self._trees
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name
        ]
        if not found:
            raise LookupError(f"claude_agent_sdk has no function {name}: adapt {__file__}")
        return found


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _texts(tree: ast.AST) -> Iterator[str]:
    """Yield the string literals of a module, without its docstrings."""
    docs = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def _arguments(tree: ast.AST) -> Iterator[str]:
    """Yield the string literals that are positional arguments of calls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value


def _keys(node: ast.Dict) -> dict[str, object]:
    """Return the literal keys of a dict display, each with its value if that is a literal."""
    return {
        str(key.value): value.value if isinstance(value, ast.Constant) else None
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant)
    }


def _keys_set(
    tree: ast.AST, name: str | None = None, *, constants: Mapping[str, object] | None = None
) -> Iterator[str]:
    """Yield the keys that assignments set, such as ``name["key"] = …``.

    A key is a literal, or the name of one of these constants.
    """
    for node in ast.walk(tree):
        for place in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(place, ast.Subscript) and name in (None, ast.unparse(place.value)):
                yield from _texts(place.slice)
                if isinstance(place.slice, ast.Name):
                    value = (constants or {}).get(place.slice.id)
                    yield from [value] if isinstance(value, str) else ()


def _cases(function: ast.AST, subject: str) -> Iterator[str]:
    """Yield the literals in the cases of ``match subject``."""
    for node in ast.walk(function):
        if isinstance(node, ast.Match) and ast.unparse(node.subject) == subject:
            for case in node.cases:
                yield from _texts(case.pattern)


def _compared(function: ast.AST, subject: str) -> Iterator[str]:
    """Yield the literals that an expression is compared with."""
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and ast.unparse(node.left) == subject:
            for other in node.comparators:
                yield from _texts(other)


# ---------------------------------------------------------------- the TypeScript package


class TypeScriptSdk:
    """The declarations of the TypeScript package, and of the API package that it builds on."""

    def __init__(self, sdk: Path, api: Path) -> None:
        self._sdk = Declarations(sdk.read_text("utf-8"))
        self._api = Declarations(api.read_text("utf-8"))

    def options(self) -> Iterable[str]:
        return map(snake_case, self._sdk.fields("Options"))

    def initialize_fields(self) -> Iterable[str]:
        return {*self._sdk.fields("SDKControlInitializeRequest")} - {"subtype"}

    def agent_fields(self) -> Iterable[str]:
        return map(snake_case, self._sdk.fields("AgentDefinition"))

    def control_requests(self) -> Iterable[str]:
        return _literals(self._sdk, "SDKControlRequestInner", "subtype")

    def hook_events(self) -> Iterable[str]:
        return self._sdk.union("HookEvent")

    def messages(self) -> Iterable[str]:
        for name in self._sdk.union("StdoutMessage"):
            fields = self._sdk.fields(name)
            [kind] = literals(fields["type"].type)
            if kind == "system":
                yield from (f"system/{subtype}" for subtype in literals(fields["subtype"].type))
            else:
                yield kind

    def blocks(self) -> Iterable[str]:
        yield from _literals(self._api, "BetaContentBlock", "type")
        yield from _literals(self._api, "BetaContentBlockParam", "type")

    def stream_events(self) -> Iterable[str]:
        yield from _literals(self._api, "BetaRawMessageStreamEvent", "type")
        yield from _literals(self._api, "BetaRawContentBlockDelta", "type")

    def permission_modes(self) -> Iterable[str]:
        return self._sdk.union("PermissionMode")

    def efforts(self) -> Iterable[str]:
        return self._sdk.union("EffortLevel")

    def setting_sources(self) -> Iterable[str]:
        return self._sdk.union("SettingSource")


def _literals(declarations: Declarations, union: str, field: str) -> Iterator[str]:
    """Yield the literals of one field in all members of a union."""
    for name in declarations.union(union):
        yield from literals(declarations.fields(name)[field].type)


# ---------------------------------------------------------------- the CLIs


class Cli:
    """What ``claude --help`` prints, for one or more CLIs."""

    def __init__(self, *paths: Path) -> None:
        self._help = [_help(path) for path in paths]

    def flags(self) -> Iterable[str]:
        for text in self._help:
            yield from flags_in(text)

    def permission_modes(self) -> Iterable[str]:
        for text in self._help:
            yield from _quoted(text, "--permission-mode")


def flags_in(text: str) -> Iterator[str]:
    """Yield the long flags that a help text lists."""
    options = text.partition("\nOptions:\n")[2].partition("\nCommands:\n")[0]
    for found in re.finditer(r"^ {2}(?:-\w, )?(--[\w-]+(?:, --[\w-]+)*)", options, re.MULTILINE):
        yield from found[1].split(", ")


def _quoted(text: str, flag: str) -> list[str]:
    """Return the choices that the help text of a flag lists."""
    described = re.search(rf"^ {{2}}{flag} .*?(?=^ {{2}}-)", text, re.MULTILINE | re.DOTALL)
    return re.findall(r'"(\w+)"', described[0].partition("choices:")[2]) if described else []


def _help(path: Path) -> str:
    with tempfile.TemporaryDirectory() as home:
        quiet = {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": home, "COLUMNS": "80", **quiet}
        done = subprocess.run(
            [path, "--help"], check=True, capture_output=True, text=True, env=environment
        )
    return done.stdout
