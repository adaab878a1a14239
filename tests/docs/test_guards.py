"""Examples are safe to copy: guards block if they fail, prompts of others are plain text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from doc_blocks import read_blocks

ROOT = Path(__file__).parents[2]

GATES = {"PreToolUse", "PermissionRequest", "UserPromptSubmit", "UserPromptExpansion"}
SHORT = {"on_pre_tool_use", "on_user_prompt_submit"}
DECISIONS = {"Block", "Deny", "Defer", "EndTurn", "ModifyInput"}
SENDERS = {"run", "query", "submit", "send_user_message"}

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = [
    *sorted((ROOT / "examples").rglob("*.py")),
    *sorted((ROOT / "src/bridle/cli/_demo").glob("*.py")),
]


def name_of(node: ast.expr | None) -> str:
    """Return the last part of a name, such as `Hook` of `bridle.Hook`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def decides(function: ast.AST) -> bool:
    """Return whether a function can block, change or defer something."""
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(name_of(call.func) in DECISIONS for call in calls)


def guards_in(tree: ast.AST) -> set[str]:
    """Return the functions that can block, change or defer something."""
    return {
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and decides(function)
    }


def hooks_of_gates(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield what is registered for the events that decide whether something happens."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in SHORT:
            yield node.value
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value in GATES:
                    yield from value.elts if isinstance(value, ast.List) else ()


def open_guards(code: str) -> list[str]:
    """Return the guards of a program that let the call run if they fail."""
    tree = ast.parse(code)
    guards = guards_in(tree)
    found: list[str] = []
    for hook in hooks_of_gates(tree):
        callback, blocks = hook, False
        if isinstance(hook, ast.Call) and name_of(hook.func) == "Hook":
            callback = hook.args[0]
            blocks = any(
                one.arg == "on_error"
                and isinstance(one.value, ast.Constant)
                and one.value.value == "block"
                for one in hook.keywords
            )
        name = "lambda" if isinstance(callback, ast.Lambda) else name_of(callback)
        is_guard = decides(callback) if name == "lambda" else name in guards
        if is_guard and not blocks:
            found.append(name)
    return found


def test_a_guard_is_open_if_it_is_registered_without_on_error() -> None:
    guard = "def guard(c): return bridle.Block(1)\ndef look(c): return None\n"
    assert open_guards(guard + "Agent(on_pre_tool_use=guard)") == ["guard"]
    assert open_guards(guard + "Agent(hooks={'PreToolUse': [bridle.Hook(guard)]})") == ["guard"]
    assert open_guards("Agent(on_pre_tool_use=lambda c: Block(1))") == ["lambda"]
    closed = "Agent(on_pre_tool_use=look, hooks={'PreToolUse': [Hook(guard, on_error='block')]})"
    assert open_guards(guard + closed) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_guard_of_a_page_blocks_if_it_fails(page: Path) -> None:
    programs = [block.code for block in read_blocks(page) if block.is_program]
    assert open_guards("\n".join(programs)) == []


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_every_guard_of_an_example_blocks_if_it_fails(program: Path) -> None:
    assert open_guards(program.read_text("utf-8")) == []


def senders_in(code: str) -> list[str]:
    """Return the functions that put an argument of theirs into a prompt, such as views."""
    found: list[str] = []
    for function in ast.walk(ast.parse(code)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        given = {one.arg for one in function.args.args}
        for call in ast.walk(function):
            if not isinstance(call, ast.Call) or ast.unparse(call.func) == "asyncio.run":
                continue
            if name_of(call.func) in SENDERS and call.args:
                used = [one.id for one in ast.walk(call.args[0]) if isinstance(one, ast.Name)]
                found += [] if given.isdisjoint(used) else [function.name]
    return found


def test_a_function_whose_argument_is_in_a_prompt_is_found() -> None:
    assert senders_in("def view(request): agent.run(request['prompt'])") == ["view"]
    assert senders_in("async def task(text): await agent.query(f'Read: {text}')") == ["task"]
    assert senders_in("def view(request): agent.run('Say hello.', deps=request)") == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_prompts_that_a_page_takes_from_others_are_not_interpreted(page: Path) -> None:
    """Otherwise a user who writes `@/path` gets the content of that file."""
    code = "\n".join(block.code for block in read_blocks(page) if block.is_program)
    assert senders_in(code) == [] or "verbatim_prompts=True" in code
