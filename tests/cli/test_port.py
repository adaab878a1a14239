"""The native form of each use of the official SDK."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import claude_agent_sdk as official
import claude_agent_sdk.types as official_types
import pytest

import bridle
from bridle import BidirOptions, CliOptions, SdkOptions, Session, cli
from bridle.cli._port.layout import double_quoted
from bridle.cli._port.names import METHODS, NAMES, OPTIONS, RESULTS, UPDATES
from bridle.cli._port.uses import Use, uses
from bridle.compat._hook_rules import CANNOT_FAIL, GUARDS

PROGRAMS = sorted((Path(__file__).parents[1] / "compat" / "programs").glob("*.py"))
ALL = "from claude_agent_sdk import *\n".replace("*", ", ".join(sorted(official.__all__)))


def native(statement: str) -> str:
    """Return the native form of the last statement of a coroutine."""
    lines = "".join(f"    {line}\n" for line in statement.splitlines())
    *_, use = [Use(0, "", ""), *uses(f"{ALL}async def main():\n{lines}")]
    return use.native if use.line > 1 else "unchanged"


# ---------------------------------------------------------------- the tables


def test_every_public_name_of_the_official_sdk_has_a_native_name_or_a_note() -> None:
    assert set(official.__all__) <= NAMES.keys()
    assert [name for name, one in NAMES.items() if not one.name and not one.note] == []


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_native_name_exists(name: str) -> None:
    one = NAMES[name]
    if one.name:
        assert hasattr(importlib.import_module(one.module), one.name)


@pytest.mark.parametrize("name", sorted(RESULTS))
def test_a_name_in_a_native_form_exists(name: str) -> None:
    assert hasattr(importlib.import_module(RESULTS[name]), name)


def test_every_option_of_the_official_sdk_is_an_option_of_bridle_or_has_a_note() -> None:
    ours = {*CliOptions.fields, *SdkOptions.fields, *BidirOptions.fields}
    for one in dataclasses.fields(official.ClaudeAgentOptions):
        option = OPTIONS.get(one.name)
        name = one.name if option is None else option.name
        assert name in ours or (option is not None and option.note), one.name


def test_every_method_of_a_client_has_a_native_method() -> None:
    public = {name for name in vars(official.ClaudeSDKClient) if not name.startswith("_")}
    assert public == {*METHODS, "get_server_info", "receive_response"}
    session = Session.__new__(Session)
    for path in METHODS.values():
        _, first, *rest = path.split(".")
        assert hasattr(type(session), first), path
        assert not rest or rest[0] in inspect.getsource(bridle.operations), path


def test_every_kind_of_permission_update_has_a_class() -> None:
    hint = official_types.PermissionUpdate.__annotations__["type"]
    kinds = set(re.findall(r'["\'](\w+)["\']', str(hint)))
    assert kinds == UPDATES.keys()


# ---------------------------------------------------------------- forms


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('query(prompt="hi")', 'query("hi")'),
        ('query(prompt="hi", options=o)', 'o.query("hi")'),
        (
            'query(prompt="hi", options=ClaudeAgentOptions(model="opus"))',
            'query("hi", model="opus")',
        ),
        ("ClaudeAgentOptions(can_use_tool=ask)", "Agent(on_can_use_tool=ask)"),
        ("ClaudeAgentOptions(stderr=print, max_turns=2)", "Agent(on_stderr=print, max_turns=2)"),
        ("ClaudeAgentOptions(load_timeout_ms=500)", "Agent(load_timeout=0.5)"),
        ('ClaudeAgentOptions(task_budget={"total": 9})', "Agent(task_budget=9)"),
        ("ClaudeAgentOptions(task_budget=TaskBudget(total=9))", "Agent(task_budget=9)"),
        (
            'ClaudeAgentOptions(system_prompt={"type": "preset", "preset": "x", "append": "y"})',
            'Agent(append_system_prompt="y")',
        ),
        (
            'ClaudeAgentOptions(system_prompt={"type": "file", "path": p})',
            "Agent(system_prompt_file=p)",
        ),
        (
            'ClaudeAgentOptions(output_format={"type": "json_schema", "schema": S})',
            "Agent(json_schema=S)",
        ),
        (
            'ClaudeAgentOptions(extra_args={"a": None, "b": "c", "d": e})',
            'Agent(extra_args=["--a", "--b=c", f"--d={e}"])',
        ),
        (
            'ClaudeAgentOptions(plugins=[{"type": "local", "path": p}])',
            "Agent(plugins=[p])",
        ),
        (
            'ClaudeAgentOptions(mcp_servers={"a": a, "b": {"command": "c"}})',
            'Agent(mcp_servers={"a": a}, mcp_config={"mcpServers": {"b": {"command": "c"}}})',
        ),
        ('ClaudeAgentOptions(tools={"type": "preset"})', 'Agent(tools="default")'),
        ('ClaudeAgentOptions(session_store_flush="eager")', "Agent()"),
        ("ClaudeSDKClient()", "start_session()"),
        ("ClaudeSDKClient(options=o)", "o.session()"),
        (
            'ClaudeSDKClient(ClaudeAgentOptions(model="m", resume=r))',
            'Agent(model="m").session(resume_session_id=r)',
        ),
        (
            'HookMatcher(matcher="Bash", hooks=[f], on_failure="block")',
            'Hook(f, matcher="Bash", on_error="block")',
        ),
        ("HookMatcher(hooks=[f, g])", "[Hook(f), Hook(g)]"),
        ("PermissionResultAllow()", "Allow()"),
        ("PermissionResultAllow(updated_input=x)", "Edit(x)"),
        ("PermissionResultAllow(updated_permissions=x)", "Allow(updated_permissions=x)"),
        ('PermissionResultDeny(message="no", interrupt=True)', 'Deny("no", interrupt=True)'),
        (
            'PermissionUpdate(type="setMode", mode="plan", destination="session")',
            'SetMode(mode="plan", destination="session")',
        ),
        ('create_sdk_mcp_server("calc", tools=[add])', "ToolServer([add])"),
        (
            'ClaudeAgentOptions(agents={"a": AgentDefinition(description="d", maxTurns=3)})',
            'Agent(agents=[AgentConfig(name="a", description="d", max_turns=3)])',
        ),
        ('ClaudeAgentOptions(agents={"a": made})', 'Agent(agents={"a": made})'),
        ('ClaudeAgentOptions(extra_args={"replay-user-messages": None})', "Agent()"),
        (
            'ClaudeAgentOptions(mcp_servers={"a": {"type": "sdk", "name": "a", "instance": s}})',
            'Agent(mcp_servers={"a": s})',
        ),
        ('rename_session(s, "title")', 'await sessions.rename(s, "title")'),
        ("list_sessions(limit=3)", "await sessions.list_sessions(limit=3)"),
        (
            "fork_session_via_store(store, s, up_to_message_id=u)",
            "await sessions.fork(s, store=store, up_to=u)",
        ),
        ("isinstance(m, AssistantMessage)", "unchanged"),
        ("isinstance(e, ClaudeSDKError)", "isinstance(e, BridleError)"),
    ],
)
def test_an_expression_has_a_native_form(written: str, expected: str) -> None:
    expected = expected if expected == "unchanged" else f"do({expected})"
    assert native(f"do({written})") == expected


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ('{"decision": "block", "reason": "no"}', 'Block("no")'),
        ('{"continue_": False, "stopReason": "enough"}', 'EndTurn("enough")'),
        ('{"continue_": True}', "Continue()"),
        ('{"async_": True, "asyncTimeout": 10}', "Continue()"),
        (
            '{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny"}}',
            'Block("")',
        ),
        (
            '{"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": x}}',
            "ModifyInput(x)",
        ),
        (
            '{"systemMessage": "s", "hookSpecificOutput": {"additionalContext": c}}',
            'HookOutput(system_message="s", additional_context=c)',
        ),
        (
            '{"hookSpecificOutput": {"hookEventName": "CwdChanged", "watchPaths": w}}',
            'HookOutput(specific={"watchPaths": w})',
        ),
        (
            '{"hookSpecificOutput": {"decision": {"behavior": "allow", "updatedInput": x}}}',
            "HookOutput(permission=Edit(x))",
        ),
        (
            '{"hookSpecificOutput": {"decision": {"behavior": "deny", "message": "no"}}}',
            'HookOutput(permission=Deny("no"))',
        ),
        ('{"decision": "later"}', "unchanged"),
        ("{1: 2, **more}", "unchanged"),
    ],
)
def test_the_output_of_a_hook_becomes_a_result(output: str, expected: str) -> None:
    expected = expected if expected == "unchanged" else f"do({expected})"
    assert native(f"do({output})") == expected


def test_a_conversation_becomes_turns_of_a_session() -> None:
    program = """\
