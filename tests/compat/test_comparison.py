"""What the README says that the official SDKs cannot do, shown on the packages themselves.

`CELLS` lists each cell of the comparison that says more than "yes", with the test that shows it.
Behaviour of the Python SDK is shown on the real CLI with a scripted model, or on a small CLI where
a real one does it rarely. Of the TypeScript SDK only the type declarations are installed.
"""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import inspect
import json
import os
import re
import signal
import sys
import typing
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import claude_agent_sdk as official
import pytest
from tests.support.line_cli import line_cli
from tests.support.official import (
    LEAVES_TRANSPORTS,
    ask,
    ask_small_cli,
    call_tool,
    connected,
    place,
)
from tests.support.processes import is_alive, until
from tests.support.sdk_runs import newest_cli

import fetch_declarations
from bridle._engine.outgoing.operations import OPERATIONS
from bridle.testing import text, tool_use

DECLARATIONS = fetch_declarations.packages()["sdk"].declarations()

pytestmark = [
    pytest.mark.longer,  # the official SDK is the subject, not Bridle
    LEAVES_TRANSPORTS,
    pytest.mark.skipif(newest_cli() is None, reason="no CLI: `make setup` installs it"),
    pytest.mark.skipif(
        not DECLARATIONS.exists(), reason="no declarations: `make setup` downloads them"
    ),
]
__all__ = ["place"]  # a fixture

QUESTION = {
    "question": "Which colour?",
    "header": "Colour",
    "multiSelect": False,
    "options": [{"label": name, "description": name} for name in ("Red", "Blue")],
}
FORM_SERVER = """
import json, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

FORM = {"message": "Your name?", "requestedSchema":
        {"type": "object", "properties": {"name": {"type": "string"}}}}
RESULTS = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                   "serverInfo": {"name": "forms", "version": "1"}},
    "tools/list": {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]},
}
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "tools/call":
        call = asked["id"]
        send(id="form", method="elicitation/create", params=FORM)
    elif asked.get("id") == "form":
        send(id=call, result={"content": [{"type": "text", "text": json.dumps(asked["result"])}]})
    elif "id" in asked:
        send(id=asked["id"], result=RESULTS.get(asked["method"], {}))
"""
"""An MCP server whose tool asks the user for a name and returns the answer."""


# ---------------------------------------------------------------- reading the packages


def client_methods() -> dict[str, Callable[..., Any]]:
    return {
        name: method
        for name, method in inspect.getmembers(official.ClaudeSDKClient, inspect.isfunction)
        if not name.startswith("_")
    }


