"""A function of the user with the name that warnings call it by."""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec import Struct


class Callback(Struct, frozen=True):
    """A function of the user. Only the shell calls it; everything else uses its name."""

    function: Any
    name: str


def named(function: object) -> Callback | None:
    """Return a function with its name, or None if there is no function."""
    return None if function is None else Callback(function, name_of(function))


def name_of(function: object) -> str:
    """Return the name of a function; the name of its class if it has no name of its own."""
    inner: Any = function.func if isinstance(function, partial) else function
    try:
        name = str(getattr(inner, "__qualname__", ""))
    except Exception:  # a proxy whose object is not available here
        name = ""
    return name or type(inner).__qualname__
