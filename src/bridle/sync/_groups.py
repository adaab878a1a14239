"""What the blocking groups of operations stand on: a group of the async session, and its calls."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from bridle._session.session import InnerSession
from bridle.sync._portal import Work

_P = ParamSpec("_P")
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Method(Protocol[_P, _T_co]):
    """A blocking method, as type checkers see it."""

    def __get__(self, instance: object, owner: type | None = None) -> Callable[_P, _T_co]: ...


class _Call(Protocol):
    """Runs a coroutine on the event loop and returns its result."""

    def __call__(self, operation: str, work: Work[_T]) -> _T: ...


class Group:
    """Base class of the groups. A group keeps its session alive."""

    def __init__(self, call: _Call, group: object) -> None:
        self._call = call
        self._twin = group


def blocking(method: Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T]]) -> Method[_P, _T]:
    """Return the blocking version of a method of a group."""

    @functools.wraps(method)
    def run(self: Group, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        # The attributes are private so that completion shows only the operations.
        group = self._twin  # pyright: ignore[reportPrivateUsage]
        call = self._call  # pyright: ignore[reportPrivateUsage]
        return call(method.__name__, lambda: method(group, *args, **kwargs))

    return cast("Method[_P, _T]", run)


class GroupsBase(ABC):
    """A session on the event loop, from which its groups are made."""

    _session: InnerSession

    @abstractmethod
    def _call(self, operation: str, work: Work[_T]) -> _T:
        """Run a coroutine on the event loop. The session implements this."""