import claude_agent_sdk as sdk

async def main(other: sdk.ClaudeSDKClient):
    options = sdk.ClaudeAgentOptions(model="opus")
    async with sdk.ClaudeSDKClient(options) as client:
        await client.query("hi", session_id="a")
        async for message in client.receive_response():
            print(await client.get_mcp_status())
        print(await client.get_server_info())
    await other.disconnect()
"""
    found = uses(program)
    assert [use.native for use in found] == [
        "from bridle import Agent",
        'agent = Agent(model="opus")',
        "async with agent.session() as session:",
        'turn = await session.send_user_message("hi")',
        "async for message in turn:",
        "print(await session.mcp.status())",
        "print(session.server_info)",
        "await session.aclose()",
    ]
    assert [use.line for use in found] == [1, 4, 5, 6, 7, 8, 9, 10]
    assert "one conversation" in found[3].notes[0].lower()


def test_a_client_without_a_block_is_awaited() -> None:
    program = """\
from claude_agent_sdk import ClaudeSDKClient

async def main():
    client = ClaudeSDKClient()
    await client.connect()
    await client.connect("hi")
"""
    assert [use.native for use in uses(program)][1:] == [
        "session = await start_session()",
        "pass",
        'turn = await session.send_user_message("hi")',
    ]


def test_a_callback_whose_event_is_unknown_gets_the_general_context() -> None:
    program = """\