def declared(name: str) -> str:
    """Return the declaration of an interface of the TypeScript SDK."""
    found = re.search(
        rf"^export declare (?:interface|type) {name}\b.*?^\}}.*?$",
        DECLARATIONS.read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    assert found is not None, name
    return re.sub(r"/\*.*?\*/", "", found[0], flags=re.DOTALL)


def exported(kinds: str = r"\w+") -> dict[str, str]:
    """Return each exported name of the TypeScript SDK with the rest of its first line."""
    pattern = rf"^export declare (?:abstract )?(?:{kinds}) (\w+)(.*)"
    return dict(re.findall(pattern, DECLARATIONS.read_text("utf-8"), re.MULTILINE))


# ---------------------------------------------------------------- one test for each row


def test_no_function_returns_a_result() -> None:
    public = {name: getattr(official, name) for name in official.__all__}
    functions = {name: one for name, one in public.items() if inspect.isfunction(one)}
    returns = {
        name: str(inspect.signature(one).return_annotation)
        for name, one in (functions | client_methods()).items()
    }
    assert {name for name, kind in returns.items() if "ResultMessage" in kind} == {
        "receive_messages",  # an iterator, as is query
        "receive_response",
    }
    promises = {name: rest for name, rest in exported().items() if "Promise<" in rest}
    assert [name for name, rest in promises.items() if "SDKResultMessage" in rest] == []
    assert "SDKResultMessage" not in declared("Query")


def test_everything_that_talks_to_the_cli_is_async() -> None:
    talking = [official.query, *client_methods().values()]
    assert [
        one.__name__
        for one in talking
        if not inspect.iscoroutinefunction(one) and not inspect.isasyncgenfunction(one)
    ] == []


def test_a_message_names_its_prompt_only_if_the_program_named_it(place: Path) -> None:
    """There is no object for a turn, and `receive_response` ends at the first result."""

    async def main() -> None:
        async def prompt(**members: Any) -> AsyncIterator[dict[str, Any]]:
            content = {"role": "user", "content": "go"}
            yield {"type": "user", "message": content, "parent_tool_use_id": None, **members}

        async with connected([[text("one")], [text("two")]]) as (client, _):
            uuid = str(uuid4())
            named: list[str | None] = []
            for members in ({"uuid": uuid}, {}):
                await client.query(prompt(**members))
                messages = [message async for message in client.receive_response()]
                assert isinstance(messages[-1], official.ResultMessage)
                named.append(messages[-1].user_message_uuid)
            assert named == [uuid, None]

    asyncio.run(main())
    assert [name for name in [*official.__all__, *exported()] if name.endswith("Turn")] == []
    assert "user_message_uuid" in DECLARATIONS.read_text("utf-8")


def test_callbacks_are_async_and_the_schema_of_a_tool_is_an_argument(place: Path) -> None:
    """A hook that is a plain function fails, and the tool that it denies runs."""
    denial = {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": "no",
        }
    }

    def plain(*_: object) -> object:
        return denial

    async def asynchronous(*_: object) -> object:
        return denial

    guards: list[tuple[Any, bool]] = [(plain, True), (asynchronous, False)]
    for hook, ran in guards:
        hooks = {"PreToolUse": [official.HookMatcher(hooks=[hook])]}
        call = tool_use("Bash", command="echo ran")
        said = asyncio.run(call_tool(call, allowed_tools=["Bash"], hooks=hooks))
        assert (said == "ran") is ran
    schema = inspect.signature(official.tool).parameters["input_schema"]
    assert schema.default is inspect.Parameter.empty
    assert ") => Promise<HookJSONOutput>" in declared("HookCallback")
    for part in ("extends AnyZodRawShape", "_inputSchema: Schema", "=> Promise<CallToolResult>"):
        assert part in exported()["tool"]


def test_the_hook_events_with_a_type() -> None:
    events = {
        name
        for kind in typing.get_args(official.types.HookEvent)
        for name in (typing.get_args(kind) or (kind,))
    }
    assert str(len(events)) == cell("number of hook events that have a type", PYTHON)
    listed = re.findall(r"'(\w+)'", exported()["HookEvent"])
    assert str(len(listed)) == cell("number of hook events that have a type", TYPESCRIPT)


def test_a_withdrawn_request_cancels_its_callback(place: Path) -> None:
    async def main() -> None:
        asked, cancelled = asyncio.Event(), asyncio.Event()

        async def decide(*_: object) -> None:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        script = [[tool_use("Bash", command="touch x")], [text("done")]]
        async with connected(script, can_use_tool=decide) as (client, _):
            await client.query("go")
            await asked.wait()
            await client.interrupt()
            await cancelled.wait()

    asyncio.run(main())
    assert "signal: AbortSignal" in declared("CanUseTool")


def test_the_permission_callback_answers_questions(place: Path) -> None:
    async def answer(_: str, given: dict[str, Any], __: object) -> Any:
        answers = {QUESTION["question"]: "Blue"}
        return official.PermissionResultAllow(updated_input={**given, "answers": answers})

    call = tool_use("AskUserQuestion", questions=[QUESTION])
    assert '"Which colour?"="Blue"' in str(asyncio.run(call_tool(call, can_use_tool=answer)))
    assert "'AskUserQuestion'" in exported()["BUILTIN_TOOL_NAMES"]


