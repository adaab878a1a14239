"""Hold an allowed permission until the PermissionRequest hooks of the same tool call have answered.

The CLI sends a permission request and the hooks of PermissionRequest at the same time, and the
first answer wins. So an allow is not sent while a hook may still block the call, and never after a
hook has blocked it. Every CLI that has this event sends the id of the tool call with both requests.
A model may use an id again, so nothing that is known about a call applies to the next one.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from bridle._engine.actions import Call
from bridle._engine.deadlines import Deadlines
from bridle._engine.incoming.answers import Answer
from bridle._engine.incoming.hook_plan import HookPlan
from bridle._engine.incoming.hook_run import HookRun
from bridle._engine.incoming.open_requests import OpenRequests
from bridle.events import WarningKind
from bridle.permissions import CanUseToolContext

HOOK_CALL = "hook call"
"""The kind of the deadlines by which the CLI must settle a held permission."""

PERMISSION_REQUEST = "PermissionRequest"

_CLI_DELAY = 10.0
"""Seconds that the CLI has to call the hooks of an allowed call, and to withdraw the permission
request of a blocked one. It takes about 0.1 s."""

_MAX_KEPT = 4096
"""Tool calls that are remembered. Most leave earlier."""


def denial(reason: str) -> Answer:
    """Return the answer that denies a permission."""
    return Answer(
        msgspec.json.encode({"behavior": "deny", "message": f"Permission denied: {reason}."})
    )


_BLOCKED = denial("a hook of the application has blocked the call")
_NOT_CALLED = denial("the CLI has not called the hooks of the application")


class _ToolCall(msgspec.Struct):
    """What is known about the hooks of one tool call."""

    #: The callbacks that the CLI has called.
    called: set[str]
    #: The permission requests that wait and their answers, by the id of the call.
    held: dict[int, tuple[Call, Answer]]
    #: The ids of all permission requests.
    asked: list[str]
    #: How many hook callbacks have not been answered. The CLI can call one twice.
    running: int = 0
    is_blocked: bool = False


class PermissionHooks:
    """The PermissionRequest hooks that run for tool calls, and the allows that wait for them."""

    def __init__(self, plan: HookPlan, deadlines: Deadlines, table: OpenRequests) -> None:
        self._plan = plan
        self._deadlines = deadlines
        self._table = table
        self._calls: OrderedDict[str, _ToolCall] = OrderedDict()
        # The tool call of each run of hooks that has not been answered, by the identity of the run.
        self._runs: dict[int, _ToolCall] = {}

    # -- the permission callback -------------------------------------------------------------------

    def asked(self, request_id: str, subject: CanUseToolContext) -> None:
        """Note a permission request, before its callback is called."""
        if subject.tool_use_id and self._plan.callbacks_for(PERMISSION_REQUEST, subject.tool_name):
            about = self._about(subject.tool_use_id)
            if self._is_over(about):
                about = self._begin_anew(subject.tool_use_id, about)
            about.asked.append(request_id)

    def answer(self, call: Call, answer: Answer, now: float) -> None:
        """Send the answer of a permission callback, or hold it until the hooks have answered."""
        tool_use_id: str | None = call.subject.tool_use_id
        is_denied = answer.payload.get("behavior") == "deny"
        if not tool_use_id or is_denied or not self._needed(call):
            self._table.answer(call.request_id, answer)
            return
        about = self._about(tool_use_id)
        about.held[call.call_id] = call, answer
        self._settle(tool_use_id, about, now)

    def expired(self, tool_use_id: str, call_id: int) -> None:
        """Deny a held permission: the CLI has not called its hooks, or has not withdrawn it."""
        about = self._calls[tool_use_id]
        call, _ = about.held.pop(call_id)
        if not self._is_open(call):
            return
        if not about.is_blocked:
            detail = f"the CLI has not called it within {_CLI_DELAY:g} s of the {call.who}"
            self._table.warn(WarningKind.HOOK_TIMED_OUT, f"{PERMISSION_REQUEST} hook: {detail}")
        self._table.answer(call.request_id, _BLOCKED if about.is_blocked else _NOT_CALLED)

    # -- the hooks ---------------------------------------------------------------------------------

    def called(self, run: HookRun, now: float) -> None:
        """Note that the CLI has called hooks."""
        if run.event == PERMISSION_REQUEST and run.tool_use_id:
            about = self._about(run.tool_use_id)
            if run.callback_id in about.called and self._is_over(about):
                about = self._begin_anew(run.tool_use_id, about)
            about.called.add(run.callback_id)
            about.running += 1
            self._runs[id(run)] = about
            self._settle(run.tool_use_id, about, now)

    def answered(self, run: HookRun, now: float) -> None:
        """Note the answer of hooks, which was sent. Send the permission that waited for it."""
        about = self._runs.pop(id(run), None)
        if about is not None and run.tool_use_id:
            about.running -= 1
            about.is_blocked = about.is_blocked or run.settled.refuses
            self._settle(run.tool_use_id, about, now)

    def withdrawn(self, run: HookRun, now: float) -> None:
        """Note that the CLI has withdrawn hooks. They can no longer let the call run."""
        about = self._runs.pop(id(run), None)
        if about is not None and run.tool_use_id:
            about.running -= 1
            about.is_blocked = True
            self._settle(run.tool_use_id, about, now)

    # -- the decision ------------------------------------------------------------------------------

    def _settle(self, tool_use_id: str, about: _ToolCall, now: float) -> None:
        """Send the held allows if all hooks let the call run, or set the deadlines of the CLI."""
        for call_id, (call, answer) in list(about.held.items()):
            token = (HOOK_CALL, (tool_use_id, call_id))
            if about.is_blocked or not self._needed(call) <= about.called:
                # After a block, the CLI withdraws the request and tells the model the reason.
                if token not in self._deadlines:
                    self._deadlines.set(token, now + _CLI_DELAY)
                continue
            self._deadlines.clear(token)
            if not about.running:
                del about.held[call_id]
                if self._is_open(call):
                    self._table.answer(call.request_id, answer)

    def _needed(self, call: Call) -> frozenset[str]:
        """Return the callbacks that the CLI has to call before an allow is sent."""
        return self._plan.callbacks_for(PERMISSION_REQUEST, call.subject.tool_name)

    def _is_open(self, call: Call) -> bool:
        """Return False if the request was withdrawn, or the session is closing."""
        return self._table.open.get(call.request_id) is call

    def _about(self, tool_use_id: str) -> _ToolCall:
        about = self._calls.get(tool_use_id)
        if about is None:
            if len(self._calls) >= _MAX_KEPT:
                self._drop_oldest()
            about = self._calls[tool_use_id] = _ToolCall(set(), {}, [])
        return about

    def _is_over(self, about: _ToolCall) -> bool:
        """Return True if every permission request about the tool call was answered or withdrawn."""
        return bool(about.asked) and self._table.open.keys().isdisjoint(about.asked)

    def _begin_anew(self, tool_use_id: str, about: _ToolCall) -> _ToolCall:
        """Forget a tool call that is over: another one has the same id."""
        for call_id in about.held:
            self._deadlines.clear((HOOK_CALL, (tool_use_id, call_id)))
        about.held.clear()
        del self._calls[tool_use_id]
        return self._about(tool_use_id)

    def _drop_oldest(self) -> None:
        """Forget a tool call without open requests. The table limits those that have some."""
        for tool_use_id, about in self._calls.items():
            if not about.held and not about.running:
                del self._calls[tool_use_id]
                return