from claude_agent_sdk import HookMatcher

async def watch(data, tool_use_id, context):
    ...

matchers = [HookMatcher(hooks=[watch])]
hooks = {"SessionStart": [HookMatcher(hooks=[other])], "New": matchers}

async def other(data, tool_use_id, context):
    ...
"""
    assert [use.native for use in uses(program)] == [
        "from bridle import Hook, HookContext\nfrom bridle.hooks import SessionStartContext",
        "async def watch(ctx: HookContext):",
        "matchers = [Hook(watch)]",
        'hooks = {"SessionStart": [Hook(other)], "New": matchers}',
        "async def other(ctx: SessionStartContext):",
    ]


def test_callbacks_get_one_context() -> None:
    program = """\
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, PermissionResultAllow

async def guard(data, tool_use_id, context):
    if data["tool_name"] == "Bash":
        return {"decision": "block", "reason": str(data.get("cwd"))}
    print(tool_use_id, data)

async def ask(name, given, context):
    return PermissionResultAllow(updated_input={**given, "x": name})

o = ClaudeAgentOptions(hooks={"PreToolUse": [HookMatcher(hooks=[guard])]}, can_use_tool=ask)
"""
    assert [use.native for use in uses(program)] == [
        "from bridle import Agent, Block, CanUseToolContext, Edit, Hook, PreToolUseContext",
        "async def guard(ctx: PreToolUseContext):",
        'if ctx.tool_name == "Bash":',
        "return Block(str(ctx.cwd))",
        "print(ctx.tool_use_id, ctx.raw)",
        "async def ask(ctx: CanUseToolContext):",
        'return Edit({**ctx.tool_input, "x": ctx.tool_name})',
        "agent = Agent(\n"
        '    hooks={"PreToolUse": [Hook(guard, timeout=600, on_timeout="block")]},\n'
        "    on_can_use_tool=ask,\n)",
    ]


@pytest.mark.parametrize("event", sorted(GUARDS))
def test_a_hook_that_blocks_after_a_timeout_still_does(event: str) -> None:
    matchers = 'HookMatcher("Bash", [f, g], timeout=5), HookMatcher(hooks=hs), HookMatcher(**a)'
    hooks = f'{{"{event}": [{matchers}], "Stop": [HookMatcher(hooks=[h], timeout=5)]}}'
    written = native(f"hooks = {hooks}").replace("\n", "").replace(" ", "")
    assert written.count('on_timeout="block"') == 4
    assert written.count('timeout=5,on_timeout="block"') == 2
    assert '*[Hook(hook,timeout=600,on_timeout="block")forhookinhs]' in written
    assert '"Stop":[Hook(h,timeout=5)]' in written


@pytest.mark.parametrize("event", sorted(CANNOT_FAIL))
def test_a_hook_that_cannot_block_gets_no_on_error(event: str) -> None:
    written = native(f'hooks = {{"{event}": [HookMatcher(hooks=[f], on_failure="block")]}}')
    assert "Hook(f" in written
    assert "on_error" not in written


@pytest.mark.parametrize(
    ("on_failure", "on_error"),
    [
        ("'deny'", ', on_error="block"'),
        ("'continue'", ', on_error="continue"'),
        ("None", ""),
        ("word", ", on_error=word"),
    ],
)
def test_other_words_for_on_failure_block(on_failure: str, on_error: str) -> None:
    hook = f"HookMatcher(hooks=[f], timeout=5, on_failure={on_failure})"
    assert native(f"x = {hook}") == f"x = Hook(f, timeout=5{on_error})"


def test_what_differs_without_a_timeout_or_with_unknown_callbacks_has_a_note() -> None:
    program = """\