def test_the_permission_callback_approves_plans(place: Path) -> None:
    asked: list[str] = []

    async def approve(name: str, *_: object) -> Any:
        asked.append(name)
        return official.PermissionResultAllow()

    call = tool_use("ExitPlanMode", plan="Paint it.")
    said = asyncio.run(call_tool(call, can_use_tool=approve, permission_mode="plan"))
    assert (asked, "approved" in str(said)) == (["ExitPlanMode"], True)
    assert "'ExitPlanMode'" in exported()["BUILTIN_TOOL_NAMES"]


def test_an_elicitation_is_cancelled_although_a_hook_accepts_it(place: Path) -> None:
    """The SDK has no callback for elicitations, and the CLI ignores what the hook returns."""
    Path("server.py").write_text(FORM_SERVER)

    async def accept(*_: object) -> Any:
        return {
            "hookSpecificOutput": {
                "hookEventName": "Elicitation",
                "action": "accept",
                "content": {"name": "Bo"},
            }
        }

    said = asyncio.run(
        call_tool(
            tool_use("mcp__forms__ask"),
            mcp_servers={
                "forms": {"type": "stdio", "command": sys.executable, "args": ["server.py"]}
            },
            strict_mcp_config=True,
            allowed_tools=["mcp__forms__ask"],
            hooks={"Elicitation": [official.HookMatcher(hooks=[accept])]},
        )
    )
    assert json.loads(str(said)) == {"action": "cancel"}


def test_the_number_of_methods_that_control_a_session() -> None:
    row = "methods that control a session or ask the CLI something"
    other = {"connect", "query", "receive_messages", "receive_response", "disconnect"}
    assert str(len(client_methods().keys() - other)) == cell(row, PYTHON)
    methods = re.findall(r"^    (\w+)\(", declared("Query"), re.MULTILINE)
    assert str(len(set(methods) - {"streamInput", "close"})) == cell(row, TYPESCRIPT)
    assert cell(row, BRIDLE).startswith("more than 40,")
    assert len({operation.method for operation in OPERATIONS.values()}) > 40


def test_unknown_messages_and_blocks_are_dropped(place: Path) -> None:
    unknown = """\
if kind == 'user':
    say(type='weather', text='rain')
    say(type='assistant', session_id='s', message={'model': 'm', 'content': [
        {'type': 'hologram'}, {'type': 'text', 'text': 'hi'}]})"""
    message, result = asyncio.run(ask_small_cli(place, unknown))
    assert [type(block).__name__ for block in message.content] == ["TextBlock"]
    assert isinstance(result, official.ResultMessage)


def test_a_control_request_waits_until_the_program_reads(place: Path) -> None:
    """The CLI has written 300 messages and the response. The SDK has stopped at 100."""
    behaviour = """\
if kind == 'user':
    for number in range(300):
        say(type='system', subtype='status', number=number)
if kind == 'interrupt':
    answer(asked, subtype='success')
    open('answered', 'w').close()
    continue"""

    async def main() -> None:
        given = official.ClaudeAgentOptions(cli_path=line_cli(place, behaviour))
        async with official.ClaudeSDKClient(given) as client:
            await client.query("go")
            assert client._query is not None
            unread = client._query._message_send.statistics
            await until(lambda: unread().tasks_waiting_send)
            assert unread().current_buffer_used == 100
            interrupting = asyncio.create_task(client.interrupt())
            await until(lambda: Path("answered").exists())
            assert unread().tasks_waiting_send == 1
            assert not interrupting.done()
            async for _ in client.receive_response():
                pass
            await interrupting

    asyncio.run(main())


def test_no_option_limits_the_time_of_a_turn() -> None:
    fields = {one.name for one in dataclasses.fields(official.ClaudeAgentOptions)}
    timed = re.compile(r"time|idle|deadline|duration|seconds|_ms$", re.IGNORECASE)
    assert {name for name in fields if timed.search(name)} == {"load_timeout_ms"}
    options = re.findall(r"^    (\w+)\??:", declared("Options"), re.MULTILINE)
    assert {name for name in options if timed.search(name)} == {"loadTimeoutMs"}
    # Both are for loading from a session store.


