"""Read JSON values of unknown type."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeGuard

Json: TypeAlias = dict[str, Any]


def is_object(value: object) -> TypeGuard[Json]:
    """Return whether the value is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Return whether the value is a JSON array."""
    return isinstance(value, list)


def as_object(value: object) -> Json:
    """Return the value if it is an object, else an empty object."""
    return value if is_object(value) else {}


def as_list(value: object) -> list[Any]:
    """Return the value if it is a list, else an empty list."""
    return value if is_list(value) else []