from claude_agent_sdk import HookMatcher
hooks = {"Stop": [HookMatcher(hooks=[f])]}
hooks = {"Stop": [HookMatcher(**a)]}
x = HookMatcher(hooks=[f], on_failure="block")
"""
    _, without, unknown, unnamed = (use.notes for use in uses(program))
    assert any("600 seconds" in one for one in without)
    assert any("one Hook for each function" in one for one in unknown)
    assert any("Leave out on_error at Stop" in one for one in unnamed)


@pytest.mark.parametrize(
    "hooks",
    [
        '{"Stop": [HookMatcher(hooks=[f]), HookMatcher(hooks=[g])]}',
        '{"Stop": [HookMatcher(hooks=[f, g])]}',
        '{"Stop": [HookMatcher(hooks=[*fs])]}',
        '{"Stop": [HookMatcher(hooks=fs)]}',
        '{"Stop": [HookMatcher(hooks=[f])] + more}',
        '{"Stop": [HookMatcher(hooks=[f]) for f in fs]}',
        '{"Stop": [HookMatcher(**given)]}',
        '{"Stop": [made]}',
        '{"Stop": made}',
        '{"Stop": [HookMatcher(hooks=[f])], **more}',
        "made",
    ],
)
@pytest.mark.parametrize("form", ["o = ClaudeAgentOptions(hooks={})", "o.hooks = {}"])
def test_all_hooks_of_an_event_are_called(hooks: str, form: str) -> None:
    program = f"{ALL}o = ClaudeAgentOptions()\n" + form.replace("{}", hooks)
    assert "parallel_hooks=True" in uses(program)[-1].native


def test_options_that_are_not_known_may_need_parallel_hooks() -> None:
    *_, use = uses(f"{ALL}o = ClaudeAgentOptions(model='m', **given)")
    assert any("parallel_hooks=True" in one for one in use.notes)


def test_a_variable_of_the_program_is_not_replaced() -> None:
    matcher = "HookMatcher(matcher=hook, hooks=fs, timeout=5)"
    form = native(f'o = ClaudeAgentOptions(hooks={{"Stop": [{matcher}]}})')
    assert "Hook(callback, matcher=hook, timeout=5) for callback in fs" in " ".join(form.split())


def test_events_with_one_hook_need_no_parallel_hooks() -> None:
    hooks = '{"Stop": [HookMatcher(hooks=[f])], "PreToolUse": [HookMatcher(hooks=[f])]}'
    assert "parallel" not in native(f"o = ClaudeAgentOptions(hooks={hooks})")
    assert "parallel" not in native("o = ClaudeAgentOptions(hooks=None)")


@pytest.mark.parametrize(
    ("matchers", "hooks"),
    [
        ("[HookMatcher(hooks=[f, *fs], timeout=5)]", "f g h"),
        ("[HookMatcher(hooks=[f, g], timeout=5)] + ms", "f g m"),
        ("[HookMatcher(hooks=fs, timeout=5)] + ms", "g h m"),
        ("[HookMatcher(hooks=[f, one], timeout=5) for one in fs]", "f g f h"),
        ("[HookMatcher(hooks=[f, *fs], timeout=5) for _ in 'ab']", "f g h f g h"),
        ("[HookMatcher(hooks=fs, timeout=5) for _ in 'ab']", "g h g h"),
        ("[HookMatcher(hooks=[f], timeout=0)]", "f"),
    ],
)
def test_the_hooks_of_matchers_can_be_made(matchers: str, hooks: str) -> None:
    def named(name: str) -> Callable[[object], None]:
        def hook(_: object) -> None: ...

        hook.__name__ = name
        return hook

    f, g, h, m = map(named, "fghm")
    written = native(f'given = {{"PreToolUse": {matchers}}}').removeprefix("given = ")
    known = {"Hook": bridle.Hook, "f": f, "g": g, "fs": [g, h], "ms": [bridle.Hook(m)]}
    made = eval(written, known)["PreToolUse"]
    BidirOptions(hooks={"PreToolUse": made})
    assert [one.callback.__name__ for one in made] == hooks.split()


@pytest.mark.parametrize(("on_failure", "count"), [("'block'", 1), ("x", 1), ("'continue'", 0)])
def test_a_required_hook_has_a_note_about_none(on_failure: str, count: int) -> None:
    hooks = f'{{"PreToolUse": [HookMatcher(hooks=[f], on_failure={on_failure})]}}'
    *_, use = uses(f"{ALL}hooks = {hooks}\n")
    assert len([one for one in use.notes if "returns None" in one]) == count


def test_what_would_raise_has_a_note() -> None:
    program = """\
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher
ms.append(HookMatcher(hooks=[f, g], on_failure=word))
o = ClaudeAgentOptions(session_store=s, hooks=hs)
"""
    _, several, stored = (use.notes for use in uses(program))
    assert any("list of hooks" in one for one in several)
    assert any("The value of on_error" in one for one in several)
    assert any("one hook only" in one for one in stored)


def test_a_matcher_of_an_unknown_event_has_a_note_about_timeouts() -> None:
    program = "from claude_agent_sdk import HookMatcher\nmatchers = [HookMatcher(hooks=[f])]\n"
    [_, use] = uses(program)
    assert use.native == "matchers = [Hook(f)]"
    [note] = [one for one in use.notes if "on_timeout" in one]
    assert all(event in note for event in GUARDS)


def test_a_tool_gets_typed_parameters_or_keeps_its_schema() -> None:
    program = """\
