"""Callbacks for stderr, warnings and events, and the rate limit for warnings."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import structs

from bridle._observe.warning_rate import WarningRate
from bridle.events import SdkWarning, WarningKind

LISTENER_FAILED = frozenset({WarningKind.STDERR_CALLBACK_FAILED, WarningKind.EVENT_CALLBACK_FAILED})
"""Kinds that are not passed to callbacks, because the failing callback could get them again."""

KEPT_WARNINGS = 1000
"""The number of newest warnings that a query keeps for the program."""


class Listeners:
    """The callbacks of the user that get notifications and whose results are ignored."""

    def __init__(
        self,
        *,
        on_stderr: Callable[[str], object] | None = None,
        on_warning: Callable[[Any], object] | None = None,
        on_event: Callable[[Any], object] | None = None,
    ) -> None:
        self.on_stderr = on_stderr
        self.on_warning = on_warning
        self.on_event = on_event


class WarningOutlet:
    """Delivers the warnings of one session or query at a limited rate (see :mod:`warning_rate`).

    Secrets are removed from them before anything else gets them.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        deliver: Callable[[SdkWarning], None],
        redact: Callable[[str], str],
    ) -> None:
        self._loop = loop
        self._deliver_to = deliver
        self._redact = redact
        self._kept: deque[SdkWarning] = deque(maxlen=0)
        self._rate = WarningRate()
        self._timer: asyncio.TimerHandle | None = None

    def keep(self) -> deque[SdkWarning]:
        """Keep the newest warnings from now on, and return the queue that holds them."""
        self._kept = deque(maxlen=KEPT_WARNINGS)
        return self._kept

    def tell(self, warning: SdkWarning) -> None:
        """Deliver a warning now, or count it for a later warning of its kind."""
        if self._rate.admit(warning, self._loop.time()):
            self._deliver(warning)
        elif self._timer is None:
            self._arm()

    def flush(self) -> None:
        """Deliver the counted warnings now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for warning in self._rate.take_all():
            self._deliver(warning)

    def _deliver(self, warning: SdkWarning) -> None:
        warning = structs.replace(warning, detail=self._redact(warning.detail))
        if warning.level != "debug":
            self._kept.append(warning)
        self._deliver_to(warning)

    def _arm(self) -> None:
        due = self._rate.next_due
        self._timer = None if due is None else self._loop.call_at(due, self._tell_due)

    def _tell_due(self) -> None:
        # A timer may fire slightly early.
        now = max(self._loop.time(), self._rate.next_due or 0.0)
        self._timer = None
        due = self._rate.take_due(now)
        self._arm()
        for warning in due:
            self._deliver(warning)
