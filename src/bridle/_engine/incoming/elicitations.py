"""Handle elicitations: requests of MCP servers to the user.

An elicitation is cancelled if there is no callback, or if the callback gives no valid answer. To
decline would tell the server that a person has refused.
"""

from __future__ import annotations

from bridle._engine.actions import CallKind
from bridle._engine.incoming.answers import Answer
from bridle._engine.incoming.callback_contexts import decode_elicitation
from bridle._engine.incoming.open_requests import IncomingRequest, OneCallback, OpenRequests
from bridle._records.callables import Callback
from bridle.controls import ElicitationRequest
from bridle.events import WarningKind
from bridle.permissions import bind_raw

_CANCELLED = Answer(b'{"action":"cancel"}')


class ElicitationHandler(OneCallback):
    """Handle elicitations. ``timeout`` is in seconds, None means no limit."""

    failed_kind = late_kind = WarningKind.ELICITATION_FAILED

    def __init__(
        self, table: OpenRequests, callback: Callback | None, timeout: float | None
    ) -> None:
        super().__init__(table, cancel, _CANCELLED)
        self._callback = callback
        self._timeout = timeout

    def handle(self, request: IncomingRequest) -> None:
        """Call the callback, or answer."""
        table, callback = self._table, self._callback
        body: ElicitationRequest = request.body
        label = f"elicitation of {body.mcp_server_name}"
        if table.is_closing or callback is None or table.is_full(label, request.now):
            table.answer(request.id, _CANCELLED)
        else:
            wire = {**request.frame.wire_body(), "mcp_server_name": body.mcp_server_name}
            context = decode_elicitation(wire)
            bind_raw(context, request.frame.wire_body)
            kind, function, name = CallKind.ELICITATION, callback.function, callback.name
            table.call(kind, function, context, label, request.id, self._timeout, None, name)


def cancel(kind: str, detail: str) -> Answer:
    """Return the answer to an elicitation for which the callback gave no valid answer."""
    return Answer(_CANCELLED.body, ((kind, detail),))