from claude_agent_sdk import ToolAnnotations, tool

@tool("add", "Add", {"a": float, "b": int}, annotations=ToolAnnotations(read_only_hint=True))
async def add(args):
    ...

@tool("find", "Find", {"type": "object", "properties": {}})
async def find(args):
    ...

class Order(TypedDict):
    note: NotRequired[str]
    items: list[str]

@tool("order", "Order", Order)
async def order(args):
    ...
"""
    _, add, find, order = uses(program)
    assert add.native == (
        '@tool(name="add", description="Add", annotations={"readOnlyHint": True})\n'
        "async def add(a: float, b: int):"
    )
    assert find.native == (
        '@tool(name="find", description="Find", schema={"type": "object", "properties": {}})\n'
        "async def find(**arguments):"
    )
    assert order.native == (
        '@tool(name="order", description="Order")\n'
        "async def order(items: list[str], note: str | None = None):"
    )
    assert add.code.startswith('@tool("add"')


def test_an_exception_handler_is_renamed() -> None:
    program = "try:\n    f()\nexcept (CLINotFoundError, ProcessError) as e:\n    g(e)\n"
    assert native(program) == "except (CliNotFoundError, StartError) as e:"


def test_stored_sessions_are_read_without_await_outside_coroutines() -> None:
    program = """\
from claude_agent_sdk import get_session_messages, list_sessions

print(list_sessions())

async def main():
    print(get_session_messages(x))
"""
    assert [use.native for use in uses(program)] == [
        "from bridle import sessions, sync",
        "print(sync.sessions.list_sessions())",
        "print(await sessions.read_messages(x))",
    ]


def test_options_that_are_changed_become_another_agent() -> None:
    program = """\
import dataclasses
from claude_agent_sdk import ClaudeAgentOptions

