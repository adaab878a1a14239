"""Decide which settings to send to a running CLI, so that no permission rule gets lost.

The CLI keeps these settings beside those of its start. It replaces each of them as a whole: new
``permissions`` delete all rules that were applied before. CLI 2.1.197 acknowledges an invalid
setting, and from then on ignores everything that was applied. So this module remembers what was
applied, and merges the rules of the program with those of Bridle, for tools with ``ask=True``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct

from bridle._engine.outgoing.operations import APPLY_FLAG_SETTINGS
from bridle._records.fields import is_list, is_mapping
from bridle.errors import OptionsError

_PERMISSIONS = "permissions"
_RESTRICTING = ("deny", "ask")


class SettingsChange(Struct, frozen=True):
    """A change of the settings, as the program wants it, and all of Bridle's rules after it."""

    settings: Mapping[str, Any]
    rules: tuple[str, ...]

    @property
    def to_send(self) -> dict[str, Any]:
        """Return the settings with the rules of Bridle."""
        merged = dict(self.settings)
        if _PERMISSIONS in merged:
            merged[_PERMISSIONS] = with_rules(merged[_PERMISSIONS], self.rules)
        return merged


class AppliedSettings:
    """What was applied to a session. ``rules`` are those that the CLI was started with."""

    def __init__(self, rules: Iterable[str]) -> None:
        self._rules = tuple(rules)
        self._applied: dict[str, Any] = {}

    def change(
        self, settings: Mapping[str, Any] | None, new_rules: Iterable[str] = ()
    ) -> SettingsChange:
        """Return a change to settings of the program, or only to the rules of Bridle."""
        changed = {_PERMISSIONS: self._applied.get(_PERMISSIONS)} if settings is None else settings
        return SettingsChange(changed, tuple(dict.fromkeys((*self._rules, *new_rules))))

    def confirm(self, change: SettingsChange) -> None:
        """Note that the CLI uses a change."""
        self._applied.update(change.settings)
        self._rules = change.rules

    def doubt(self, change: SettingsChange) -> None:
        """Note that the CLI may have applied a change, or not. The stricter rules of both count."""
        self._rules = change.rules
        if _PERMISSIONS in change.settings:
            before, after = self._applied.get(_PERMISSIONS), change.settings[_PERMISSIONS]
            self._applied[_PERMISSIONS] = _stricter(before, after)

    def undo(self, change: SettingsChange) -> SettingsChange:
        """Return the change that brings back what was applied before."""
        names = dict.fromkeys((*change.settings, _PERMISSIONS))
        return SettingsChange({name: self._applied.get(name) for name in names}, self._rules)


def with_rules(permissions: object, rules: Collection[str]) -> Mapping[str, object] | None:
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


def are_used(rules: Iterable[str], report: Mapping[str, object] | None) -> bool:
    """Return True if the CLI's report of its settings has all these rules."""
    effective = (report or {}).get("effective")
    permissions = effective.get(_PERMISSIONS) if is_mapping(effective) else None
    listed = permissions.get("ask") if is_mapping(permissions) else None
    return is_list(listed) and set(rules).issubset(listed)


def _invalid(name: str, value: object, expected: str) -> OptionsError:
    field = f"{APPLY_FLAG_SETTINGS.subtype}.settings.{name}"
    return OptionsError(field, f"is {value!r:.80}", fix=f"Give {expected}.")


def _stricter(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return permissions that allow only what both allow."""
    one, other = one or {}, other or {}
    # Rules that allow, and modes, count only if both have them. Anything else may restrict.
    both = {name: value for name, value in {**one, **other}.items() if name not in _LOOSENING}
    both |= {name: one[name] for name in _LOOSENING if name in one and one[name] == other.get(name)}
    for name in _RESTRICTING:
        if rules := [*one.get(name, ()), *other.get(name, ())]:
            both[name] = list(dict.fromkeys(rules))
    return both


_LOOSENING = ("allow", "defaultMode", "additionalDirectories")
