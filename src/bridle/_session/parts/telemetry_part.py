"""Telemetry: examine the messages of a session or a query."""

from __future__ import annotations

from bridle._engine import actions as act
from bridle._observe.observer import SessionObserver
from bridle._session.parts.part import Part, Sees


class TelemetryPart(Part):
    """Passes delivered messages to the observer, if there is telemetry."""

    def __init__(self, observer: SessionObserver) -> None:
        self._observer = observer

    def sees(self) -> Sees:
        """See the messages that are delivered."""
        return {act.Deliver: self._delivered} if self._observer.reads else {}

    def _delivered(self, action: act.Deliver) -> None:
        self._observer.delivered(action.messages, action.turns)
