"""Every guard and every gate in the documentation and the examples blocks if it fails."""

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


def guards_in(tree: ast.AST) -> set[str]:
    """Return the functions that can block, change or defer something."""
    return {
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and name_of(node.func) in DECISIONS
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
        callback, blocks = name_of(hook), False
        if isinstance(hook, ast.Call) and name_of(hook.func) == "Hook":
            callback = name_of(hook.args[0])
            blocks = any(
                one.arg == "on_error"
                and isinstance(one.value, ast.Constant)
                and one.value.value == "block"
                for one in hook.keywords
            )
        if callback in guards and not blocks:
            found.append(callback)
    return found


def test_a_guard_is_open_if_it_is_registered_without_on_error() -> None:
    guard = "def guard(c): return bridle.Block(1)\ndef look(c): return None\n"
    assert open_guards(guard + "Agent(on_pre_tool_use=guard)") == ["guard"]
    assert open_guards(guard + "Agent(hooks={'PreToolUse': [bridle.Hook(guard)]})") == ["guard"]
    closed = "Agent(on_pre_tool_use=look, hooks={'PreToolUse': [Hook(guard, on_error='block')]})"
    assert open_guards(guard + closed) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_guard_of_a_page_blocks_if_it_fails(page: Path) -> None:
    programs = [block.code for block in read_blocks(page) if block.is_program]
    assert open_guards("\n".join(programs)) == []


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_every_guard_of_an_example_blocks_if_it_fails(program: Path) -> None:
    assert open_guards(program.read_text("utf-8")) == []
