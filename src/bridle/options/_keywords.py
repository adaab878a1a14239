"""Options that are given as keywords: assign each to its record, and explain unknown names.

`Agent` and every door take the fields of the three records by name. This module turns such keywords
into records. It also holds the table of names that the official SDKs use for an option.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn, cast

from msgspec import Struct

from bridle._records.fields import Record, close_to, is_list
from bridle.errors import OptionsError
from bridle.options import RECORDS, BidirOptions, CliOptions, SdkOptions
from bridle.tools import Tool, ToolServer

FUNCTION_SERVER = "tools"
"""Name of the in-process server for functions in `tools`: the model sees `mcp__tools__<name>`."""


class FunctionServer(ToolServer):
    """The server of the functions in `tools`, whose tools the program allows by rules."""


CONVERSATION = (
    "session_id",
    "resume_session_id",
    "continue_session",
    "fork_session",
    "resume_session_at",
    "resume_drops_turn",
    "wait",
)
"""The options that choose a conversation. An agent serves many, so its methods take them.

`wait` is an option of `SdkOptions`, the others are options of `CliOptions`.
"""

HINTS: Mapping[str, str] = {
    # the official Python SDK
    "can_use_tool": "Use on_can_use_tool.",
    "continue_conversation": "Use continue_session.",
    "debug_stderr": "Use on_stderr, which takes a function.",
    "enable_file_checkpointing": "Use file_checkpointing_enabled.",
    "output_format": "Use output_type, an argument of run, or json_schema.",
    "resume": "Use resume_session_id.",
    "stderr": "Use on_stderr.",
    "load_timeout_ms": "Use load_timeout, in seconds.",
    "session_store": "Use store.",
    "session_store_flush": "Remove it: Bridle sends entries to the store as they come.",
    # the official TypeScript SDK
    "abort_controller": "Cancel the task that waits, or use session.interrupt().",
    "additional_directories": "Use add_dirs.",
    "continue": "Use continue_session.",
    "executable": "Use cli_path: Bridle starts the CLI itself.",
    "executable_args": "Use cli_path: Bridle starts the CLI itself.",
    "mcp_servers_delivery": "Use mcp_config_delivery.",
    "path_to_claude_code_executable": "Use cli_path.",
    "per_task_stop_affordance": "Use per_task_stop.",
    "persist_session": "Use no_session_persistence=True.",
    "resume_session": "Use resume_session_id.",
    "spawn_claude_code_process": "Use transport_factory.",
    # arguments of single calls
    "keep_messages": "Pass it to run: it is an argument, not an option.",
    "output_retries": "Pass it to run or session: it is an argument, not an option.",
    "output_type": "Pass it to run or session: it is an argument, not an option.",
    "prompt": "Pass it to run, query or session: it is an argument, not an option.",
    "retry": "Pass it to run or run_many: it is an argument, not an option.",
}
"""What to write in place of names that are not options. A name in camelCase counts as snake_case.
"""


class Given(Struct, frozen=True, kw_only=True):
    """The options that a program gave, before the environment and the configuration file."""

    cli: CliOptions | None = None
    sdk: SdkOptions | None = None
    bidir: BidirOptions | None = None
    #: The functions in the keyword `tools`.
    functions: FunctionServer | None = None

    def callbacks(self) -> BidirOptions | None:
        """Return `bidir` with the server of the functions.

        Raises:
            OptionsError: `mcp_servers` has a server with the name of this one.
        """
        if self.functions is None:
            return self.bidir
        bidir = self.bidir or BidirOptions()
        servers = dict(cast("Mapping[str, object]", bidir.mcp_servers or {}))
        if FUNCTION_SERVER in servers:
            raise OptionsError(
                "tools",
                f"has functions, and mcp_servers has a server named {FUNCTION_SERVER!r}",
                fix="Rename that server: functions in tools are offered under this name.",
            )
        return bidir.replace(mcp_servers={**servers, FUNCTION_SERVER: self.functions})

    def allowed_tools(self) -> list[str]:
        """Return the permission rules for the functions: the program itself provided them.

        A tool with ``ask=True`` has no rule, so the CLI asks before it runs.
        """
        if self.functions is None:
            return []
        tools = self.functions.tools.items()
        return [f"mcp__{FUNCTION_SERVER}__{name}" for name, tool in tools if not tool.ask]

    def replace(self, changes: Mapping[str, object]) -> Given:
        """Return a copy with the options in `changes` set. None unsets an option."""
        split, functions = _split_tools(changes)
        if "tools" not in changes:
            functions = self.functions
        unset = {name for name, value in split.items() if value is None}
        for name in unset:
            table_of(name)  # rejects unknown names
        records = {table: _without(record, unset) for table, record in self._records().items()}
        values = {name: value for name, value in split.items() if name not in unset}
        return _given(records, values, functions)

    def _records(self) -> dict[str, Record | None]:
        return {"cli": self.cli, "sdk": self.sdk, "bidir": self.bidir}


def gather(
    cli: CliOptions | None,
    sdk: SdkOptions | None,
    bidir: BidirOptions | None,
    keywords: Mapping[str, object],
) -> Given:
    """Combine the records of a call with its keywords.

    Raises:
        OptionsError: a keyword is unknown or invalid, or an option is given both ways.
    """
    records: dict[str, Record | None] = {"cli": cli, "sdk": sdk, "bidir": bidir}
    keywords = _without_unchosen(keywords)
    if not keywords:
        return Given(cli=cli, sdk=sdk, bidir=bidir)
    for name in keywords:
        table = table_of(name)
        record = records[table]
        if isinstance(record, Record) and name in record.given():
            fix = f"Remove one of them: {name}=... or {type(record).__name__}({name}=...)."
            raise OptionsError(name, f"is set twice: by name and in {table}", fix=fix)
    split, functions = _split_tools(keywords)
    return _given(records, split, functions)


def table_of(name: str) -> str:
    """Return the record that has this option: "cli", "sdk" or "bidir".

    Raises:
        OptionsError: there is no such option. The error suggests the right name.
    """
    found = next((table for table, cls in RECORDS.items() if name in cls.fields), None)
    return found or _refuse(name)


def refuse_conversation(values: Mapping[str, object], fix: str) -> None:
    """Raise OptionsError if an option is set that chooses a conversation.

    `fix` is the advice; `{name}` in it stands for the option.
    """
    for name in CONVERSATION:
        if values.get(name) not in (None, False):
            problem = "is not an option of an agent, because an agent can have many conversations"
            raise OptionsError(name, problem, fix=fix.format(name=name))


def conversation(keywords: Mapping[str, object]) -> Mapping[str, object]:
    """Return the keywords of a method of an agent: only those that choose a conversation.

    Keywords that are None are left out.

    Raises:
        OptionsError: another option, or an unknown name, is among them.
    """
    for name in keywords:
        if name not in CONVERSATION:
            table_of(name)
            fix = f"Use a changed copy: agent.replace({name}=...)."
            raise OptionsError(name, "is an option of the agent, not of this call", fix=fix)
    return _without_unchosen(keywords)


def _without_unchosen(keywords: Mapping[str, object]) -> Mapping[str, object]:
    """Return the keywords without those that would choose a conversation and are None."""
    return {
        name: value
        for name, value in keywords.items()
        if value is not None or name not in CONVERSATION
    }


def _without(record: Record | None, names: Collection[str]) -> Record | None:
    """Return a record in which these options are not set."""
    if not isinstance(record, Record) or not any(name in record.given() for name in names):
        return record
    return type(record)(**{n: v for n, v in record.given().items() if n not in names})


def _given(
    records: Mapping[str, Record | None],
    keywords: Mapping[str, object],
    functions: FunctionServer | None,
) -> Given:
    tables: dict[str, dict[str, object]] = {}
    for name, value in keywords.items():
        tables.setdefault(table_of(name), {})[name] = value
    made = dict(records)
    for table, changes in tables.items():
        record = records[table]
        if record is None:
            made[table] = RECORDS[table](**changes)
        elif isinstance(record, RECORDS[table]):  # precedence rejects a record of another kind
            made[table] = record.replace(**changes)
    return Given(functions=functions, **cast("dict[str, Any]", made))


def _split_tools(
    keywords: Mapping[str, object],
) -> tuple[Mapping[str, object], FunctionServer | None]:
    """Split `tools` into the names of built-in tools and the functions.

    If the list has only functions, it does not choose built-in tools: the CLI offers its own.
    """
    tools = keywords.get("tools")
    if not is_list(tools):
        return keywords, None
    functions: list[Tool[..., Any] | Callable[..., Any]] = []
    names: list[str] = []
    for index, item in enumerate(tools):
        if isinstance(item, str):
            names.append(item)
        elif callable(item) and not isinstance(item, type):
            functions.append(item)
        else:
            problem = f"must be a name, a function or a Tool, got {type(item).__name__}"
            fix = "Use the name of a built-in tool, such as 'Read', or a function."
            raise OptionsError(f"tools[{index}]", problem, fix=fix)
    if not functions:
        return keywords, None
    return {**keywords, "tools": names or None}, FunctionServer(functions)


def _refuse(name: str) -> NoReturn:
    """Raise OptionsError for a keyword that is not an option."""
    known = [option for cls in RECORDS.values() for option in cls.fields]
    snake = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
    if snake in HINTS:
        fix = HINTS[snake]
    elif snake in known:
        fix = f"Use {snake}."
    else:
        fix = close_to(name, known) or "The reference of the options lists all names."
    raise OptionsError(name, "is not an option", fix=fix)
