"""Handle permission requests, including those of the AskUserQuestion and ExitPlanMode tools.

A request is denied if its callback gives no valid answer.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from bridle._engine.actions import Call, CallKind
from bridle._engine.incoming.answers import Answer, InvalidReturn
from bridle._engine.incoming.callback_contexts import copied, decode_can_use_tool
from bridle._engine.incoming.open_requests import (
    CLOSING,
    IncomingRequest,
    OneCallback,
    OpenRequests,
)
from bridle._engine.incoming.permission_hooks import PermissionHooks, denial
from bridle._records.callables import Callback
from bridle.controls import CanUseToolRequest
from bridle.events import WarningKind
from bridle.permissions import bind_raw

_DENIED = denial(CLOSING)
_NO_CALLBACK = denial("this application answers no permission requests")


class PermissionHandler(OneCallback):
    """Handle permission requests.

    ``timeout`` is in seconds, None means no limit. ``hooks`` holds back what the callbacks allow.
    """

    failed_kind = WarningKind.PERMISSION_FAILED
    late_kind = WarningKind.PERMISSION_TIMED_OUT

    def __init__(
        self,
        table: OpenRequests,
        can_use_tool: Callback | None,
        question: Callback | None,
        plan: Callback | None,
        timeout: float | None,
        hooks: PermissionHooks,
    ) -> None:
        super().__init__(table, deny, _DENIED)
        self._default = CallKind.PERMISSION, can_use_tool
        # The two tools that ask the user may have their own callback.
        self._by_tool: dict[str, tuple[CallKind, Callback]] = {}
        if question is not None:
            self._by_tool["AskUserQuestion"] = CallKind.QUESTION, question
        if plan is not None:
            self._by_tool["ExitPlanMode"] = CallKind.PLAN, plan
        self._timeout = timeout
        self._hooks = hooks

    def handle(self, request: IncomingRequest) -> None:
        """Call the callback for the tool, or deny."""
        table, request_id = self._table, request.id
        body: CanUseToolRequest = request.body
        if not (body.tool_name and body.input) and table.reject_incomplete(
            request, "tool_name", "input"
        ):
            return
        subject = decode_can_use_tool(body, request.session_id)
        kind, callback = self._by_tool.get(subject.tool_name, self._default)
        label = f"permission for {subject.tool_name}"
        if table.is_closing:
            table.answer(request_id, _DENIED)
        elif callback is None:
            table.warn(WarningKind.NO_PERMISSION_CALLBACK, label)
            table.answer(request_id, _NO_CALLBACK)
        elif table.is_full(label, request.now):
            table.answer(request_id, deny(WarningKind.LIMIT_REACHED, label), warned=True)
        else:
            # The callback may change its copy. `Allow` sends back the input that the CLI sent.
            context = structs.replace(subject, tool_input=copied(subject.tool_input))
            bind_raw(context, request.frame.wire_body)
            function, name = callback.function, callback.name
            self._hooks.asked(request_id, subject)
            table.call(kind, function, context, label, request_id, self._timeout, subject, name)

    def finished(self, call: Call, result: Any, now: float) -> None:
        """Answer with the result, after the hooks about the same tool call."""
        if type(result) is InvalidReturn:
            super().finished(call, result, now)
        else:
            self._hooks.answer(call, result, now)


def deny(kind: str, detail: str) -> Answer:
    """Return the answer to a permission request for which the callback gave no valid answer."""
    message = f"the application gave no valid answer ({kind})"
    return Answer(denial(message).body, ((kind, detail),))
