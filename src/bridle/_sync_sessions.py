"""Blocking versions of the functions of `bridle.sessions`: ``bridle.sync.sessions``."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from bridle import sessions
from bridle._doors.portal import portal

__all__ = [
    "delete",
    "export",
    "fork",
    "get_session",
    "list_sessions",
    "read_messages",
    "read_transcript",
    "rename",
    "tag",
]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _blocking(function: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, _T]:
    """Return a function that runs a coroutine function on the shared event loop and waits."""

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return portal().call(function.__name__, lambda: function(*args, **kwargs))

    return call


delete = _blocking(sessions.delete)
export = _blocking(sessions.export)
fork = _blocking(sessions.fork)
get_session = _blocking(sessions.get_session)
list_sessions = _blocking(sessions.list_sessions)
read_messages = _blocking(sessions.read_messages)
read_transcript = _blocking(sessions.read_transcript)
rename = _blocking(sessions.rename)
tag = _blocking(sessions.tag)