def test_structured_output_is_passed_on_unchecked(place: Path) -> None:
    wrong = "if kind == 'user':\n    result(structured_output={'n': 'not a number'}); continue"
    schema = {"type": "object", "properties": {"n": {"type": "number"}}}
    given = {"type": "json_schema", "schema": schema}
    [result] = asyncio.run(ask_small_cli(place, wrong, output_format=given))
    assert result.structured_output == {"n": "not a number"}
    assert "structured_output?: unknown;" in DECLARATIONS.read_text("utf-8")


def test_prompts_schemas_and_secrets_are_command_line_arguments(place: Path) -> None:
    keep = "if kind == 'user':\n    open('argv', 'w').write(json.dumps(sys.argv))"
    env = {"TOKEN": "s3cret-token"}
    asyncio.run(
        ask_small_cli(
            place,
            keep,
            system_prompt="s3cret-prompt",
            output_format={"type": "json_schema", "schema": {"title": "s3cret-schema"}},
            mcp_servers={"one": {"type": "stdio", "command": "true", "args": [], "env": env}},
        )
    )
    argv = Path("argv").read_text()
    assert sorted(set(re.findall(r"s3cret-\w+", argv))) == [
        "s3cret-prompt",
        "s3cret-schema",
        "s3cret-token",
    ]


