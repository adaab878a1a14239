"""Reject requests of a kind that this version does not know."""

from __future__ import annotations

import re

from bridle._engine.incoming.open_requests import IncomingRequest, OpenRequests
from bridle.events import WarningKind

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")


def is_name(subtype: str) -> bool:
    """Return whether a subtype can be a name.

    Warnings are logged and the CLI chooses the subtype, so only a name may be part of their text.
    """
    return _NAME.fullmatch(subtype) is not None


class UnknownHandler:
    """Reject requests of an unknown kind."""

    def __init__(self, table: OpenRequests) -> None:
        self._table = table

    def handle(self, request: IncomingRequest) -> None:
        """Reject the request."""
        subtype = request.body.subtype
        name = repr(subtype) if is_name(subtype) else "that is not a name"
        text = f"unknown control request subtype {name}"
        self._table.reject(WarningKind.UNKNOWN_REQUEST, request.id, text)
