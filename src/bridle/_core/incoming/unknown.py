"""Reject requests of a kind that this version does not know."""

from __future__ import annotations

import re

from bridle._core.incoming.table import IncomingRequest, OpenRequests
from bridle.events import WarningKind

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")


class UnknownHandler:
    """Reject requests of an unknown kind."""

    def __init__(self, table: OpenRequests) -> None:
        self._table = table

    def handle(self, request: IncomingRequest) -> None:
        """Reject the request."""
        # The warning is logged and the CLI chooses the text, so quote only what can be a name.
        subtype = request.body.subtype
        name = repr(subtype) if _NAME.fullmatch(subtype) else "that is not a name"
        text = f"unknown control request subtype {name}"
        self._table.reject(WarningKind.UNKNOWN_REQUEST, request.id, text)