def test_a_process_of_its_own_session_outlives_the_client(place: Path) -> None:
    command = "setsid sleep 600 >/dev/null 2>&1 & echo $! > pid"

    async def main() -> None:
        script = [[tool_use("Bash", command=command)], [text("done")]]
        async with connected(script, allowed_tools=["Bash"]) as (client, _):
            await ask(client)

    asyncio.run(main())
    pid = int(Path("pid").read_text())
    try:
        assert is_alive(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_the_testing_module_checks_session_stores_only() -> None:
    testing = import_module("claude_agent_sdk.testing")
    assert testing.__all__ == ["run_session_store_conformance"]
    kit = re.compile(r"fake|mock|stub|script|replay|record|cassette|testing", re.IGNORECASE)
    assert [name for name in exported("function|class|const") if kit.search(name)] == []


def test_only_the_propagation_of_opentelemetry_is_used() -> None:
    sources = Path(official.__file__).parent.rglob("*.py")
    imports = [
        f"{node.module}.{alias.name}"
        for path in sources
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("opentelemetry")
        for alias in node.names
    ]
    assert imports == ["opentelemetry.propagate"]


def test_the_only_session_store_is_the_one_in_memory() -> None:
    stores = [
        name
        for name in official.__all__
        if inspect.isclass(one := getattr(official, name))
        and {"append", "load"} <= vars(one).keys()
        and not getattr(one, "_is_protocol", False)
    ]
    assert stores == ["InMemorySessionStore"]
    declared_stores = [
        name for name, rest in exported().items() if "implements SessionStore" in rest
    ]
    assert declared_stores == ["InMemorySessionStore"]


def test_no_function_finishes_a_turn_that_was_cut_off() -> None:
    names = [*official.__all__, *client_methods(), *exported()]
    names += re.findall(r"^    (\w+)\(", declared("Query"), re.MULTILINE)
    verbs = re.compile(r"recover|finish|rerun|continueTurn", re.IGNORECASE)
    assert [name for name in names if verbs.search(name)] == []


def test_processes_are_not_kept_ready() -> None:
    names = [*official.__all__, *client_methods()]
    assert [name for name in names if re.search(r"pool|warm|startup|spare", name, re.I)] == []
    assert "prewarm" in exported()
    assert [name for name in exported() if re.search(r"pool", name, re.I)] == []


# ---------------------------------------------------------------- the cells

BRIDLE, PYTHON, TYPESCRIPT = "Bridle", "Python", "TypeScript"

BOTH = {PYTHON, TYPESCRIPT}

CELLS: dict[str, tuple[set[str], Callable[..., None]]] = {
    "one call returns one typed outcome": (BOTH, test_no_function_returns_a_result),
    "blocking API": ({PYTHON}, test_everything_that_talks_to_the_cli_is_async),
    "you know to which turn each message belongs": (
        BOTH,
        test_a_message_names_its_prompt_only_if_the_program_named_it,
    ),
    "callbacks and tools": (BOTH, test_callbacks_are_async_and_the_schema_of_a_tool_is_an_argument),
    "number of hook events that have a type": (BOTH, test_the_hook_events_with_a_type),
    "a callback is told when the CLI withdraws its request": (
        {PYTHON},
        test_a_withdrawn_request_cancels_its_callback,
    ),
    "your code can answer the model's questions": (
        BOTH,
        test_the_permission_callback_answers_questions,
    ),
    "your code can approve the model's plans": (BOTH, test_the_permission_callback_approves_plans),
    "your code can answer requests of MCP servers for user input (elicitations)": (
        {PYTHON},
        test_an_elicitation_is_cancelled_although_a_hook_accepts_it,
    ),
    "methods that control a session or ask the CLI something": (
        BOTH,
        test_the_number_of_methods_that_control_a_session,
    ),
    "unknown messages and blocks": ({PYTHON}, test_unknown_messages_and_blocks_are_dropped),
    "many unread messages": ({PYTHON}, test_a_control_request_waits_until_the_program_reads),
    "time limits of a turn (start, idle, total)": (BOTH, test_no_option_limits_the_time_of_a_turn),
    "structured output validated as your type": (
        BOTH,
        test_structured_output_is_passed_on_unchecked,
    ),
    "system prompts, schemas and MCP secrets are kept off the command line": (
        {PYTHON},
        test_prompts_schemas_and_secrets_are_command_line_arguments,
    ),
    "ends the whole process tree, also after `kill -9`": (
        {PYTHON},
        test_a_process_of_its_own_session_outlives_the_client,
    ),
    "test kit (model, CLI, recordings)": (BOTH, test_the_testing_module_checks_session_stores_only),
    "OpenTelemetry spans and metrics": (
        {PYTHON},
        test_only_the_propagation_of_opentelemetry_is_used,
    ),
    "resume a conversation on any machine, from a store": (
        BOTH,
        test_the_only_session_store_is_the_one_in_memory,
    ),
    "finish a turn after a crash of your program": (
        BOTH,
        test_no_function_finishes_a_turn_that_was_cut_off,
    ),
    "a pool of CLI processes that are started in advance": (
        BOTH,
        test_processes_are_not_kept_ready,
    ),
}
"""By row: the cells about official SDKs that are not empty and not "yes", and their test."""


def comparison() -> dict[str, dict[str, str]]:
    """Return the cells of the README's comparison by row and column."""
    readme = (fetch_declarations.REPOSITORY / "README.md").read_text("utf-8")
    section = readme.split("## Compared with the official SDKs")[1]
    rows = [
        [part.strip() for part in line.strip("|").split("|")]
        for line in section.strip().split("\n\n")[0].splitlines()
    ]
    columns = [title.split()[0] for title in rows[0][1:]]
    return {row[0]: dict(zip(columns, row[1:], strict=True)) for row in rows[2:]}


def cell(row: str, column: str) -> str:
    return comparison()[row][column]


def test_every_cell_about_an_official_sdk_has_a_proof() -> None:
    said = {
        row: {column for column in BOTH if cells[column] not in ("", "yes")}
        for row, cells in comparison().items()
    }
    shown = {row: columns for row, (columns, _) in CELLS.items()}
    assert {row: columns for row, columns in said.items() if columns} == shown
    assert [test for _, test in CELLS.values() if globals().get(test.__name__) is not test] == []


@pytest.mark.pinned
def test_the_compared_versions_are_those_that_are_installed() -> None:
    header = re.search(
        r"\| Python (\S+) \| TypeScript (\S+) \|",
        (fetch_declarations.REPOSITORY / "README.md").read_text("utf-8"),
    )
    assert header is not None
    pinned = fetch_declarations.packages()["sdk"].version
    assert header.groups() == (official.__version__, pinned)
