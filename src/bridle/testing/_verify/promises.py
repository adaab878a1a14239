"""What a promise is: a sentence, the function that tries it, and the list of all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from bridle.testing._verify.stage import Stage

Trial = Callable[["Stage"], Awaitable[str]]
"""Tries a promise and returns what was observed. Raises :class:`Broken` if it does not hold."""

FIRST = "start.session"
"""Tried alone, before the others. If it does not hold, no other promise is tried."""

TESTED_SINCE = "2.1.197"
"""The oldest CLI on which features were tested that :data:`MISSING_IN` does not have."""

MISSING_IN = "2.0.0"
"""The newest CLI that was seen to have none of these features. They are not tried on it."""

TIMEOUT = 45.0
"""Seconds for one promise: many times what it takes on a busy machine."""

_MODULES = (
    "starting",
    "guards",
    "permission_promises",
    "hook_promises",
    "interrupts",
    "limit_promises",
    "turns",
    "tool_promises",
    "conversations",
    "approval_promises",
    "processes",
)
"""In the order of the table."""


class Broken(AssertionError):
    """A promise does not hold. The text says what was observed."""


class Check(Struct, frozen=True, kw_only=True):
    """A promise that can be tried."""

    id: str
    sentence: str
    depends: str
    trial: Trial
    #: The oldest CLI that is known to have the feature. On an older one a promise that does not
    #: hold is unsupported, not broken. It is not tried on CLIs up to MISSING_IN.
    since: str | None = None


_checks: dict[str, Check] = {}


def promise(
    id: str, sentence: str, *, depends: str, since: str | None = None
) -> Callable[[Trial], Trial]:
    """Make a promise of the function that tries it. The order of the source is that of the table.

    Args:
        id: the group and the name, such as ``guard.block``.
        sentence: what is promised.
        depends: the parts of Bridle that rest on it.
        since: the oldest version of the CLI that is known to have the feature, if not all
            supported ones have it. No CLI up to `MISSING_IN` has it.
    """

    def keep(trial: Trial) -> Trial:
        assert id not in _checks, f"{id} is listed twice"
        _checks[id] = Check(id=id, sentence=sentence, depends=depends, trial=trial, since=since)
        return trial

    return keep


def all_checks() -> dict[str, Check]:
    """Return every promise by its id, in the order of the table."""
    for name in _MODULES:
        import_module(f"bridle.testing._verify.{name}")
    return dict(_checks)


def require(condition: object, observed: str) -> None:
    """Raise :class:`Broken` with what was observed unless the condition is true."""
    if not condition:
        raise Broken(observed)


def expect(what: str, found: Any, expected: Any) -> None:
    """Raise :class:`Broken` unless the values are equal."""
    require(found == expected, f"{what}: {found!r:.200}, expected {expected!r:.200}")
