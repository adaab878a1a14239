"""Handle dialogs: requests of the CLI to show something to the user and return the user's choice.

A dialog is cancelled if the callback gives no valid answer. The CLI then does what it does without
the dialog. A dialog of a kind that was not declared is rejected.
"""

from __future__ import annotations

from collections.abc import Collection

from bridle._engine.actions import CallKind
from bridle._engine.incoming.answers import Answer
from bridle._engine.incoming.callback_contexts import decode_tolerantly
from bridle._engine.incoming.open_requests import IncomingRequest, OneCallback, OpenRequests
from bridle._records.callables import Callback
from bridle.controls import UserDialogRequest
from bridle.events import WarningKind
from bridle.permissions import UserDialogContext, bind_raw

_CANCELLED = Answer(b'{"behavior":"cancelled"}')


class DialogHandler(OneCallback):
    """Handle dialogs of these kinds. ``timeout`` is in seconds, None means no limit."""

    failed_kind = late_kind = WarningKind.DIALOG_FAILED

    def __init__(
        self,
        table: OpenRequests,
        callback: Callback | None,
        kinds: Collection[str],
        timeout: float | None,
    ) -> None:
        super().__init__(table, _cancel, _CANCELLED)
        self._callback = callback
        self._kinds = kinds
        self._timeout = timeout

    def handle(self, request: IncomingRequest) -> None:
        """Call the callback, or answer."""
        table, callback = self._table, self._callback
        body: UserDialogRequest = request.body
        label = f"dialog {body.dialog_kind!r:.80}"
        if callback is None or body.dialog_kind not in self._kinds:
            text = f"{label} is not in supported_dialog_kinds"
            table.reject(WarningKind.UNKNOWN_REQUEST, request.id, text)
        elif table.is_closing or table.is_full(label, request.now):
            table.answer(request.id, _CANCELLED)
        else:
            wire = {**request.frame.wire_body(), "dialog_kind": body.dialog_kind}
            context = decode_tolerantly(UserDialogContext, wire)
            bind_raw(context, request.frame.wire_body)
            kind, function, name = CallKind.DIALOG, callback.function, callback.name
            table.call(kind, function, context, label, request.id, self._timeout, None, name)


def _cancel(kind: str, detail: str) -> Answer:
    """Return the answer to a dialog for which the callback gave no valid answer."""
    return Answer(_CANCELLED.body, ((kind, detail),))
