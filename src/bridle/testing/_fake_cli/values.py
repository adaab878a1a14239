"""JSON as it comes: what may be anything, read as what it should be."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeGuard

Json: TypeAlias = dict[str, Any]


def is_object(value: object) -> TypeGuard[Json]:
    """Whether it is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether it is a JSON array."""
    return isinstance(value, list)


def as_object(value: object) -> Json:
    """The object it is; an empty one if it is none."""
    return value if is_object(value) else {}


def as_list(value: object) -> list[Any]:
    """The list it is; an empty one if it is none."""
    return value if is_list(value) else []
