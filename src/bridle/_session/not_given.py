"""The default of arguments for which None is a value."""

from __future__ import annotations

from typing import Any, Final, TypeVar

_T = TypeVar("_T")


class _NotGiven:
    def __repr__(self) -> str:
        return "<not given>"


NOT_GIVEN: Final[Any] = _NotGiven()
"""Default of an argument that the session or the agent also has: theirs is used then.

It is of the type Any, so that it does not show in the types of arguments.
"""


def given_or(argument: _T, default: _T) -> _T:
    """Return the argument of a call, or the default if the caller did not give one."""
    return default if argument is NOT_GIVEN else argument
