"""A Griffe extension for the docstring conventions of this repository.

Fields of records are documented by ``#:`` comments, or only by their names. The extension puts
them into one table in the docstring of their class. Roles such as ``:class:`Turn``` become plain
code.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import griffe

_ROLE = re.compile(r":\w+:(`[^`]+`)")
_PLAIN = re.compile(r"None|True|False|\(\)|[\d.]+|'[^']*'|\"[^\"]*\"")
# Base classes of records are an implementation detail.
_INNER = re.compile(
    r"(msgspec\.)?Struct|Generic\b.*|Withdrawable|Sourced|Record|_ForDestination|_HookConditions|_OfTurn"
)

MADE_BY_BRIDLE = {
    "ContextOperations",
    "ConversationOperations",
    "FileOperations",
    "InfoOperations",
    "McpOperations",
    "ModelOperations",
    "PluginOperations",
    "Pool",
    "PoolSession",
    "QueryStream",
    "SessionStart",
    "SettingsOperations",
    "Subscription",
    "TaskOperations",
    "SyncAgent",
    "SyncPool",
    "SyncPoolSession",
    "TextPieces",
    "Tool",
    "Turn",
    "TurnEvents",
}
"""Classes that programs get from a call. Their constructors are private."""


def _comment(lines: list[str], number: int) -> str:
    """Return the ``#:`` comment that ends above a line, counted from 1."""
    found: list[str] = []
    for line in reversed(lines[: number - 1]):
        stripped = line.strip()
        if not stripped.startswith("#:"):
            break
        found.insert(0, stripped.removeprefix("#:").strip())
    return " ".join(found)


def _is_field(member: griffe.Object | griffe.Alias) -> bool:
    return (
        isinstance(member, griffe.Attribute)
        and not member.name.startswith("_")
        and "property" not in member.labels
    )


class RecordFields(griffe.Extension):
    """Put the fields of a class into its docstring."""

    def on_instance(self, *, node: Any, obj: griffe.Object, agent: Any, **_: Any) -> None:
        """Rewrite the roles in the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(r"\1", obj.docstring.value)

    def on_class_members(self, *, node: Any, cls: griffe.Class, agent: Any, **_: Any) -> None:
        """Move the fields of a class into its docstring."""
        if not isinstance(node, ast.ClassDef):
            return
        if cls.name in MADE_BY_BRIDLE:
            cls.members.pop("__init__", None)
        cls.bases = [base for base in cls.bases if not _INNER.fullmatch(str(base))]
        for name, member in list(cls.members.items()):
            if isinstance(member, griffe.Attribute) and str(member.value).startswith("blocking("):
                del cls.members[name]  # documented at its twin
        fields = [member for member in cls.members.values() if _is_field(member)]
        if any("Enum" in str(base) for base in cls.bases):
            for field in fields:  # the values are in a table of the page, with their meanings
                del cls.members[field.name]
            return
        if not fields:
            return
        lines = cls.lines_collection[cls.filepath]  # type: ignore[index]  # a file, no namespace
        rows = []
        for field in fields:
            assert isinstance(field, griffe.Attribute)
            text = field.docstring.value if field.docstring else _comment(lines, field.lineno or 0)
            kind = f" ({field.annotation})" if field.annotation is not None else ""
            rows.append(f"    {field.name}{kind}: {text or _said(field)}")
            del cls.members[field.name]
        if cls.docstring is None:
            cls.docstring = griffe.Docstring("", parent=cls)
        cls.docstring.value += "\n\nAttributes:\n" + "\n".join(rows)


def _said(field: griffe.Attribute) -> str:
    """Describe a field without a comment by its default, if that is a simple value."""
    value = str(field.value) if field.value is not None else ""
    return f"Default: `{value}`." if _PLAIN.fullmatch(value) else "&nbsp;"
