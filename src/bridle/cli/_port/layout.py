"""Print an expression or the first line of a statement, broken into short lines."""

from __future__ import annotations

import ast
import re

WIDTH = 88
_INDENT = "    "


_STRING = re.compile(r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\"""")


def double_quoted(code: str) -> str:
    """Return the code with double quotes where that changes nothing else."""

    def quoted(found: re.Match[str]) -> str:
        inner = found[0][1:-1]
        return found[0] if '"' in inner else f'"{inner}"'

    return _STRING.sub(quoted, code)


def layout(node: ast.AST, indent: str = "", before: int = 0) -> str:
    """Return the code. A long call, list or dictionary has one line for each of its parts.

    `before` is the number of characters that precede it on its first line.
    """
    flat = ast.unparse(node)
    if len(indent) + before + len(flat) <= WIDTH and "\n" not in flat:
        return flat
    inner = indent + _INDENT
    match node:
        case ast.Call() if node.args or node.keywords:
            parts = [layout(one, inner) for one in node.args]
            for one in node.keywords:
                name = f"{one.arg}=" if one.arg else "**"
                parts.append(name + layout(one.value, inner, len(name)))
            return _broken(f"{layout(node.func, indent)}(", parts, ")", indent)
        case ast.List() if node.elts:
            return _broken("[", [layout(one, inner) for one in node.elts], "]", indent)
        case ast.Dict() if node.values:
            members: list[str] = []
            for key, value in zip(node.keys, node.values, strict=True):
                name = "**" if key is None else f"{ast.unparse(key)}: "
                members.append(name + layout(value, inner, len(name)))
            return _broken("{", members, "}", indent)
        case ast.Attribute():
            return f"{layout(node.value, indent)}.{node.attr}"
        case ast.Await():
            return f"await {layout(node.value, indent, 6)}"
        case ast.Expr():
            return layout(node.value, indent)
        case ast.Return() if node.value is not None:
            return f"return {layout(node.value, indent, 7)}"
        case ast.Assign():
            targets = "".join(f"{ast.unparse(one)} = " for one in node.targets)
            return targets + layout(node.value, indent, len(targets))
        case _:
            return flat


def _broken(opening: str, parts: list[str], closing: str, indent: str) -> str:
    lines = "".join(f"\n{indent}{_INDENT}{part}," for part in parts)
    return f"{opening}{lines}\n{indent}{closing}"
