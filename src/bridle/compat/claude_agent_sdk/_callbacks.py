"""Wrap hooks and permission callbacks of the official form as callbacks of Bridle."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import CoroutineType
from typing import Any, TypeVar, cast

from bridle.compat._failed_hooks import CANNOT_FAIL, GUARDS, HOOK_TIMEOUT
from bridle.compat.claude_agent_sdk._loops.bridge import Bridge
from bridle.compat.claude_agent_sdk._types.hook_types import HookCallback, HookContext, HookMatcher
from bridle.compat.claude_agent_sdk._types.permission_types import (
    CanUseTool,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionUpdate,
    ToolPermissionContext,
)
from bridle.hooks import Hook
from bridle.hooks import HookContext as NativeContext
from bridle.permissions import (
    Allow,
    CanUseToolContext,
    Deny,
    Edit,
    PermissionResult,
    UnknownPermissionUpdate,
)

_log = logging.getLogger("bridle.callbacks")

_COROUTINES: type = CoroutineType
"""The usual kind of awaitable, which is quicker to recognise than the others."""

_F = TypeVar("_F", bound=Callable[..., Any])


class Unanswered(BaseException):
    """The program ended before a hook could answer. Guards then block."""


async def settled(value: object) -> Any:
    """Return what a callback of the user returned. Plain functions are accepted too."""
    waits = isinstance(value, _COROUTINES) or inspect.isawaitable(value)
    return await cast("Awaitable[Any]", value) if waits else value


# ---------------------------------------------------------------- hooks


def native_hooks(
    hooks: Mapping[Any, Sequence[HookMatcher]], bridge: Bridge
) -> dict[str, list[Hook]]:
    """Return the hooks by event."""
    return {
        event: [
            Hook(
                _hook(callback, bridge),
                matcher=matcher.matcher,
                timeout=matcher.timeout or HOOK_TIMEOUT,
                on_error="block" if _must_succeed(matcher, event) else "continue",
                on_timeout="block" if event in GUARDS else None,
                on_invalid="send",
            )
            for matcher in matchers
            for callback in matcher.hooks
        ]
        for event, matchers in hooks.items()
    }


def _must_succeed(matcher: HookMatcher, event: str) -> bool:
    """Return whether the CLI blocks if a hook fails. It reads other words as "block", too."""
    return matcher.on_failure not in (None, "continue") and event not in CANNOT_FAIL


def _hook(function: HookCallback, bridge: Bridge) -> Callable[[NativeContext], Awaitable[Any]]:
    async def call(context: NativeContext) -> Any:
        given = function(cast("Any", context.raw), context.tool_use_id, HookContext(signal=None))
        output: object = await settled(given)
        if not isinstance(output, Mapping):
            raise TypeError(f"the hook returned {type(output).__name__}. Return a dict.")
        return cast("Any", output) or None  # an empty output decides nothing

    return _named(bridge.callback(call, Unanswered), function)


def _named(callback: _F, function: object) -> _F:
    """Give a callback the name of the user's function, for warnings."""
    callback.__name__ = callback.__qualname__ = getattr(function, "__name__", "callback")
    return callback


# ---------------------------------------------------------------- permissions


def native_permission(
    function: CanUseTool, bridge: Bridge
) -> Callable[[CanUseToolContext], Awaitable[PermissionResult]]:
    """Return the permission callback."""

    async def call(context: CanUseToolContext) -> PermissionResult:
        given = function(context.tool_name, context.tool_input, _context(context))
        return _result(await settled(given), context)

    return _named(bridge.callback(call), function)


def _context(context: CanUseToolContext) -> ToolPermissionContext:
    return ToolPermissionContext(
        suggestions=[
            PermissionUpdate.from_dict(update.raw) for update in context.permission_suggestions
        ],
        tool_use_id=context.tool_use_id,
        agent_id=context.agent_id,
        blocked_path=context.blocked_path,
        decision_reason=context.decision_reason,
        title=context.title,
        display_name=context.display_name,
        description=context.description,
    )


def _result(given: object, context: CanUseToolContext) -> PermissionResult:
    """Return the result. The callback may have changed the input that it got."""
    if isinstance(given, PermissionResultAllow):
        updates = _updates(given.updated_permissions or ())
        if given.updated_input is None and context.tool_input != context.raw.get("input"):
            return Edit(context.tool_input, updates)
        # The CLI runs the original input if it gets an empty one.
        return Edit(given.updated_input, updates) if given.updated_input else Allow(updates)
    if isinstance(given, PermissionResultDeny):
        return Deny(given.message, interrupt=given.interrupt)
    raise TypeError(
        f"can_use_tool returned {type(given).__name__}. Return a PermissionResultAllow or a "
        "PermissionResultDeny."
    )


def _updates(given: Sequence[PermissionUpdate]) -> list[UnknownPermissionUpdate]:
    """Return the updates to send: all of them, or none if one cannot be sent.

    The one that cannot be sent may restrict what the others allow.
    """
    updates: list[UnknownPermissionUpdate] = []
    for number, update in enumerate(given):
        try:
            updates.append(UnknownPermissionUpdate(update.to_dict()))
        except ValueError as error:
            _log.warning(
                "can_use_tool allowed the call, but none of its updated_permissions are applied, "
                "because number %d cannot be sent: %s",
                number,
                error,
            )
            return []
    return updates