options = ClaudeAgentOptions()
options.resume = "x"
other = dataclasses.replace(options, can_use_tool=ask)
"""
    assert [use.native for use in uses(program)][1:] == [
        "agent = Agent()",
        'agent = agent.replace(resume_session_id="x")',
        "other = agent.replace(on_can_use_tool=ask)",
    ]


def test_options_that_cannot_be_read_are_left_as_they_are() -> None:
    assert native("x = ClaudeAgentOptions(**given)") == "x = Agent(**given)".replace("x", "agent")
    assert native("x = PermissionResultDeny(**given)") == "x = Deny(**given)"


def test_a_program_without_the_sdk_has_no_uses() -> None:
    assert uses("from bridle import query\nquery('hi')\n") == []


@pytest.mark.parametrize(
    ("head", "prefix"),
    [
        ("import claude_agent_sdk as sdk", "sdk."),
        ("import claude_agent_sdk", "claude_agent_sdk."),
        ("from claude_agent_sdk import types", "types."),
        ("from claude_agent_sdk import *", ""),
    ],
)
def test_an_import_of_the_whole_module_imports_the_names_that_are_used(
    head: str, prefix: str
) -> None:
    program = f"{head}\nagent = {prefix}ClaudeAgentOptions(model='m')\nx = {prefix}TextBlock\n"
    first, *rest = uses(program)
    assert first.native == "from bridle import Agent, TextBlock"
    assert rest[0].native == 'agent = Agent(model="m")'


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_the_native_forms_of_a_real_program_are_python_with_names_of_bridle(path: Path) -> None:
    for use in uses(path.read_text("utf-8")):
        head = use.native if use.native.startswith("except") else ""
        code = f"try: ...\n{head}" if head else use.native
        body = f"{code} ..." if code.endswith(":") else code
        for node in ast.walk(ast.parse(body)):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(str(node.module))
                assert all(hasattr(module, alias.name) for alias in node.names), use.native
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Agent":
                known = {*CliOptions.fields, *SdkOptions.fields, *BidirOptions.fields}
                assert {one.arg for one in node.keywords if one.arg} <= known, use.native


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("f('a')", 'f("a")'),
        ("""f('say "a"')""", """f('say "a"')"""),
        ("""f("it's")""", """f("it's")"""),
        ("f('a', \"it's\", 'b')", 'f("a", "it\'s", "b")'),
    ],
)
def test_strings_get_double_quotes(code: str, expected: str) -> None:
    assert double_quoted(code) == expected


# ---------------------------------------------------------------- the command


def test_the_command_prints_each_use_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "agent.py"
    text = 'from claude_agent_sdk import query\n\nstream = query(prompt="hi")\n'
    program.write_text(text)
    assert cli.main(["port", str(tmp_path)]) == 0
    assert capsys.readouterr().out == (
        f"{program}:1\n"
        "  - from claude_agent_sdk import query\n"
        "  + from bridle import query\n"
        "\n"
        f"{program}:3\n"
        '  - stream = query(prompt="hi")\n'
        '  + stream = query("hi")\n'
        "\n"
        "2 uses in 1 program. Nothing was changed.\n"
    )
    assert program.read_text() == text


def test_the_command_says_that_there_is_nothing_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text("print(1)\n")
    assert cli.main(["port", str(tmp_path / "a.py")]) == 0
    assert capsys.readouterr().out == "No use of claude_agent_sdk found.\n"


@pytest.mark.parametrize("content", [b"def (:\n", b"\xff\xfe\x00"])
def test_the_command_names_a_file_that_is_not_a_program(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_bytes(content)
    assert cli.main(["port", str(tmp_path / "a.py")]) == 2
    assert "a.py" in capsys.readouterr().err


def test_the_report_covers_the_other_files_if_one_is_not_a_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text("def (:\n")
    (tmp_path / "b.py").write_text("from claude_agent_sdk import query\n")
    assert cli.main(["port", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert "1 use in 1 program" in shown.out
    assert "a.py" in shown.err


def test_the_command_reads_a_file_with_a_byte_order_mark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_bytes(b"\xef\xbb\xbffrom claude_agent_sdk import query\n")
    assert cli.main(["port", str(tmp_path / "a.py")]) == 0
    assert "1 use in 1 program" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["a" + ".b" * 3000, "-" * 50000 + "1"], ids=["RecursionError", "MemoryError"]
)
def test_a_program_that_is_nested_too_deeply_is_named(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deep, good = tmp_path / "deep.py", tmp_path / "good.py"
    deep.write_text(f"import claude_agent_sdk\nx = {text}\n")
    good.write_text("from claude_agent_sdk import TextBlock\n")
    assert cli.main(["port", str(deep), str(good)]) == 2
    out, err = capsys.readouterr()
    assert "from bridle import TextBlock" in out
    assert f"cannot read {deep}: it is nested too deeply" in err.replace("\n", " ")


def test_a_second_import_brings_only_other_names() -> None:
    program = """\
import claude_agent_sdk
import claude_agent_sdk.types
from claude_agent_sdk import TextBlock, query
from claude_agent_sdk import TextBlock as Text, UserMessage

def f():
    from claude_agent_sdk import TextBlock

claude_agent_sdk.query(prompt="x")
"""
    found = [use.native for use in uses(program) if "import" in use.code]
    assert found == [
        "from bridle import query",
        "import bridle",
        "from bridle import TextBlock",
        "from bridle import UserMessage",
        "from bridle import TextBlock",
    ]
