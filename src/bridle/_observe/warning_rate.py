"""Limit the rate of warnings of one kind: the first ones singly, then one a second with a count.

A CLI that writes invalid lines can cause hundreds of thousands of warnings a second.
:class:`WarningRate` decides which of them are given. The others are counted, and the count is
exact: the sum of ``SdkWarning.count`` over all given warnings is the number of warnings.
"""

from __future__ import annotations

from msgspec import Struct, structs

from bridle.events import SdkWarning, WarningKind

BURST = 20
"""Warnings of one kind that are given singly, before they are counted."""

INTERVAL = 1.0
"""Seconds between two warnings of a kind that is over its burst, and to regain one of the burst."""


class _Counted(Struct):
    """Warnings of one kind that have not been given yet."""

    last: SdkWarning
    since: float
    count: int = 1


class WarningRate:
    """The rate of the warnings of one session or query. All times must come from one clock."""

    def __init__(self) -> None:
        # The time at which each kind has its whole burst again.
        self._full_at: dict[WarningKind, float] = {}
        self._counted: dict[WarningKind, _Counted] = {}

    def admit(self, warning: SdkWarning, now: float) -> bool:
        """Return True if the warning should be given now. Otherwise count it."""
        kind = warning.kind
        counted = self._counted.get(kind)
        if counted is not None:
            counted.last = warning
            counted.count += 1
            return False
        full_at = max(self._full_at.get(kind, now), now)
        if full_at - now > (BURST - 1) * INTERVAL:
            self._counted[kind] = _Counted(warning, now)
            return False
        self._full_at[kind] = full_at + INTERVAL
        return True

    @property
    def next_due(self) -> float | None:
        """Return when :meth:`take_due` has a warning to return. None if nothing is counted."""
        if not self._counted:
            return None
        return min(one.since for one in self._counted.values()) + INTERVAL

    def take_due(self, now: float) -> list[SdkWarning]:
        """Remove and return the warnings due by ``now``: one of each kind, with a count."""
        due = [kind for kind, one in self._counted.items() if one.since + INTERVAL <= now]
        for kind in due:
            self._full_at[kind] = now + BURST * INTERVAL
        return [_summary(self._counted.pop(kind)) for kind in due]

    def take_all(self) -> list[SdkWarning]:
        """Remove and return everything that is counted, due or not."""
        counted = list(self._counted.values())
        self._counted.clear()
        return [_summary(one) for one in counted]


def _summary(counted: _Counted) -> SdkWarning:
    if counted.count == 1:
        return counted.last
    said = counted.last.detail or counted.last.kind.meaning
    detail = f"{counted.count} more of this kind; the last: {said}"
    return structs.replace(counted.last, detail=detail, count=counted.count)
