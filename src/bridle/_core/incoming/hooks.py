"""Handle hook callbacks: call the hooks of an event one after another and send their answer.

A hook that fails lets the CLI go on unless its `on_error` is "block". If no hook can be called
(the table is full, the request cannot be read, no thread is left), gates block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridle._core.actions import Call, CallKind
from bridle._core.incoming.approvals import PRE_TOOL_USE, Approvals
from bridle._core.incoming.hook_plan import HookPlan
from bridle._core.incoming.hook_run import HookAnswer, HookRun
from bridle._core.incoming.permission_hooks import PermissionHooks
from bridle._core.incoming.table import CLOSING, IncomingRequest, OpenRequests
from bridle.controls import HookCallbackRequest
from bridle.events import WarningKind

_HOOK = CallKind.HOOK  # bound to a local name because enum attribute access is slow


class HookHandler:
    """Handle hook callbacks.

    ``end_turn`` is called with the event and the answer when a hook has ended the turn, and with
    every answer about a prompt. ``approvals`` knows the calls that wait for a person,
    ``permissions`` the allows that wait for hooks.
    """

    failed_kind = WarningKind.HOOK_FAILED
    late_kind = WarningKind.HOOK_TIMED_OUT

    def __init__(
        self,
        table: OpenRequests,
        plan: HookPlan,
        end_turn: Callable[[str, HookAnswer, float], None],
        approvals: Approvals | None = None,
        permissions: PermissionHooks | None = None,
    ) -> None:
        self._table = table
        self._permissions = permissions
        self._plan = plan
        self._end_turn = end_turn
        self._approvals = approvals or Approvals()
        #: True if the CLI blocks when it cannot read the output of a hook that must not fail.
        self.cli_blocks = False

    def handle(self, request: IncomingRequest) -> None:
        """Call the first hook that matches, or answer."""
        table = self._table
        body: HookCallbackRequest = request.body
        if not body.callback_id and table.reject_incomplete(request, "callback_id"):
            return
        approvals = self._approvals
        if approvals.resumed is not None and approvals.concerns(
            body.tool_use_id or body.input.get("tool_use_id")
        ):
            run = approvals.begin_hooks(self._plan, body)
        else:
            run = self._plan.begin(body.callback_id, body.input, body.tool_use_id)
            if run.event == PRE_TOOL_USE:
                approvals.note_call(run.tool_use_id or body.input.get("tool_use_id"))
        self._begin(request, run)

    def decide(self, request: IncomingRequest) -> None:
        """Answer the permission request about the resumed call: run its hooks, then decide."""
        self._begin(
            request,
            self._approvals.begin_permission(self._plan, request.body, request.session_id),
        )

    def _begin(self, request: IncomingRequest, run: HookRun) -> None:
        table, now = self._table, request.now
        if self._permissions is not None:
            self._permissions.called(run, now)
        run.cli_blocks, run.cli_version = self.cli_blocks, self._approvals.cli_version()
        self._approvals.hold(run)
        if self._plan.last is not None and run.needs_last:
            run.call_last(self._plan.last)
        if table.is_closing:
            run.close(CLOSING)
        elif run.answer is None and table.is_full(run.label, now):
            run.refuse()
        self._step(request.id, run, now)

    def refuse_unread(self, request_id: str, callback_id: str | None, text: str) -> bool:
        """Answer a hook callback with only its id readable. Return False if the id is not ours.

        An error would let the tool run: older CLIs treat it as an empty answer of the hook.
        """
        run = self._plan.unreadable(callback_id)
        if run is None:
            return False
        self._table.warn(WarningKind.INVALID_REQUEST, text)
        self._table.answer(request_id, run.settled)
        return True

    def finished(self, call: Call, result: Any, now: float) -> None:
        """Call the next hook, or answer."""
        call.subject.done(result)
        self._step(call.request_id, call.subject, now)

    def failed(self, call: Call, kind: str, detail: str, now: float, error: str = "") -> None:
        """Call the next hook, or block if the failed one must succeed."""
        call.subject.failed(kind, detail)
        self._step(call.request_id, call.subject, now)

    def uncallable(self, call: Call, limit: str, now: float) -> None:
        """Block if the event is a gate."""
        call.subject.refuse()
        self._step(call.request_id, call.subject, now)

    def refuse(self, call: Call) -> None:
        """Block if the event is a gate."""
        call.subject.close(CLOSING)
        self._table.answer(call.request_id, call.subject.reply)

    def _step(self, request_id: str, run: HookRun, now: float) -> None:
        """Call the next hook of the run, or send the answer of the run."""
        table, approvals, last = self._table, self._approvals, self._plan.last
        approvals.hold(run)
        if last is not None and run.needs_last:
            run.call_last(last)
        answer = run.answer
        if answer is not None:
            if answer.defers:
                approvals.defer(run)
            table.answer(request_id, run.reply)
            if self._permissions is not None:
                self._permissions.answered(run, now)
            if approvals.resumed is not None:
                approvals.answered(run)
            if answer.ends_turn or run.event == "UserPromptSubmit":
                self._end_turn(run.event, answer, now)
            return
        # Warn of a failed hook now, because an answer may never follow.
        if run.warnings:
            for kind, detail in run.take_warnings():
                table.warn(WarningKind(kind), detail)
        hook = run.waiting[0]
        function, timeout = hook.hook.callback, hook.timeout
        table.call(_HOOK, function, run.context, run.label, request_id, timeout, run, hook.name)
