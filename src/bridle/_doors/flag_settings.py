"""The settings that a session applies at run time, and the permission rules that Bridle adds.

The CLI keeps these settings beside those of its start. It replaces each of them as a whole: new
``permissions`` delete all rules that were applied before. CLI 2.1.197 acknowledges an invalid
setting, and from then on ignores everything that was applied. So this module remembers what was
applied, sends the rules of the program and those of Bridle together, and checks that the CLI uses
Bridle's rules.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any

from bridle._core.operations import APPLY_FLAG_SETTINGS, GET_SETTINGS
from bridle._fields import is_list, is_mapping
from bridle._shell.values import plain_fields
from bridle.errors import ControlError, ControlRejected, ControlTimeout, OptionsError

Payload = Mapping[str, object] | None

Submit = Callable[[str, Mapping[str, object]], Awaitable[Payload]]
"""Sends a control request with these fields, and returns the payload of the response."""

Rejected = Callable[[str, str], ControlRejected]
"""Makes the error for an operation from its text."""

_APPLY = APPLY_FLAG_SETTINGS.subtype
_PERMISSIONS = "permissions"
_RESTRICTING = ("deny", "ask")


class FlagSettings:
    """The settings that were applied to a session, and its rules for tools with ``ask=True``.

    Settings are applied one at a time. Cancelling a caller ends its wait. The settings are then
    applied in the background. ``rules`` are the rules that the CLI was started with.
    """

    def __init__(self, rules: Iterable[str]) -> None:
        self._rules = list(rules)
        self._applied: dict[str, Any] = {}
        self._changing = asyncio.Lock()

    async def apply(
        self, fields: Mapping[str, object], submit: Submit, rejected: Rejected
    ) -> Payload:
        """Send a request of the program that applies settings. Keep Bridle's rules in force.

        Raises:
            OptionsError: the permissions are invalid. Nothing was sent.
            ControlRejected: the CLI rejected the settings, or it ignores Bridle's rules because of
                them. Bridle has restored the earlier settings.
        """
        if not is_mapping(fields.get("settings")):
            return await submit(_APPLY, fields)  # reports the problem
        plain = plain_fields(_APPLY, fields)
        settings: Any = plain["settings"]
        _with_rules(settings.get(_PERMISSIONS), ())
        return await _to_the_end(self._apply(plain, settings, (), submit, rejected))

    async def add_rules(self, rules: Iterable[str], submit: Submit, rejected: Rejected) -> None:
        """Make the CLI ask about more tools. Keep the rules of the program in force.

        The rules stay when their server is removed: a rule without a tool has no effect.

        Raises:
            ControlRejected: the CLI rejected the rules, or ignores them.
        """
        await _to_the_end(self._apply({}, None, rules, submit, rejected))

    async def _apply(
        self,
        fields: Mapping[str, object],
        settings: Mapping[str, Any] | None,
        new_rules: Iterable[str],
        submit: Submit,
        rejected: Rejected,
    ) -> Payload:
        """Send settings of the program, or its last permissions, with all rules of Bridle."""

        async def send(changes: Mapping[str, Any]) -> Payload:
            merged = dict(changes)
            if _PERMISSIONS in changes:
                merged[_PERMISSIONS] = _with_rules(changes[_PERMISSIONS], rules)
            return await submit(_APPLY, {**fields, "settings": merged})

        async with self._changing:
            before = self._applied.get(_PERMISSIONS)
            changes = {_PERMISSIONS: before} if settings is None else settings
            rules = list(dict.fromkeys((*self._rules, *new_rules)))
            is_sent = False
            try:
                payload = await send(changes)
                is_sent = True
                if rules and not _are_used(rules, await submit(GET_SETTINGS.subtype, {})):
                    problem = rejected(
                        _APPLY, "the CLI ignores the settings, because one is invalid"
                    )
                    raise problem
            except ControlError as error:
                is_unknown = isinstance(error, ControlTimeout) or (
                    is_sent and not isinstance(error, ControlRejected)
                )
                if is_unknown and _PERMISSIONS in changes:
                    # The CLI may have either of them.
                    self._applied[_PERMISSIONS] = _stricter(before, changes[_PERMISSIONS])
                if rules and (is_sent or is_unknown):
                    names = (*changes, _PERMISSIONS)
                    with contextlib.suppress(ControlError):  # The caller gets the first error.
                        await send({name: self._applied.get(name) for name in names})
                raise
            self._applied.update(changes)
            self._rules = rules
            return payload


async def _to_the_end(change: Coroutine[Any, Any, Payload]) -> Payload:
    """Await a change that goes on if the caller is cancelled, so that no rule is lost."""
    task = asyncio.create_task(change)
    # A caller that was cancelled does not read the error, which asyncio would then report.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(task)


def _with_rules(permissions: object, rules: Collection[str]) -> Mapping[str, object] | None:
    """Return the permissions of the program with more rules about tools to ask about.

    Raises:
        OptionsError: the permissions, or one of their lists, have the wrong type.
    """
    if permissions is None and not rules:
        return None
    given: Mapping[object, object] = {}
    if is_mapping(permissions):
        given = permissions
    elif permissions is not None:
        raise _invalid(_PERMISSIONS, permissions, "a mapping")
    for name in ("allow", *_RESTRICTING):
        if not is_list(given.get(name, [])):
            raise _invalid(f"{_PERMISSIONS}.{name}", given[name], "a list of rules")
    merged: dict[str, Any] = {str(name): value for name, value in given.items()}
    if rules:
        asked: list[object] = merged.get("ask", [])
        merged["ask"] = [*asked, *(rule for rule in rules if rule not in asked)]
    return merged


def _invalid(name: str, value: object, expected: str) -> OptionsError:
    return OptionsError(f"{_APPLY}.settings.{name}", f"is {value!r:.80}", fix=f"Give {expected}.")


def _stricter(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return permissions that allow only what both allow."""
    one, other = one or {}, other or {}
    both = {name: value for name, value in one.items() if other.get(name) == value}
    for name in _RESTRICTING:
        if rules := [*one.get(name, ()), *other.get(name, ())]:
            both[name] = list(dict.fromkeys(rules))
    return both


def _are_used(rules: Iterable[str], report: Payload) -> bool:
    """Return True if the CLI's report of its settings has all these rules."""
    effective = (report or {}).get("effective")
    permissions = effective.get(_PERMISSIONS) if is_mapping(effective) else None
    listed = permissions.get("ask") if is_mapping(permissions) else None
    return is_list(listed) and set(rules).issubset(listed)
