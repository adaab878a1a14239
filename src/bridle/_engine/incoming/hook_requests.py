"""Handle hook callbacks: call the hooks of an event one after another and send their answer.

A hook that fails lets the CLI go on unless its `on_error` is "block". If no hook can be called
(the table is full, the request cannot be read, no thread is left), gates block.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridle._engine.actions import Call, CallKind
from bridle._engine.incoming.hook_plan import BATCH_ENDED, TOOL_ENDED, HookPlan
from bridle._engine.incoming.hook_run import Decided, HookAnswer, HookRun, HookVerdict
from bridle._engine.incoming.open_requests import (
    CLOSING,
    IncomingRequest,
    OpenRequests,
    RunningTurn,
)
from bridle._engine.incoming.permission_hooks import PermissionHooks
from bridle._engine.incoming.waiting_call import PRE_TOOL_USE, Approvals
from bridle._engine.versions import MINIMUM
from bridle._engine.wire.codec import encode_json
from bridle.controls import HookCallbackRequest
from bridle.events import WarningKind

_MAX_ENDED = 100
"""Agents and turns that a hook ended after a tool. Most CLIs end them at once."""

_HOOK = CallKind.HOOK  # bound to a local name because enum attribute access is slow


class HookHandler:
    """Handle hook callbacks.

    Returns a verdict when a hook has ended the turn, and for every answer about a prompt.
    ``approvals`` knows the calls that wait for a person, ``permissions`` the allows that wait for
    hooks.
    """

    failed_kind = WarningKind.HOOK_FAILED
    late_kind = WarningKind.HOOK_TIMED_OUT

    def __init__(
        self,
        table: OpenRequests,
        plan: HookPlan,
        turns: RunningTurn,
        approvals: Approvals,
        permissions: PermissionHooks,
    ) -> None:
        self._table = table
        self._permissions = permissions
        self._plan = plan
        self._turns = turns
        self._approvals = approvals
        # Why a hook ended the turn after a tool, by agent and turn.
        self._ended: dict[tuple[object, str], str] = {}
        #: True if the CLI blocks when it cannot read the output of a hook that must not fail.
        self._cli_blocks = False
        # The version to assume if none is known. The oldest CLI cannot resume a call.
        self._assumed = None if self._approvals.resumed else f"{MINIMUM} or newer"

    def learn(self, server_info: Mapping[str, object]) -> None:
        """Take the CLI's response to initialize."""
        self._cli_blocks = bool(server_info.get("hook_on_failure_supported"))
        if "pid" in server_info:  # CLIs up to 2.0.60 do not send it
            self._assumed = None

    def handle(self, request: IncomingRequest) -> Decided:
        """Call the first hook that matches, or answer."""
        table = self._table
        body: HookCallbackRequest = request.body
        if not body.callback_id and table.reject_incomplete(request, "callback_id"):
            return None
        approvals = self._approvals
        if approvals.resumed is not None and approvals.concerns(
            body.tool_use_id or body.input.get("tool_use_id")
        ):
            run = approvals.begin_hooks(self._plan, body)
        else:
            run = self._plan.begin(body.callback_id, body.input, body.tool_use_id)
            if run.event == PRE_TOOL_USE:
                approvals.note_call(run.tool_use_id or body.input.get("tool_use_id"))
        return self._begin(request, run)

    def decide(self, request: IncomingRequest) -> Decided:
        """Answer the permission request about the resumed call: run its hooks, then decide."""
        run = self._approvals.begin_permission(self._plan, request.body, request.session_id)
        return self._begin(request, run)

    def _begin(self, request: IncomingRequest, run: HookRun) -> Decided:
        table, now = self._table, request.now
        self._permissions.called(run, now)
        run.cli_blocks = self._cli_blocks
        run.cli_version = self._approvals.state.cli_version or self._assumed
        self._approvals.hold(run)
        if self._plan.last is not None and run.needs_last:
            run.call_last(self._plan.last)
        if table.is_closing:
            run.close(CLOSING)
        elif run.answer is None and table.is_full(run.label, now):
            run.refuse()
        return self._step(request.id, run, now)

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

    def finished(self, call: Call, result: Any, now: float) -> Decided:
        """Call the next hook, or answer."""
        call.subject.done(result)
        return self._step(call.request_id, call.subject, now)

    def failed(self, call: Call, kind: str, detail: str, now: float, error: str = "") -> Decided:
        """Call the next hook, or block if the failed one must succeed."""
        call.subject.failed(kind, detail)
        return self._step(call.request_id, call.subject, now)

    def uncallable(self, call: Call, limit: str, now: float) -> Decided:
        """Block if the event is a gate."""
        call.subject.refuse()
        return self._step(call.request_id, call.subject, now)

    def refuse(self, call: Call) -> None:
        """Block if the event is a gate."""
        call.subject.close(CLOSING)
        self._table.answer(call.request_id, call.subject.reply)

    def _step(self, request_id: str, run: HookRun, now: float) -> Decided:
        """Call the next hook of the run, or send the answer of the run."""
        table, approvals, last = self._table, self._approvals, self._plan.last
        approvals.hold(run)
        if last is not None and run.needs_last:
            run.call_last(last)
        answer = run.answer
        if answer is not None:
            if run.event == TOOL_ENDED or run.event == BATCH_ENDED:
                answer = run.answer = self._end_batch(run, answer)
            if answer.defers:
                approvals.defer(run, self._turns.deferral_problem())
            table.answer(request_id, run.reply)
            self._permissions.answered(run, now)
            if approvals.resumed is not None:
                approvals.answered(run)
            if answer.ends_turn or run.event == "UserPromptSubmit":
                return HookVerdict(run.event, answer)
            return None
        # Warn of a failed hook now, because an answer may never follow.
        if run.warnings:
            for kind, detail in run.take_warnings():
                table.warn(WarningKind(kind), detail)
        hook = run.waiting[0]
        function, timeout = hook.hook.callback, hook.timeout
        table.call(_HOOK, function, run.context, run.label, request_id, timeout, run, hook.name)
        return None

    def _end_batch(self, run: HookRun, answer: HookAnswer) -> HookAnswer:
        """Return the answer. End the turn after a batch of tools if a hook did so after one."""
        turn = run.wire.get("prompt_id")
        if not isinstance(turn, str):
            return answer
        ended, key = self._ended, (run.wire.get("agent_id"), turn)
        if run.event == BATCH_ENDED:
            reason = ended.pop(key, None)
            if reason is not None and not answer.ends_turn:
                ending = {**answer.payload, "continue": False, "stopReason": reason}
                return HookAnswer(encode_json(ending), answer.warnings, ends_turn=True)
        elif answer.ends_turn:
            ended[key] = answer.reason
            if len(ended) > _MAX_ENDED:
                del ended[next(iter(ended))]
        return answer
