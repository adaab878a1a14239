"""Reject requests of a kind that this version does not know."""

from __future__ import annotations

from bridle._core.incoming.table import IncomingRequest, OpenRequests
from bridle.events import WarningKind


class UnknownHandler:
    """Reject requests of an unknown kind."""

    def __init__(self, table: OpenRequests) -> None:
        self._table = table

    def handle(self, request: IncomingRequest) -> None:
        """Reject the request."""
        text = f"unknown control request subtype {request.body.subtype!r:.80}"
        self._table.reject(WarningKind.UNKNOWN_REQUEST, request.id, text)
