"""Contexts for unit tests of callbacks."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

from bridle.errors import UsageError
from bridle.permissions import Withdrawable, bind_withdrawal

_Context = TypeVar("_Context", bound=Withdrawable)


def with_deps(context: _Context, deps: Any) -> _Context:
    """Set the ``deps`` of a context that a test creates. Return the context.

    Example: ``guard(with_deps(PreToolUseContext(tool_name="Bash"), deps=database))``.
    """
    bind_withdrawal(context, _Given(deps))
    return context


class _Given:
    """The request of a context that belongs to no session. It is never cancelled."""

    def __init__(self, deps: Any) -> None:
        self.deps = deps

    def is_set(self) -> bool:
        return False

    def wait(self) -> Awaitable[None]:
        raise _endless()

    def wait_sync(self, timeout: float | None) -> bool:
        if timeout is None:
            raise _endless()
        return False


def _endless() -> UsageError:
    return UsageError(
        "This context belongs to no session, so it cannot be cancelled.",
        fix="Do not wait for the cancellation in this test.",
    )
